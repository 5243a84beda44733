"""The HTTP server over an extractor, and its client (extra `serve`; the client needs the core alone)."""
