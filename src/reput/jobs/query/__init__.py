"""`reput query`: find messages by topic, key, time or SQL."""

from reput.extras import saying_the_extra

with saying_the_extra(__name__):
    from reput.jobs.query.query_job import find_messages
    from reput.jobs.query.sql_job import Source, query_sql

__all__ = ["Source", "find_messages", "query_sql"]
