"""`reput replay`: put the messages of a time range into another store, at their original pace."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from reput.cli import interrupts
from reput.cli.job_run import end_job, job_run
from reput.cli.options import (
    BrokerConf,
    CommitLogPath,
    Json,
    ReportFile,
    Settings,
    Store,
    StoredFrom,
    StoredUntil,
    Topics,
    check_path,
    check_times,
    parse_list,
    store_config,
)

if TYPE_CHECKING:
    from reput.jobs.report.over_time import RateOverTime, StoredOverTime
    from reput.jobs.report.report import Report
    from reput.store.sinks.replay import Replayed, ReplayedBatch


def _speed(text: str) -> float:
    """Parse a speed: `10x` as a number, `max` as infinity."""
    if text == "max":
        return float("inf")
    try:
        speed = float(text.removesuffix("x"))
    except ValueError:
        speed = 0
    if not 0 < speed < float("inf"):
        raise typer.BadParameter(f"{text!r} is no speed; write 1x, 10x, 0.5x, or max")
    return speed


def replay(
    store: Store,
    target: Annotated[
        str, typer.Argument(metavar="TARGET", callback=check_path, help="The store to write; a missing one is made.")
    ],
    *,
    topics: Topics = None,
    begin: StoredFrom = None,
    end: StoredUntil = None,
    speed: Annotated[
        float, typer.Option("--speed", metavar="SPEED", parser=_speed, help="10x: ten times the original pace; or max.")
    ] = "1x",  # type: ignore[assignment]  # parsed
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Name of the replay; a new name replays all anew.")
    ] = None,
    settings: Settings,
    broker_conf: BrokerConf = None,
    commit_log_path: CommitLogPath = None,
    report: ReportFile = None,
    as_json: Json = False,
) -> None:
    """Put messages of one store into another, with the gaps between their store times.

    Topics, queues, bodies, tags, keys, properties and born times are kept; TARGET assigns queue offsets and store
    times. TARGET keeps the position of a replay: after a stop or a kill the same command continues, and no message is
    put twice. --config and --set configure TARGET, which no other process may have open.

    See docs/jobs/replay.md.

    Examples:
      reput replay /tmp/store /tmp/replayed --topics orders --speed 1000x
      reput replay /tmp/store /tmp/replayed --begin 2026-01-01 --speed max --report /tmp/replay.html
    """
    from reput.files import DISK
    from reput.jobs.report.over_time import RateOverTime, StoredOverTime
    from reput.log.directory import check_outside
    from reput.store.sinks import replay as store_replay
    from reput.store.sinks.empty_store import no_empty_store

    check_times(begin, end)
    if report is not None:
        check_outside(report, target)
    config = store_config(settings, broker_conf)
    listed = parse_list(topics)
    pace = None if speed == float("inf") else speed
    with (
        interrupts.resumable(target),
        no_empty_store(target, config, DISK),
        job_run(store, report, commit_log_path=commit_log_path, topics=listed) as progress,
    ):
        rate, stored = RateOverTime(None if pace is None else "lag in seconds"), StoredOverTime()

        def watch(batch: ReplayedBatch) -> None:
            rate.add(batch.rows.num_rows, batch.lag_s)
            if report is not None:
                stored.add(batch.rows)

        result = store_replay.replay(
            store,
            target,
            topics=listed,
            begin=begin,
            end=end,
            speed=pace,
            name=name,
            config=config,
            commit_log_path=commit_log_path,
            progress=progress,
            on_batch=watch,
        )
    end_job(_report(store, target, result, rate, stored), report, asdict(result) if as_json else None)


def _report(store: str, target: str, result: Replayed, rate: RateOverTime, stored: StoredOverTime) -> Report:
    """Report: replayed messages, when they were stored in the source, and their rate."""
    from reput.jobs.report.report import Report

    facts = {name.replace("_", " "): value for name, value in asdict(result).items() if value is not None}
    facts["messages a second"] = round(result.messages / result.seconds) if result.seconds else 0
    return Report(
        f"Replay of {store} into {target}",
        facts,
        plots=[*stored.plots(), *rate.plots()],
        paths={"store": store, "target": target},
    )
