"""File formats: each reader turns one file into a `Reading`, or reports all its faults at once."""
