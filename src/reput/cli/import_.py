"""`reput import`: Parquet files or a Delta table into a store."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from reput.cli.job_run import end_job
from reput.cli.options import (
    BrokerConf,
    Json,
    Master,
    ReportFile,
    RunnerName,
    Settings,
    check_path,
    parse_list,
    store_config,
)
from reput.cli.output import complain, progress_bar
from reput.cli.start import begin_work
from reput.errors import ConfigError

if TYPE_CHECKING:
    from reput.jobs.lake.import_job import Import
    from reput.jobs.lake.source import LakeSource
    from reput.jobs.report.over_time import RateOverTime
    from reput.jobs.report.report import Report

#: Files that a report names.
_SHOWN_FILES = 40


def import_(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A Parquet file, a folder or pattern of such, or a Delta table.")
    ],
    store: Annotated[
        str, typer.Argument(metavar="STORE", callback=check_path, help="The store's directory; made where nothing is.")
    ],
    *,
    topic: Annotated[
        str | None, typer.Option("--topic", help="Of all messages; else the column topic, or folders topic=... .")
    ] = None,
    columns: Annotated[str | None, typer.Option("--columns", metavar="LIST", help="Only these columns.")] = None,
    bad_rows_path: Annotated[
        str | None,
        typer.Option(
            "--bad-rows-path", metavar="DIR", help="Put rows that RocketMQ would refuse there, instead of an error."
        ),
    ] = None,
    sink_id: Annotated[
        str | None,
        typer.Option("--sink-id", metavar="NAME", help="Under which the store remembers how far the import is."),
    ] = None,
    settings: Settings,
    broker_conf: BrokerConf = None,
    report: ReportFile = None,
    runner_name: RunnerName = "auto",
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Import messages from Parquet or Delta.

    Columns are those of an export: topic and body must be there, the store assigns offsets and store times anew. What
    is imported is on the disk, and in queues and index. A run that was killed is gone on with by the same command, each
    row comes once; a source that was changed since is refused.

    Examples:
      reput import /tmp/lake /tmp/copy
      reput import '/tmp/lake/messages/topic=orders/*/*.parquet' /tmp/again --topic orders-again
      reput import /tmp/lake /tmp/other --report /tmp/import.html
    """
    from reput.files import DISK
    from reput.jobs.lake.import_job import import_messages
    from reput.jobs.lake.source import open_source
    from reput.jobs.report.over_time import RateOverTime
    from reput.log.directory import check_outside
    from reput.spark.runner import choose_runner
    from reput.spark.write_options import check_sink_id
    from reput.store.sinks.import_sink import ImportSink

    name = sink_id or f"import-{hashlib.blake2b(os.path.abspath(source).encode(), digest_size=6).hexdigest()}"
    try:
        check_sink_id(name)
    except ValueError as error:
        raise ConfigError(f"--sink-id {name}: {error}") from None
    if report is not None:
        check_outside(report, store)
    config = store_config(settings, broker_conf)
    found = open_source(source, topic=topic, columns=parse_list(columns))
    total_bytes = sum(part.size for batch in found.batches for part in batch)
    begin_work()
    runner = choose_runner(runner_name, total_bytes=total_bytes, master=master)
    with (
        progress_bar() as progress,
        ImportSink(
            store,
            config,
            name,
            bad_rows_path=bad_rows_path,
            progress=progress,
            files=DISK,
        ) as sink,
    ):
        rate = RateOverTime()
        result = import_messages(found, sink, runner=runner, progress=progress, on_batch=rate.add)
    end_job(_report(source, store, found, result, rate), report, asdict(result) if as_json else None)
    if result.aside:
        complain(f"{result.aside} rows were put aside into {bad_rows_path}, each with the reason")


def _report(source: str, store: str, found: LakeSource, result: Import, rate: RateOverTime) -> Report:
    """What is in the store now, how fast it came, and the source's files: rows, bytes, and these by folder."""
    from reput.jobs.report.plot import Plot, Series
    from reput.jobs.report.report import Report
    from reput.jobs.report.table import Table

    rows, sizes, folders = Counter[str](), Counter[str](), Counter[str]()
    for part in (part for batch in found.batches for part in batch):
        rows[part.path] += part.rows
        sizes[part.path] += part.size
        folders[os.path.dirname(part.path)] += part.size
    root = os.path.commonpath(folders) if folders else ""
    shown = [(path, rows[path], size) for path, size in sizes.most_common(_SHOWN_FILES)]
    name = "files" if len(shown) == len(sizes) else f"the {len(shown)} largest of {len(sizes)} files"
    plots = rate.plots()
    if len(folders) > 1:
        labels = [folder.removeprefix(root).lstrip("/") or "." for folder in folders]
        sized = Series("bytes", labels, list(folders.values()))
        plots.append(Plot("treemap", "Source by folder", "folder", "bytes", [sized]))
    return Report(
        f"Import of {source} into {store}",
        facts={
            "messages": result.messages,
            "put aside": result.aside,
            "imported before": result.skipped,
            "bytes of the source": sizes.total(),
            "batches": result.batches,
            "seconds": result.seconds,
            "messages a second": round(result.messages / result.seconds),
        },
        tables=[Table(name, ("file", "rows", "bytes"), shown)] if shown else [],
        plots=plots,
    )
