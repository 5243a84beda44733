"""Figures of a report: `*_figure` looks at records and says what is drawn; `base.py` paints it."""
