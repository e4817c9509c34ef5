"""Former name of `reput.jobs.lake`, kept for one release."""

from reput.jobs.lake import ExportOptions, export, follow

__all__ = ["ExportOptions", "export", "follow"]
