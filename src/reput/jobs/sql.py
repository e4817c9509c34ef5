"""Former name of `reput.jobs.query`, kept for one release."""

from reput.jobs.query import Source, query_sql

__all__ = ["Source", "query_sql"]
