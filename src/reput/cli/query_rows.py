"""`reput query` as rows of Arrow: all messages of a stretch of time, and SQL."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

from reput.cli.nothing_found import tell_unknown_topics
from reput.cli.output import complain
from reput.cli.rows import write_rows
from reput.cli.start import begin_work

#: Of a table; JSON and files have all.
_SHOWN_COLUMNS = (
    "topic", "queue_id", "queue_offset", "commit_log_offset", "store_timestamp", "tags", "keys", "body",
)  # fmt: skip


def query_range(
    store: str,
    keys: Sequence[str],
    *,
    topics: Sequence[str] | None,
    begin: int | None,
    end: int | None,
    commit_log_path: str | None,
    output: str | None,
    as_json: bool,
) -> int:
    """Show all messages with one of the keys, of the topics and of the time; the exit status."""
    from reput.jobs.query import find_messages

    _check(store, commit_log_path, topics, output)
    begin_work()
    columns = None if as_json or output is not None else _SHOWN_COLUMNS
    rows = find_messages(store, columns, topics, keys or None, begin, end, commit_log_path=commit_log_path)
    write_rows(rows, output=output, as_json=as_json)
    return 0


def query_sql(
    store: str,
    sql: str,
    schemas: Mapping[str, str],
    *,
    runner: str,
    master: str | None,
    damaged: Literal["refuse", "skip"],
    topics: Sequence[str] | None,
    begin: int | None,
    end: int | None,
    commit_log_path: str | None,
    output: str | None,
    as_json: bool,
) -> int:
    """Show the rows of a statement; the exit status, 1 where bodies could not be decoded, or damage was passed over."""
    from reput.jobs import sql as job

    _check(store, commit_log_path, topics, output)
    begin_work()
    source = job.Source(
        path=store, topics=topics, begin=begin, end=end, schemas=schemas, commit_log_path=commit_log_path,
        damaged=damaged,
    )  # fmt: skip
    with _no_warnings():
        if runner == "spark":
            from reput.spark import session
            from reput.spark.sql import query_sql_on_spark

            table = query_sql_on_spark(session(master or "local[*]"), source, sql).toArrow()
            write_rows(table.to_reader(), output=output, as_json=as_json)
            findings = source.damages()
        else:
            found = job.query_sql(source, sql)
            write_rows(found.reader, output=output, as_json=as_json)
            findings = found.findings
    for finding in findings:
        complain(finding)
    return int(bool(findings))


@contextmanager
def _no_warnings() -> Iterator[None]:
    """Readers of the log warn of what they pass over, each of them; it is told once, as findings."""
    logger = logging.getLogger("reput.log")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _check(store: str, commit_log_path: str | None, topics: Sequence[str] | None, output: str | None) -> None:
    """Refuse what cannot be written before anything is read, and tell of topics that are not there."""
    from reput.log.directory import StoreDirectory

    directory = StoreDirectory(store, commit_log_path=commit_log_path)
    if output is not None:
        from reput.jobs.row_files import file_kind

        file_kind(output)
        directory.check_output(output)
    tell_unknown_topics(directory, topics)
