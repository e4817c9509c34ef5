"""Former name of `reput.jobs.repair`, kept for one release."""

from reput.jobs.repair import salvage

__all__ = ["salvage"]
