"""`reput diff`: compare two stores message by message."""

from reput.jobs.diff.job import DiffResult, diff

__all__ = ["DiffResult", "diff"]
