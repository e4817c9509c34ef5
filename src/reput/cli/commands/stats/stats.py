"""`reput stats`: count messages and bytes by topic, queue, tag, key, producer and time; latencies, disk use, damage."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from reput.cli.display.output import write_error
from reput.cli.job_run import end_job, job_run
from reput.cli.options import (
    MAX_FINDINGS,
    BrokerConf,
    CommitLogPath,
    Json,
    Master,
    MaxFindings,
    ReportFile,
    RunnerName,
    Settings,
    Store,
    Topics,
    WorkDir,
    choose_runner,
    parse_list,
    store_config,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from reput.jobs.statistics.job import Statistics


def stats(
    store: Store,
    *,
    topics: Topics = None,
    by: Annotated[
        str, typer.Option("--by", metavar="LIST", help="Group by some of topic,queue,tag,key,host.")
    ] = "topic,queue,tag",
    bucket: Annotated[
        str | None, typer.Option("--bucket", metavar="WIDTH", help="Also group by time: 30s, 15m, 1h, 1d.")
    ] = None,
    time_of: Annotated[
        Literal["store", "born"], typer.Option("--time-of", help="Timestamp of the time bucket.")
    ] = "store",
    latency: Annotated[
        bool,
        typer.Option("--latency", help="Also show quantiles of the time from birth to store, by group."),
    ] = False,
    largest: Annotated[int, typer.Option("--largest", min=0, metavar="N", help="List the N largest bodies.")] = 10,
    check_crc: Annotated[
        bool, typer.Option("--crc", help="Read bodies, too: a body that does not fit its CRC is damage.")
    ] = False,
    report: ReportFile = None,
    work_dir: WorkDir = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", help="Also count new ones until Ctrl-C, on Spark; needs --bucket and --work-dir."),
    ] = False,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="With --follow: end when all stored messages are counted.")
    ] = False,
    watermark: Annotated[
        str, typer.Option("--watermark", metavar="TIME", help="With --follow: greatest lag of a message that counts.")
    ] = "10 minutes",
    settings: Settings,
    broker_conf: BrokerConf = None,
    commit_log_path: CommitLogPath = None,
    runner_name: RunnerName = "auto",
    master: Master = None,
    max_findings: MaxFindings = MAX_FINDINGS,
    as_json: Json = False,
) -> int:
    """Count messages and bytes by topic, queue, tag, key, producer host and time.

    Records count as stored: with their stored bytes, and an inner batch as one message. A message with several keys
    counts for each key. A record proves itself by its header, with --crc also by its body. Other bytes are reported as
    damage, do not count, and make the exit status 1. The times at which retention deletes files follow from
    fileReservedTime and deleteWhen in --config or --set. The store is not changed.

    With --topics only their messages count, and what consume queues prove to be of other topics is not read: damage
    there is not found.

    Latencies are exact below 256 ms; above, at most 0.8 % too long. A negative latency is of clocks that disagree.

    With --follow changed groups are printed repeatedly, a line each. --work-dir then holds the checkpoint, with which
    the command continues after a stop or a kill.

    See docs/jobs/stats.md.

    Examples:
      reput stats /tmp/store
      reput stats /tmp/store --by topic --bucket 1h --latency --report /tmp/report.html
      reput stats /tmp/store --by topic,key --largest 20 --json
      reput stats /tmp/store --topics orders --bucket 1h
      reput stats /tmp/store --by host --crc --set fileReservedTime=48
    """
    from reput.cli.commands.stats.report import report_of
    from reput.jobs.statistics import job

    config = store_config(settings, broker_conf)
    dimensions: list[Any] = [name.strip() for name in by.split(",") if name.strip()]
    listed = parse_list(topics)
    with job_run(store, report, commit_log_path=commit_log_path, topics=listed, shows_progress=not follow) as progress:
        if follow:
            from reput.cli.commands.stats.follow import follow_stats

            follow_stats(
                store, work_dir, topics=listed, by=dimensions, bucket=bucket, time_of=time_of, latency=latency,
                watermark=watermark, commit_log_path=commit_log_path, master=master, available_now=available_now,
                as_json=as_json,
            )  # fmt: skip
            return 0
        result = job.statistics(
            store,
            runner=choose_runner(runner_name, master, store, commit_log_path),
            topics=listed,
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
    end_job(report_of(store, result, max_findings), report, _json(result) if as_json else None)
    for finding in result.findings if as_json else ():
        write_error(finding)
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
