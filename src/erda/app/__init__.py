"""The extractor: it learns relations from a user's sentences, one after another, and stores every version on disk."""
