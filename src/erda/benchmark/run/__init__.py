"""Runs: the loop over a stream, and several runs in one or more processes."""
