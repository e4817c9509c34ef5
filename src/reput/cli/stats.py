"""`reput stats`: messages and bytes by topic, queue, tag, key, producer and time; latencies, disk use, damage."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from reput.cli.job_run import end_job, job_run
from reput.cli.options import (
    BrokerConf,
    CommitLogPath,
    Json,
    Master,
    ReportFile,
    RunnerName,
    Settings,
    Store,
    WorkDir,
    choose_runner,
    store_config,
)
from reput.cli.output import complain

if TYPE_CHECKING:
    import pyarrow as pa

    from reput.jobs.statistics.job import Statistics


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
    work_dir: WorkDir = None,
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
    from reput.jobs.statistics import job

    config = store_config(settings, broker_conf)
    dimensions: list[Any] = [name.strip() for name in by.split(",") if name.strip()]
    with job_run(store, report, commit_log_path=commit_log_path, shows_progress=not follow) as progress:
        if follow:
            from reput.cli.stats_follow import follow_stats

            follow_stats(
                store, work_dir, by=dimensions, bucket=bucket, time_of=time_of, latency=latency, watermark=watermark,
                commit_log_path=commit_log_path, master=master, available_now=available_now, as_json=as_json,
            )  # fmt: skip
            return 0
        result = job.statistics(
            store,
            runner=choose_runner(runner_name, master, store, commit_log_path),
            by=dimensions,
            bucket=bucket,
            time_of=time_of,
            latency=latency,
            largest=largest,
            check_crc=check_crc,
            config=config,
            commit_log_path=commit_log_path,
            work_dir=work_dir,
            progress=progress,
        )
    end_job(report_of(store, result), report, _json(result) if as_json else None)
    for finding in result.findings if as_json else ():
        complain(finding)
    return int(bool(result.findings))


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
