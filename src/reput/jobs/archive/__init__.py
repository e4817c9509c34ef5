"""`reput archive`: sealed log files as tables that give every byte back; `reput restore` makes a store of them."""

from reput.extras import saying_the_extra

with saying_the_extra(__name__):
    from reput.jobs.archive.archive_job import Archived, archive, follow
    from reput.jobs.archive.verify_job import Verified, verify

__all__ = ["Archived", "Verified", "archive", "follow", "verify"]
