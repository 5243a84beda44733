"""Unlabelled text with tagged entities: build it, store it, look into it, mine it, find more examples in it."""
