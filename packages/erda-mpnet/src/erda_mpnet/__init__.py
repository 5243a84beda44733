"""The adapter of all-mpnet-base-v2 for `erda`: data files only, found by `erda.encoders.weights.adapter_folder`."""
