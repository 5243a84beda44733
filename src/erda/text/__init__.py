"""Words, sentences and their keys; reading of files; entity marks."""
