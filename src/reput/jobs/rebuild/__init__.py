"""`reput rebuild`: build queues and index from the log alone."""

from reput.extras import saying_the_extra

with saying_the_extra(__name__):
    from reput.jobs.rebuild.job import rebuild
    from reput.jobs.rebuild.options import RebuildOptions

__all__ = ["RebuildOptions", "rebuild"]
