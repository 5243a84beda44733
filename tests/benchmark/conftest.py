"""Makes the toys of this folder importable from the folders below."""
