"""Former name of `reput.jobs.backup`, kept for one release."""

from reput.jobs.backup import restore

__all__ = ["restore"]
