"""`reput query`: find messages by topic, key, time or SQL."""

from reput.jobs.query.query_job import find_messages
from reput.jobs.query.sql_job import Source, query_sql

__all__ = ["Source", "find_messages", "query_sql"]
