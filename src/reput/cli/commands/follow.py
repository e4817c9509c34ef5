"""`reput follow`: keep a store equal to the log of a running broker, or a store for each broker of a cluster."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from reput.cli import interrupts
from reput.cli.admin_options import Config, access
from reput.cli.display.output import write_error, write_fields, write_json, write_status
from reput.cli.open_store import open_store
from reput.cli.options import Json, Settings, check_path, store_config
from reput.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Event

    from reput.replication.follow_metrics import FollowMetrics
    from reput.replication.follower import Follower, FollowState
    from reput.replication.master import Master
    from reput.store.message_store import MessageStore
    from reput.transport.tls import ClientTls

_LINE_EVERY_S = 1.0


def follow(
    store: Annotated[
        str,
        typer.Argument(
            metavar="STORE", callback=check_path, help="The store to write, or a folder of stores; it may be new."
        ),
    ],
    *,
    master: Annotated[
        str | None, typer.Option("--master", metavar="HOST:PORT", help="The broker to follow, a master or a slave.")
    ] = None,
    namesrv: Annotated[
        str | None,
        typer.Option(
            "--namesrv",
            metavar="HOST:PORT",
            help="In place of --master: follow all brokers of a cluster, each into STORE/BROKER_NAME.",
        ),
    ] = None,
    begin: Annotated[
        Literal["oldest", "newest"],
        typer.Option("--from", help="First log file of a new store: the broker's oldest, or its newest."),
    ] = "oldest",
    once: Annotated[
        bool, typer.Option("--once", help="End when all is there that the broker had at the start.")
    ] = False,
    acknowledge: Annotated[
        bool,
        typer.Option("--acknowledge", help="Count as a slave: a master that waits for slaves waits for this one, too."),
    ] = False,
    bandwidth: Annotated[
        int | None,
        typer.Option("--bandwidth", min=64 << 10, metavar="BYTES", help="Bytes a second to read from a broker."),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option("--metrics-port", metavar="PORT", help="Serve the lag for Prometheus at 127.0.0.1; 0: any port."),
    ] = None,
    config: Config = None,
    settings: Settings,
    as_json: Json = False,
) -> int:
    """Follow a running broker: keep a store whose log is equal to the broker's, byte for byte.

    The broker, RocketMQ's or reput's, sends its log as it does to a slave, and knows nothing else of it: no consumer
    group, no load on its consumers, and by default no acknowledgement, so no send waits for this copy. Each record is
    proven before it can be read; queues and index are made here. All other commands work on the store meanwhile, also
    Spark's streams. Ctrl-C ends it; the same command goes on where it ended, however it ended.

    With --namesrv STORE is a folder with a store for each broker name: of its master, or while that is away, of a
    slave. Brokers that come later are followed, too.

    If the broker's log and the store's do not go together, the command ends with an error, and nothing was appended:
    the store has more than the broker, or other bytes; what is next was deleted there; its files have another size.
    With --namesrv the other brokers are followed on, and the exit status is 2 at the end.

    Topics are copied, too, offsets of groups are not. A line on stderr shows once a second how far it is. If the broker
    does not send its log, --once ends with an error after five tries, and at once if the broker refuses the user;
    without --once it is tried again until Ctrl-C.

    Examples:
      reput follow /tmp/copy --master localhost:10911
      reput follow /tmp/copy --master localhost:10911 --from newest --once
      reput follow /tmp/copies --namesrv localhost:9876 --metrics-port 9109
    """
    import threading

    from reput.replication.follower import Follower
    from reput.replication.master import Master

    if (master is None) == (namesrv is None):
        raise ConfigError("give --master or --namesrv")
    credentials, tls = access(config)
    stop = threading.Event()
    with ExitStack() as stack:
        metrics = _metrics(metrics_port, stack)

        def make(opened: MessageStore, address: str, on_state: Callable[[FollowState], None]) -> Follower:
            return Follower(
                opened, address, begin=begin, acknowledges=acknowledge, bandwidth=bandwidth, on_state=on_state,
                credentials=credentials, tls=tls,
            )  # fmt: skip

        def open_copy(path: str, address: str) -> MessageStore:
            _check_master(path, Master(address, credentials=credentials, tls=tls))
            return open_store(path, config=store_config(settings, None))

        stack.enter_context(interrupts.resumable(store))
        stack.enter_context(interrupts.until_stopped(stop.set, unless=once))
        if namesrv is not None:
            return _follow_all(store, namesrv, open_copy, make, stop, once, _Watch(metrics), as_json, tls)
        assert master is not None
        watch = _Watch(metrics)
        opened = stack.enter_context(open_copy(store, master))
        follower = make(opened, master, lambda state: watch(master, state))
        follower.run(stop, once=once)
        state = follower.state
        opened.wait_dispatched()
    _write(_end_fields(state), as_json)
    return 0


def _follow_all(
    folder: str,
    namesrv: str,
    open_copy: Callable[[str, str], MessageStore],
    make: Callable[[MessageStore, str, Callable[[FollowState], None]], Follower],
    stop: Event,
    once: bool,
    watch: _Watch,
    as_json: bool,
    tls: ClientTls | None,
) -> int:
    """Follow the brokers of a cluster; the exit status."""
    from reput.replication.followers import Followers

    followers = Followers(folder, namesrv.split(";"), open_copy, make, watch, tls)
    followers.run(stop, once=once)
    for name, state in sorted(followers.states.items()):
        _write({"broker": name, **_end_fields(state)}, as_json)
    for name, error in sorted(followers.failures.items()):
        write_error(f"{name}: {error}")
    return 2 if followers.failures else 0


def _metrics(port: int | None, stack: ExitStack) -> FollowMetrics | None:
    """The page of metrics, until the stack ends."""
    if port is None:
        return None
    from reput.extras import require
    from reput.replication.follow_metrics import FollowMetrics

    require("prometheus_client", "--metrics-port")
    metrics = FollowMetrics()
    address = metrics.serve(port)
    stack.callback(metrics.close)
    write_status({"metrics": f"http://{address}/metrics"})
    return metrics


def _check_master(store: str, master: Master) -> None:
    """Raise RemotingError if a store would be made for a master that cannot be asked."""
    from reput.files import DISK
    from reput.store.recovery.listing import is_fresh

    if is_fresh(DISK, os.path.abspath(store)):
        try:
            master.log()
        finally:
            master.close()


def _write(fields: dict[str, Any], as_json: bool) -> None:
    write_json(fields) if as_json else write_fields({name.replace("_", " "): value for name, value in fields.items()})


def _fields(state: FollowState) -> dict[str, Any]:
    lag_bytes, lag_ms = state.lag or (None, None)
    return {
        "followed_to": state.end_offset, "lag_bytes": lag_bytes, "lag_ms": lag_ms, "connected": state.is_connected,
    }  # fmt: skip


def _end_fields(state: FollowState) -> dict[str, Any]:
    """Progress of a follower as fields, also for its end, when it has closed its connection."""
    return {"followed_to": state.end_offset, "lag_bytes": state.lag_bytes, "lag_ms": state.lag_ms}


class _Watch:
    """Shows on stderr, and by metrics, how far the followers are."""

    def __init__(self, metrics: FollowMetrics | None) -> None:
        self._metrics = metrics
        self._next_at: dict[str, float] = {}

    def __call__(self, broker: str, state: FollowState) -> None:
        if self._metrics is not None:
            self._metrics.note(broker, state)
        if time.monotonic() >= self._next_at.get(broker, 0.0):
            write_status({"broker": broker, **_fields(state)})
            self._next_at[broker] = time.monotonic() + _LINE_EVERY_S
