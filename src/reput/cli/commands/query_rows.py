"""`reput query` by Arrow rows: all messages of a time range, and SQL."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from reput.cli.display.limited import limited
from reput.cli.display.output import iso_time, write_error, write_fields, write_json
from reput.cli.display.rows import SeenRows, first_rows, write_lines, write_rows_table
from reput.cli.job_run import job_run, write_page
from reput.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.accumulators import Accumulator

    from reput.jobs.job_folder import Option
    from reput.jobs.query.kept_reads import KeptReads
    from reput.jobs.report.over_time import StoredOverTime
    from reput.jobs.report.plot import Plot
    from reput.jobs.report.report import Report
    from reput.progress import Progress

#: Columns of a table on the terminal; JSON and files have all.
_SHOWN_COLUMNS = (
    "topic", "queue_id", "queue_offset", "commit_log_offset", "store_timestamp", "tags", "keys", "body",
)  # fmt: skip
#: Limits of rows of a table on the terminal, which is made when all rows are there, and of a report.
_SHOWN_ROWS, _REPORTED_ROWS = 1000, 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Options of the command: which rows are wanted, and where they are written."""

    store: str
    topics: Sequence[str] | None
    keys: Sequence[str]
    begin: int | None
    end: int | None
    sql: str | None
    max_num: int | None
    schemas: Mapping[str, str]
    commit_log_path: str | None
    output: str | None
    report: str | None
    work_dir: str | None
    runner: Literal["local", "spark"]
    master: str | None
    damaged: Literal["refuse", "skip"]
    max_findings: int
    as_json: bool

    @property
    def prints_lines(self) -> bool:
        """Whether each row is a line of JSON."""
        return self.as_json and self.output is None

    @property
    def facts(self) -> dict[str, str]:
        """Facts of the question for the report."""
        facts = {"statement": self.sql or "", "keys": ", ".join(self.keys), "topics": ", ".join(self.topics or ())}
        facts |= {"from": iso_time(self.begin), "to": iso_time(self.end), "written to": self.output or ""}
        return {name: text for name, text in facts.items() if text}

    @property
    def options(self) -> dict[str, Option]:
        """Options that the answer depends on, for the work folder."""
        return {
            "store": os.path.abspath(self.store), "commit-log-path": self.commit_log_path,
            "begin": self.begin, "end": self.end,
            "topics": None if self.topics is None else list(self.topics), "keys": list(self.keys), "sql": self.sql,
            "schema": [f"{topic}={fields}" for topic, fields in self.schemas.items()], "damaged": self.damaged,
        }  # fmt: skip


def answer(asked: Question) -> int:
    """Show all wanted rows; returns the exit status: 1 if bodies could not be decoded, or damage was passed over."""
    from reput.jobs.query.row_files import file_kind, write_rows
    from reput.jobs.report.over_time import StoredOverTime

    _check(asked)
    if asked.output is not None:
        file_kind(asked.output)
    started = time.monotonic()
    stored = None if asked.report is None else StoredOverTime()
    most = 0 if asked.prints_lines or asked.output is not None else _SHOWN_ROWS
    lines_hide_bar = asked.prints_lines and sys.stdout.isatty()
    with (
        job_run(
            asked.store, asked.output, asked.report, asked.work_dir,
            commit_log_path=asked.commit_log_path, topics=asked.topics, shows_progress=not lines_hide_bar,
        ) as progress,
        _kept(asked, progress) as kept,
        _spark_folder(asked) as folder,
        _no_warnings(),
    ):  # fmt: skip
        reader, findings_of = _rows(asked, progress, kept, folder)
        reader = reader if asked.max_num is None else first_rows(reader, asked.max_num)
        rows = SeenRows(reader, max(most, 0 if asked.report is None else _REPORTED_ROWS), stored)
        if asked.output is not None:
            write_rows(rows.reader(), asked.output)
        elif asked.as_json:
            write_lines(rows)
        else:
            for _ in rows:
                pass
        findings = findings_of()
    shown = findings if asked.as_json else limited(findings, len(findings), asked.max_findings)
    if asked.output is not None:
        written = {"rows": rows.rows, "output": asked.output}
        write_json(written) if asked.as_json else write_fields(written)
    elif not asked.as_json:
        write_rows_table(rows)
    if asked.report is not None:
        write_page(_report(asked, rows, stored, shown, time.monotonic() - started), asked.report)
    for finding in shown:
        write_error(finding)
    return int(bool(findings))


def _check(asked: Question) -> None:
    """Raise ConfigError for options that exclude each other."""
    on_spark = asked.runner == "spark"
    if asked.sql is None and on_spark and asked.work_dir is None:
        raise ConfigError("--runner spark goes with --sql, or with --work-dir, where executors put their rows")
    if asked.sql is not None and on_spark and asked.work_dir is not None:
        raise ConfigError("--work-dir: Spark's SQL keeps nothing there; leave it out, or let DuckDB answer")


