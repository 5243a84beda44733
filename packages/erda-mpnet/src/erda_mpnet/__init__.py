"""The adapter of all-mpnet-base-v2 for `erda` (data files beside this one), and the builder of ONNX encoders."""
