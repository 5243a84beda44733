"""The page of a report: one HTML file that opens from the disk, without a network."""

from erda.benchmark.report.page.page import PAGE, render_page

__all__ = ["PAGE", "render_page"]
