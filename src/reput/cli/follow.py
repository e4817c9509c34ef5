"""`reput follow`: keep a store equal to the log of a running broker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from reput.cli import interrupts
from reput.cli.open_store import open_store
from reput.cli.options import Json, Settings, check_path, store_config
from reput.cli.output import write_fields, write_json, write_status

if TYPE_CHECKING:
    from reput.replication.follower import FollowState

_LINE_EVERY_S = 1.0
_FILE_SIZE = "mappedFileSizeCommitLog"


def follow(
    store: Annotated[
        str, typer.Argument(metavar="STORE", callback=check_path, help="The store to write; it may be new.")
    ],
    *,
    master: Annotated[
        str, typer.Option("--master", metavar="HOST:PORT", help="The broker to follow, a master or a slave.")
    ],
    begin: Annotated[
        Literal["oldest", "newest"],
        typer.Option("--from", help="Where a new store begins: with the broker's oldest log file, or its newest."),
    ] = "oldest",
    once: Annotated[
        bool, typer.Option("--once", help="End when all is there that the broker had at the start.")
    ] = False,
    acknowledge: Annotated[
        bool,
        typer.Option("--acknowledge", help="Count as a slave: a master that waits for slaves waits for this one, too."),
    ] = False,
    settings: Settings,
    as_json: Json = False,
) -> int:
    """Follow a running broker: keep a store whose log is equal to the broker's, byte for byte.

    The broker, RocketMQ's or reput's, sends its log as it does to a slave, and knows nothing else of it: no consumer
    group, no load on its consumers, and by default no acknowledgement, so no send waits for this copy. Each record is
    proven before it can be read; queues and index are made here. All other commands work on the store meanwhile, also
    Spark's streams. Ctrl-C ends it; the same command goes on where it ended, however it ended.

    Where the broker's log and the store's do not go together, the command ends with an error, and nothing was appended:
    the store has more than the broker, or other bytes; what is next was deleted there; its files have another size.

    Topics are copied, too, offsets of groups are not. A line on stderr shows once a second how far it is.

    Examples:
      reput follow /tmp/copy --master localhost:10911
      reput follow /tmp/copy --master localhost:10911 --from newest --once
    """
    import threading

    from reput.replication.follower import Follower

    stop = threading.Event()
    config = store_config([*settings, *_file_size(store, master, settings)], None)
    with open_store(store, config=config) as opened, interrupts.stopping(stop.set):
        follower = Follower(opened, master, begin=begin, acknowledges=acknowledge, on_state=_Watch())
        follower.run(stop, once=once)
        state = follower.state
        opened.wait_dispatched()
    fields = _fields(state)
    write_json(fields) if as_json else write_fields({name.replace("_", " "): value for name, value in fields.items()})
    return 0


def _file_size(store: str, master: str, settings: list[str]) -> list[str]:
    """The setting that gives a new store log files of the master's size."""
    from reput.files import DISK
    from reput.replication.master import Master
    from reput.store.recovery.listing import is_fresh

    if not is_fresh(DISK, store) or any(setting.partition("=")[0] == _FILE_SIZE for setting in settings):
        return []
    asked = Master(master)
    try:
        size = asked.config().get(_FILE_SIZE)
    finally:
        asked.close()
    return [] if size is None else [f"{_FILE_SIZE}={size}"]


def _fields(state: FollowState) -> dict[str, Any]:
    return {
        "followed_to": state.end_offset,
        "lag_bytes": state.lag_bytes,
        "lag_ms": state.lag_ms,
        "connected": state.is_connected,
    }


class _Watch:
    """Shows on stderr how far the follower is."""

    def __init__(self) -> None:
        self._next_at = 0.0

    def __call__(self, state: FollowState) -> None:
        if time.monotonic() >= self._next_at:
            write_status(_fields(state))
            self._next_at = time.monotonic() + _LINE_EVERY_S
