"""`reput rebuild`: build queues and index from the log alone."""

from reput.jobs.rebuild.job import rebuild
from reput.jobs.rebuild.options import RebuildOptions

__all__ = ["RebuildOptions", "rebuild"]
