"""Reports of jobs: terminal, JSON and HTML page."""

from reput.jobs.report.plot import Plot, Series
from reput.jobs.report.report import Report
from reput.jobs.report.table import Table

__all__ = ["Plot", "Report", "Series", "Table"]
