"""The extractor that people teach: relations from their own sentences, one after another, kept on the disk."""
