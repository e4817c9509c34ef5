"""Former name of `reput.jobs.lake`, kept for one release."""

from reput.jobs.lake import import_messages

__all__ = ["import_messages"]
