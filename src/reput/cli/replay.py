"""`reput replay`: the messages of a stretch of time into another store, at the pace at which they came."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from reput.cli.nothing_found import tell_unknown_topics
from reput.cli.options import (
    BrokerConf,
    CommitLogPath,
    Json,
    Settings,
    Store,
    check_times,
    parse_list,
    parse_time,
    store_config,
)
from reput.cli.output import progress_bar, write_fields, write_json
from reput.cli.start import begin_work


def _speed(text: str) -> float:
    """`10x` as a number, `max` as infinity."""
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
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The store to write; made where nothing is.")],
    *,
    topics: Annotated[
        str | None, typer.Option("--topics", metavar="LIST", help="Only these topics: orders,payments.")
    ] = None,
    begin: Annotated[
        int | None, typer.Option("--begin", metavar="TIME", parser=parse_time, help="Stored at this time or later.")
    ] = None,
    end: Annotated[
        int | None, typer.Option("--end", metavar="TIME", parser=parse_time, help="Stored at this time or earlier.")
    ] = None,
    speed: Annotated[
        float, typer.Option("--speed", metavar="SPEED", parser=_speed, help="10x: ten times as fast as they came; max.")
    ] = "1x",  # type: ignore[assignment]  # parsed
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Another name replays anew what was replayed before.")
    ] = None,
    settings: Settings,
    broker_conf: BrokerConf = None,
    commit_log_path: CommitLogPath = None,
    as_json: Json = False,
) -> None:
    """Put messages of one store into another, with the gaps between their store times.

    Topics, queues, bodies, tags, keys, properties and born times are kept; queue offsets and store times are those of
    TARGET. TARGET remembers how far a replay is: stopped or killed, the same command goes on there, and no message is
    put twice. --set and --broker-conf configure TARGET, which nobody else may have open.

    Examples:
      reput replay /tmp/store /tmp/replayed --topics orders --speed 1000x
      reput replay /tmp/store /tmp/replayed --begin 2026-01-01 --speed max --json
    """
    from reput.jobs.report import format_value
    from reput.log.directory import StoreDirectory
    from reput.store import replay as store_replay

    check_times(begin, end)
    config = store_config(settings, broker_conf)
    listed = parse_list(topics)
    tell_unknown_topics(StoreDirectory(store, commit_log_path=commit_log_path), listed)
    begin_work()
    with progress_bar() as progress:
        result = store_replay.replay(
            store,
            target,
            topics=listed,
            begin=begin,
            end=end,
            speed=None if speed == float("inf") else speed,
            name=name,
            config=config,
            commit_log_path=commit_log_path,
            progress=progress,
        )
    if as_json:
        write_json(asdict(result))
    else:
        write_fields({key.replace("_", " "): format_value(value) for key, value in asdict(result).items()})
