"""`reput tail`: print the messages of a topic of a store as they come."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from reput.cli import interrupts
from reput.cli.display.message_rows import RowFormat, writer_of
from reput.cli.display.output import write_error
from reput.cli.open_store import open_store
from reput.cli.options import CommitLogPath, Store, check_path, parse_start, reading_config
from reput.log.directory import StoreDirectory
from reput.log.unknown_topics import unknown_topics, without_warnings

if TYPE_CHECKING:
    from reput.store.message_store import MessageStore

#: Messages that are written at once, and seconds of one wait for them.
_MOST, _POLL_S = 1000, 1.0


def tail(
    store: Store,
    *,
    topic: Annotated[str, typer.Option("--topic", help="The topic; it may come later.")],
    queue_ids: Annotated[
        list[int] | None, typer.Option("--queue-id", min=0, metavar="N", help="Only this queue; may be repeated.")
    ] = None,
    tags: Annotated[
        str | None, typer.Option("--tags", metavar="'A || B'", help="Only messages with one of these tags.")
    ] = None,
    start: Annotated[
        str,
        typer.Option("--from", metavar="first|last|TIME", help="First message in a queue without an offset."),
    ] = "last",
    group: Annotated[
        str | None,
        typer.Option("--group", metavar="GROUP", help="Go on at the offsets of this group in the file of --offsets."),
    ] = None,
    offsets: Annotated[
        str | None,
        typer.Option(
            "--offsets", metavar="FILE", callback=check_path, help="With --group: keep its offsets in this file."
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", min=0, metavar="SECONDS", help="End when nothing has come for so long."),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", min=1, metavar="N", help="Maximum number of messages.")
    ] = None,
    format: Annotated[
        RowFormat, typer.Option("--format", help="A body a line, or all fields of a message as JSON or CSV.")
    ] = "lines",
    commit_log_path: CommitLogPath = None,
) -> int:
    """Print the messages of a topic as they come, until Ctrl-C.

    Another process may write the store, a broker too: no lock is taken, and nothing in it is changed. Messages of one
    queue come in their order. With --group and --offsets the same command goes on after the last message that it has
    printed.

    Examples:
      reput tail /tmp/store --topic orders
      reput tail /tmp/store --topic orders --from first --timeout 1 --format csv
      reput tail /tmp/store --topic orders --group billing --offsets /tmp/billing.json --format json
    """
    write, written = writer_of(format, sys.stdout.buffer), 0
    with interrupts.until_stopped(unless=timeout is not None or count is not None):
        with (
            open_store(store, read_only=True, config=reading_config(commit_log_path)) as opened,
            _unknown_told(opened, topic),
            opened.tail(
                topic, group=group, offsets=offsets, queue_ids=queue_ids, tags=tags, consume_from=parse_start(start)
            ) as messages,
        ):
            last_s = time.monotonic()
            while count is None or written < count:
                wait_s = _POLL_S if timeout is None else min(_POLL_S, last_s + timeout - time.monotonic())
                found = messages.poll(_MOST if count is None else min(_MOST, count - written), max(wait_s, 0))
                if found:
                    write(found)
                    written, last_s = written + len(found), time.monotonic()
                elif wait_s <= 0:
                    break
        if not written:
            has_passed_over = group is None and parse_start(start) == "last" and any(messages.positions.values())
            hint = f"`reput info {store}` shows the topics that are there"
            if has_passed_over:
                hint = "`--from first` shows those that were there before"
            write_error(f"no message of topic {topic!r} has come; {hint}")
    return 0


@contextmanager
def _unknown_told(opened: MessageStore, topic: str) -> Iterator[None]:
    """Report a topic without queues on stderr, once."""
    for hint in unknown_topics([topic], StoreDirectory(opened.path)):
        write_error(f"{hint}; messages of {topic!r} are waited for")
    with without_warnings():
        yield
