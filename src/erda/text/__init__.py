"""Tokens, sentences, keys, entity marks and reading of text files."""
