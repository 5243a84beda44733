"""Corpora of unlabelled text with tagged entities: build, read, index and mine them, and find extra examples."""
