"""`reput top`: watch a store that another process has open: rates of topics, and lags of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from reput.cli import interrupts
from reput.cli.display.output import is_terminal, live_screen, write_json
from reput.cli.index_numbers import IndexNumbers, index_numbers
from reput.cli.options import CommitLogPath, Json, Store, reading_config

if TYPE_CHECKING:
    from rich.console import RenderableType

    from reput.cli.display.output import Screen
    from reput.store.watch import Look, StoreWatch


def top(
    store: Store,
    *,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0, help="Time between two looks at the store.")
    ] = 2.0,
    once: Annotated[
        bool, typer.Option("--once", help="Show one screen after two looks, and end; the default without a terminal.")
    ] = False,
    commit_log_path: CommitLogPath = None,
    settings: IndexNumbers,
    as_json: Json = False,
) -> None:
    """Watch a store: topics by messages a second, groups by their lag, log, disk.

    The store may be written by another process: no lock is taken, and nothing is changed. A reader sees what the writer
    has handed to the system. Rates are of the queues and of the log; a slow dispatch shows as `dispatch lag`. `time
    lag` is the time from the first message that a group lacks to the last one of the store, and not to now. Only the
    writing process knows counts of gets and latencies (MessageStore.runtime_info). --json prints one object a look; the
    rates of the first look are null. q or Ctrl-C ends.

    Examples:
      reput top /tmp/store --interval 0.5
      reput top /tmp/store --once --interval 0.1 --json
    """
    from reput.store.watch import StoreWatch

    once = once or not (as_json or is_terminal())
    watch = StoreWatch(store, reading_config(commit_log_path, numbers=index_numbers(settings)))
    with interrupts.until_stopped(unless=once), live_screen(is_shown=not (once or as_json)) as screen:
        before, look = None, watch.look()
        while True:
            if as_json:
                write_json(_object(before, look))
            elif not once or before is not None:
                screen.show(_drawn(watch, before, look, screen))
            if (once and before is not None) or screen.wait(interval):
                break
            before, look = look, watch.look()


def _drawn(watch: StoreWatch, before: Look | None, look: Look, screen: Screen) -> RenderableType:
    from reput.cli.display.screen import draw
    from reput.store.watch import bytes_per_second, per_second

    rates = per_second(before, look) if before is not None else None
    log_rate = bytes_per_second(before, look) if before is not None else None
    return draw(watch.path, state_text(watch.path), look.info, rates, log_rate, screen.width, screen.height)


def _object(before: Look | None, look: Look) -> dict[str, object]:
    from reput.store.watch import bytes_per_second, per_second

    return {
        "messages_per_second": None if before is None else per_second(before, look),
        "bytes_per_second": None if before is None else bytes_per_second(before, look),
        "runtime_info": look.info.to_dict(),
    }


def state_text(path: str) -> str:
    """Text about the process that has a store open, or about its last exit."""
    from reput.cli.commands.info import lock_holder, open_text
    from reput.log.directory import StoreDirectory

    directory = StoreDirectory(path)
    holder = lock_holder(directory)
    if holder is not None:
        return open_text(holder)
    return "its writer was killed; the next one recovers it" if directory.was_killed else "closed cleanly"
