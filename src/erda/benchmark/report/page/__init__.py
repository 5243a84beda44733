"""The page of a report: one HTML file that opens from the disk, without a network."""
