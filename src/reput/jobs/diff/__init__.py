"""`reput diff`: compare two stores message by message."""

from reput.extras import saying_the_extra

with saying_the_extra(__name__):
    from reput.jobs.diff.job import DiffResult, diff

__all__ = ["DiffResult", "diff"]
