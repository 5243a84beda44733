"""Runs: the loop over a stream, its checkpoints, where runs happen."""
