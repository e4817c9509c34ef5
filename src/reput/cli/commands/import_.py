"""`reput import`: put messages from files of Parquet, CSV or JSON lines, or a Delta table, into a store."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from reput.cli import interrupts
from reput.cli.display.output import progress_bar, write_error
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
from reput.cli.start import begin_work
from reput.counts import counted
from reput.errors import ConfigError

if TYPE_CHECKING:
    from reput.jobs.lake.import_job import Import
    from reput.jobs.lake.import_source import LakeSource
    from reput.jobs.report.over_time import RateOverTime
    from reput.jobs.report.report import Report

#: Limit of files that a report names.
_SHOWN_FILES = 40


def import_(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            callback=check_path,
            help="A file of Parquet, CSV or JSON lines, a folder or pattern of such, or a Delta table.",
        ),
    ],
    store: Annotated[
        str, typer.Argument(metavar="STORE", callback=check_path, help="The store's directory; a missing one is made.")
    ],
    *,
    topic: Annotated[
        str | None, typer.Option("--topic", help="Topic of all messages; else the column topic, or folders topic=... .")
    ] = None,
    columns: Annotated[str | None, typer.Option("--columns", metavar="LIST", help="Only these columns.")] = None,
    bad_rows_path: Annotated[
        str | None,
        typer.Option(
            "--bad-rows-path",
            metavar="DIR",
            callback=check_path,
            help="Put rows that RocketMQ would refuse aside, instead of an error.",
        ),
    ] = None,
    sink_id: Annotated[
        str | None,
        typer.Option("--sink-id", metavar="NAME", help="Name under which the store keeps the last batch's number."),
    ] = None,
    settings: Settings,
    broker_conf: BrokerConf = None,
    report: ReportFile = None,
    runner_name: RunnerName = "auto",
    master: Master = None,
    as_json: Json = False,
) -> int:
    """Import messages from Parquet, Delta, CSV or JSON lines.

    The columns are an export's; topic and body are required. Names of text end with .csv or .jsonl: CSV begins
    with names of columns, and JSON lines are as of `reput get --json`; a body may be in body_base64.

    The store assigns offsets and store times anew. Imported messages are on the disk, and in queues and index, when the
    command ends. After a kill the same command continues, and each row is imported once. A source that was changed
    meanwhile is refused, and so is a row that RocketMQ would refuse; with --bad-rows-path such rows are put aside, and
    the exit status is 1.

    Examples:
      reput import /tmp/lake /tmp/copy
      reput import '/tmp/lake/messages/topic=orders/*/*.parquet' /tmp/again --topic orders-again
      reput import /tmp/lake /tmp/other --report /tmp/import.html
    """
    from reput.files import DISK
    from reput.jobs.lake.import_job import import_messages
    from reput.jobs.lake.import_source import open_source, rejects_of
    from reput.jobs.report.over_time import RateOverTime
    from reput.log.directory import check_outside
    from reput.spark.runner import choose_runner
    from reput.spark.write_options import check_sink_id
    from reput.store.sinks.empty_store import no_empty_store
    from reput.store.sinks.import_sink import ImportSink

    name = sink_id or f"import-{hashlib.blake2b(os.path.abspath(source).encode(), digest_size=6).hexdigest()}"
    try:
        check_sink_id(name)
    except ValueError as error:
        raise ConfigError(f"--sink-id {name}: {error}") from None
    if report is not None:
        check_outside(report, store)
    config = store_config(settings, broker_conf)
    opened = open_source(source, topic=topic, columns=parse_list(columns))
    total_bytes = sum(part.size for batch in opened.batches for part in batch)
    begin_work()
    runner = choose_runner(runner_name, total_bytes=total_bytes, master=master)
    with (
        interrupts.resumable(store),
        progress_bar() as progress,
        no_empty_store(store, config, DISK),
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
        result = import_messages(opened, sink, runner=runner, progress=progress, on_batch=rate.add)
    end_job(_report(source, store, opened, result, rate), report, asdict(result) if as_json else None)
    if result.aside:
        rows = counted(result.aside, "row was", "rows were")
        write_error(f"{rows} put aside into {bad_rows_path}, each with the reason")
    if (rejects := rejects_of(source)) is not None:
        write_error(
            f"the messages that the export rejected, in {rejects}, are not among these: "
            f"reput import {rejects} {store} --columns topic,tags,keys,properties,body"
        )
    return int(bool(result.aside))


def _report(source: str, store: str, opened: LakeSource, result: Import, rate: RateOverTime) -> Report:
    """Report: imported messages, their rate, and the source's files with rows and bytes, also by folder."""
    from reput.jobs.report.plot import bars_by_size
    from reput.jobs.report.report import Report
    from reput.jobs.report.table import Table

    rows, sizes, folders = Counter[str](), Counter[str](), Counter[str]()
    for part in (part for batch in opened.batches for part in batch):
        rows[part.path] += part.rows
        sizes[part.path] += part.size
        folders[os.path.dirname(part.path)] += part.size
    root = os.path.commonpath(folders) if folders else ""
    shown = [(path, rows[path], size) for path, size in sizes.most_common(_SHOWN_FILES)]
    name, total = ("files", None) if len(shown) == len(sizes) else ("the largest files", len(sizes))
    plots = rate.plots()
    if len(folders) > 1:
        sized = {folder.removeprefix(root).lstrip("/") or ".": size for folder, size in folders.items()}
        plots.append(bars_by_size("Source by folder", "folder", sized))
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
        tables=[Table(name, ("file", "rows", "bytes"), shown, total)] if shown else [],
        plots=plots,
        paths={"source": source, "store": store},
    )
