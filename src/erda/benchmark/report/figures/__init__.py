"""Figures of a report: `*_figure` turns records into a `Figure`; `figure.py` renders it."""
