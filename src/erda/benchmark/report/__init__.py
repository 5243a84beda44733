"""Reports: records -> experiments -> tables, figures, a page."""