@contextmanager
def _kept(asked: Question, progress: Progress) -> Iterator[KeptReads | None]:
    """Reads that are kept in the work folder until the query has ended; None without a work folder."""
    if asked.work_dir is None:
        yield None
        return
    from reput.jobs.query.kept_reads import kept_reads
    from reput.spark.runner import choose_runner

    runner = choose_runner(asked.runner, total_bytes=0, master=asked.master)
    with kept_reads(runner, asked.work_dir, asked.options, progress) as kept:
        yield kept


@contextmanager
def _spark_folder(asked: Question) -> Iterator[str | None]:
    """Folder beside the output for the rows of Spark's tasks, which is removed at the end; None without an output."""
    from reput.files import DISK

    if asked.output is None or asked.runner != "spark" or asked.sql is None:
        yield None
        return
    folder = f"{os.path.abspath(asked.output)}.rows-{os.getpid()}"
    DISK.make_directories(folder)
    try:
        yield folder
    finally:
        DISK.remove_tree(folder)


def _rows(
    asked: Question, progress: Progress, kept: KeptReads | None, folder: str | None
) -> tuple[pa.RecordBatchReader, Callable[[], list[str]]]:
    """Reader of the rows, and a function that returns the findings after all rows were read."""
    bounds: dict[str, Any] = {
        "topics": asked.topics, "begin": asked.begin, "end": asked.end, "commit_log_path": asked.commit_log_path,
    }  # fmt: skip
    if asked.sql is None:
        from reput.jobs.query.query_job import find_messages

        columns = None if asked.as_json or asked.output is not None else _SHOWN_COLUMNS
        reader = find_messages(
            asked.store, columns, keys=asked.keys or None, kept=kept, progress=progress, **bounds
        )  # fmt: skip
        return reader, list
    from reput.jobs.query import sql_job as job

    if asked.runner == "spark":
        from reput.spark import session
        from reput.spark.sql import arrow_rows, query_sql_on_spark

        source = job.Source(path=asked.store, schemas=asked.schemas, damaged=asked.damaged, **bounds)
        undecoded: dict[str, Accumulator[int]] = {}
        frame = query_sql_on_spark(session(asked.master or "local[*]"), source, asked.sql, undecoded)
        reader = arrow_rows(frame if asked.max_num is None else frame.limit(asked.max_num), folder)

        def findings() -> list[str]:
            texts = [job.undecoded_finding(topic) for topic, bodies in undecoded.items() if bodies.value]
            return texts + source.damages()

        return reader, findings
    source = job.Source(
        path=asked.store, schemas=asked.schemas, damaged=asked.damaged, kept=kept, progress=progress, **bounds
    )  # fmt: skip
    rows = job.query_sql(source, asked.sql)
    return rows.reader, lambda: rows.findings


@contextmanager
def _no_warnings() -> Iterator[None]:
    """Silence warnings of the log's readers, each of which warns of the same damage: findings report it once."""
    logger = logging.getLogger("reput.log")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _report(
    asked: Question, rows: SeenRows, stored: StoredOverTime | None, findings: Sequence[str], seconds: float
) -> Report:
    """Report: the question, the first rows, and a plot of when messages were stored, or bars of a short answer."""
    from reput.jobs.report.report import Report
    from reput.jobs.report.table import Table

    shown = rows.cells[:_REPORTED_ROWS]
    name, total = ("rows", None) if len(shown) == rows.rows else ("the first rows", rows.rows)
    plots = [] if stored is None else stored.plots()
    return Report(
        title=f"Query of {asked.store}",
        facts={**asked.facts, "rows": rows.rows, "seconds": seconds},
        tables=[Table(name, rows.schema.names, shown, total)] if shown else [],
        plots=plots or _bars(rows, shown),
        findings=findings,
        paths={"store": asked.store},
    )


def _bars(rows: SeenRows, shown: Sequence[Sequence[str | int | float]]) -> list[Plot]:
    """Plot with a bar for each row of a complete answer: the first column is its name, the first number its length."""
    import pyarrow as pa

    from reput.jobs.report.plot import Plot, Series

    numbers = [
        index
        for index, field in enumerate(rows.schema)
        if index
        and (pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_decimal(field.type))
    ]
    if not numbers or len(shown) < 2 or len(shown) < rows.rows:
        return []
    (name, length), column = (rows.schema.names[0], rows.schema.names[numbers[0]]), numbers[0]
    labels = [str(row[0]) for row in shown]
    bars = Series(length, labels, [_number(row[column]) for row in shown], topics=labels if name == "topic" else None)
    return [Plot("bar", f"{length} by {name}", name, length, [bars])]


def _number(cell: str | float) -> float | None:
    """Number of a cell; None for an empty cell."""
    try:
        return float(cell)
    except ValueError:
        return None
