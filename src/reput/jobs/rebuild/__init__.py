"""`reput rebuild`: build queues and index from the log alone."""

from reput.jobs.rebuild.job import rebuild

__all__ = ["rebuild"]
