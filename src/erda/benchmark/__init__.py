"""Runs, their records, and the views of them: measures, tables, figures, report."""
