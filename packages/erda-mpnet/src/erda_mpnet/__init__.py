"""The adapter of all-mpnet-base-v2 for `erda` (data files), the loader of its weights, and the builder of encoders."""
