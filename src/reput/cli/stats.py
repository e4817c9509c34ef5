"""`reput stats`: messages and bytes by topic, queue, tag, key, producer and time; latencies, disk use, damage."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from reput.cli.options import (
    BrokerConf,
    CommitLogPath,
    Json,
    Master,
    ReportFile,
    RunnerName,
    Settings,
    Store,
    choose_runner,
    store_config,
)
from reput.cli.output import complain, progress_bar, write_json, write_report
from reput.cli.start import begin_work

if TYPE_CHECKING:
    import pyarrow as pa

    from reput.jobs.statistics import Statistics


def stats(
    store: Store,
    *,
    by: Annotated[
        str, typer.Option("--by", metavar="LIST", help="What makes a group: some of topic,queue,tag,key,host.")
    ] = "topic,queue,tag",
    bucket: Annotated[
        str | None, typer.Option("--bucket", metavar="WIDTH", help="Also by time: 30s, 15m, 1h, 1d.")
    ] = None,
    time_of: Annotated[
        Literal["store", "born"], typer.Option("--time-of", help="Which timestamp makes the time bucket.")
    ] = "store",
    latency: Annotated[
        bool,
        typer.Option("--latency", help="Also how long messages took from birth to store: quantiles of each group."),
    ] = False,
    largest: Annotated[int, typer.Option("--largest", min=0, metavar="N", help="How many of the largest bodies.")] = 10,
    check_crc: Annotated[
        bool, typer.Option("--crc", help="Read bodies, too: one that is not that of its CRC is damage.")
    ] = False,
    report: ReportFile = None,
    work_dir: Annotated[
        str | None, typer.Option("--work-dir", metavar="DIR", help="Keep what is done here, to go on after a kill.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Count what comes, too, on Spark; needs --bucket and --work-dir.")
    ] = False,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="With --follow: end when what is there now is counted.")
    ] = False,
    watermark: Annotated[
        str, typer.Option("--watermark", metavar="TIME", help="With --follow: how much later than others one may come.")
    ] = "10 minutes",
    settings: Settings,
    broker_conf: BrokerConf = None,
    commit_log_path: CommitLogPath = None,
    runner_name: RunnerName = "auto",
    master: Master = None,
    as_json: Json = False,
) -> int:
    """Count messages and bytes by topic, queue, tag, key, producer host and time.

    What counts is the record as stored: its bytes, and a batch as one message; one with several keys counts for each.
    A record proves itself by its header, with --crc by its body too; what does not is told as damage, counted nowhere,
    and makes the exit status 1. When retention will delete is told by fileReservedTime and deleteWhen of --broker-conf
    or --set. Nothing of the store is changed.

    Latencies are exact below 256 ms, above at most 0.8 % too long; negative ones are of clocks that disagree.

    With --follow the groups that changed are printed, a line each, again and again; --work-dir then holds the
    checkpoint, with which the command goes on where it was stopped or killed. docs/jobs.md says more.

    Examples:
      reput stats /tmp/store
      reput stats /tmp/store --by topic --bucket 1h --latency --report /tmp/report.html
      reput stats /tmp/store --by topic,key --largest 20 --json
      reput stats /tmp/store --by host --crc --set fileReservedTime=48
    """
    from reput.cli.stats_report import report_of

    config = store_config(settings, broker_conf)
    _check_outside(store, commit_log_path, report, work_dir)
    begin_work()
    dimensions = [name.strip() for name in by.split(",") if name.strip()]
    if follow:
        from reput.cli.stats_follow import follow_stats

        follow_stats(
            store, work_dir, by=dimensions, bucket=bucket, time_of=time_of, latency=latency, watermark=watermark,
            commit_log_path=commit_log_path, master=master, available_now=available_now, as_json=as_json,
        )  # fmt: skip
        return 0
    with progress_bar() as progress:
        result = _run(
            store,
            work_dir,
            runner=choose_runner(runner_name, master, store, commit_log_path),
            by=dimensions,
            bucket=bucket,
            time_of=time_of,
            latency=latency,
            largest=largest,
            check_crc=check_crc,
            config=config,
            commit_log_path=commit_log_path,
            progress=progress,
        )
    shown = report_of(store, result)
    if report is not None:
        shown.write_html(report)
    if as_json:
        write_json(_json(result))
    else:
        write_report(shown)
    for finding in result.findings if as_json else ():
        complain(finding)
    return int(bool(result.findings))


def _check_outside(store: str, commit_log_path: str | None, *outputs: str | None) -> None:
    """Raises ConfigError where something would come to lie among the store's own files."""
    from reput.log.directory import StoreDirectory

    directory = StoreDirectory(store, commit_log_path=commit_log_path)
    for output in outputs:
        if output is not None:
            directory.check_output(output)


def _run(store: str, work_dir: str | None, **arguments: Any) -> Statistics:
    """The job; with a folder of its own it goes on where it was killed."""
    from reput.jobs.job_folder import JobFolder
    from reput.jobs.resuming import ResumingRunner
    from reput.jobs.statistics import statistics

    if work_dir is None:
        return statistics(store, **arguments)
    wanted = ("by", "bucket", "time_of", "latency", "largest", "check_crc", "commit_log_path")
    options = {"store": store, **{name: arguments[name] for name in wanted}}
    with JobFolder(work_dir, "stats", options) as folder:
        arguments["runner"] = ResumingRunner(arguments["runner"], folder)
        result = statistics(store, **arguments)
        folder.finish()
    return result


def _json(result: Statistics) -> dict[str, Any]:
    return {
        "messages": result.messages,
        "log_bytes": result.log_bytes,
        "seconds": result.seconds,
        "groups": _rows(result.table),
        "largest": _rows(result.largest),
        "topics": _rows(result.disk.topics),
        "files": _rows(result.disk.files),
        "findings": result.findings,
    }


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    return [{name: _plain(value) for name, value in row.items()} for row in table.to_pylist()]


def _plain(value: Any) -> Any:
    return round(value.timestamp() * 1000) if isinstance(value, datetime) else value
