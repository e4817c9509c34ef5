"""`reput consume`: print the messages of a topic."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from reput.cli import interrupts
from reput.cli.admin_options import DEFAULT_NAMESRV, Config, Namesrv, ask
from reput.cli.display.message_rows import Format, RowFormat, writer_of
from reput.cli.display.output import write_error
from reput.cli.options import parse_start
from reput.errors import MQClientError

if TYPE_CHECKING:
    from reput.admin.admin_client import AdminClient
    from reput.cli.commands.consumed_topic import ConsumedTopic
    from reput.client import PullConsumer
    from reput.client.instance.subscriptions import ConsumeFrom

#: Messages that are written at once, and seconds to wait for the first one.
_MOST, _POLL_S = 1000, 0.5
#: Seconds in which a reader that goes on has read what is being written.
_HELD_S = 1.0


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    *,
    group: Annotated[
        str | None,
        typer.Option("--group", metavar="GROUP", help="Go on at the offsets of this group, and commit them."),
    ] = None,
    tags: Annotated[
        str, typer.Option("--tags", metavar="'A || B'", help="Only messages with one of these tags; with --group.")
    ] = "*",
    start: Annotated[
        str, typer.Option("--from", metavar="first|last|TIME", help="First message in a queue without an offset.")
    ] = "first",
    follow: Annotated[bool, typer.Option("--follow", help="Wait for later messages, until Ctrl-C.")] = False,
    count: Annotated[
        int | None, typer.Option("--count", min=1, metavar="N", help="Maximum number of messages.")
    ] = None,
    format: Annotated[
        Format,
        typer.Option("--format", help="A body a line, or all fields of a message as JSON, CSV or Parquet."),
    ] = "lines",
    namesrv: Namesrv = DEFAULT_NAMESRV,
    config: Config = None,
) -> int:
    """Print the messages of a topic, in order within a queue.

    Ends at the last message that was there at the start; with --follow it goes on, and says who is away meanwhile.
    If the master of a queue is away, its slave gives the messages that it has. Queues that cannot be read to their
    ends are named on stderr, and the exit status is 2: nobody answers for them at the start, or nothing has come of
    them for 30 seconds.

    Without --group no broker keeps the offsets of this command. With it, the queues are shared with the group's other
    members, and offsets are committed once messages are printed: the messages of a command that was killed in between
    are printed again.

    Examples:
      reput consume orders --from 2026-11-23T16:52:00Z --format json
      reput consume orders --group billing --tags 'paid || shipped' --follow
      reput consume orders --format parquet > orders.parquet
    """
    from reput.cli.commands.consumed_topic import ConsumedTopic
    from reput.client import PullConsumer
    from reput.remoting.topic_validator import TOOLS_GROUP

    begin = parse_start(start)
    output = _Tables() if format == "parquet" else _Rows(format, count)

    async def work(client: AdminClient) -> tuple[int, int]:
        consumed = ConsumedTopic(client, topic)
        await consumed.ask_ends()
        consumed.tell_away()
        async with PullConsumer(
            namesrv, group=group or TOOLS_GROUP, topics=None if group is None else {topic: tags}, consume_from=begin,
            credentials=client.credentials, tls=client.tls,
        ) as consumer:  # fmt: skip
            if group is None:
                await _assign_all(consumer, consumed, begin, follow=follow)
            watching = asyncio.create_task(consumed.watch()) if follow else None
            while not output.is_full:
                if await output.take(consumer) and group is not None:
                    with suppress(MQClientError):  # a broker is away: the next commit has these offsets, too
                        await consumer.commit()
                if not follow and await consumed.is_over(consumer):
                    break
            if watching is not None:
                watching.cancel()
            await output.close()
            left = 0 if output.is_full else await consumed.tell_left()
            if group is not None:  # also past messages with other tags, of which nothing comes
                await consumer.commit()
            return output.written, left

    status = 0
    with interrupts.until_stopped(unless=not follow or count is not None):
        try:
            (written, left), silent = ask(namesrv, config, work)
        finally:
            if output.is_held:
                interrupts.end_unread()
        status = max(left, silent)
        if not (written or status):
            reader = f"from {start!r} on" if group is None else f"for group {group!r}"
            write_error(
                f"topic {topic!r} has no message to read {reader}; `reput admin topic {topic}` shows its offsets"
            )
    return status


class _Output:
    """Output to stdout by threads, as a pipe may be full for long.

    The threads are no pool's: at the end of a loop, and of Python, one would wait for them, though nobody reads.

    Attributes:
        written: Messages that were written.
        is_full: Whether no more are wanted.
        is_held: Whether the command was interrupted while the reader of a pipe stood still.
    """

    is_full = is_held = False
    written = 0

    async def _write(self, write: Callable[..., object], *arguments: object) -> None:
        """Write in a thread; an interrupt waits `_HELD_S` for it."""
        done: Future[None] = Future()

        def run() -> None:
            try:
                write(*arguments)
            except BaseException as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        threading.Thread(target=run, name="reput-stdout", daemon=True).start()
        waiting = asyncio.wrap_future(done)
        try:
            await asyncio.shield(waiting)
        except asyncio.CancelledError:
            await asyncio.wait([waiting], timeout=_HELD_S)
            self.is_held = not waiting.done()
            raise


class _Rows(_Output):
    """Messages that are written row by row."""

    def __init__(self, format: RowFormat, count: int | None) -> None:
        self._rows = writer_of(format, sys.stdout.buffer)
        self._count = count

    async def take(self, consumer: PullConsumer) -> int:
        """Write what has come; how many messages it were."""
        most = _MOST if self._count is None else min(_MOST, self._count - self.written)
        messages = await consumer.poll(most, _POLL_S)
        if messages:
            await self._write(self._rows, messages)
        self.written += len(messages)
        self.is_full = self.written == self._count
        return len(messages)

    async def close(self) -> None:
        """Each row was written whole."""


class _Tables(_Output):
    """Messages that are written as Parquet."""

    def __init__(self) -> None:
        from reput.cli.display.message_tables import TableWriter

        self._writer = TableWriter(sys.stdout.buffer)

    async def take(self, consumer: PullConsumer) -> int:
        """As that of rows."""
        table = await consumer.poll_arrow(_POLL_S)
        if len(table):
            await self._write(self._writer.write, table)
        self.written += len(table)
        return len(table)

    async def close(self) -> None:
        """Write the end of the file."""
        await self._write(self._writer.close)


async def _assign_all(consumer: PullConsumer, consumed: ConsumedTopic, begin: ConsumeFrom, *, follow: bool) -> None:
    """Take the queues of a topic; but for those for which nobody has answered, unless they are waited for."""
    all_queues = await consumer.queues(consumed.topic)
    queues = consumed.with_end(all_queues)
    consumer.assign(all_queues if follow else queues)
    for queue in queues:
        if begin == "first":
            await consumer.seek_to_begin(queue)
        elif begin == "last":
            await consumer.seek_to_end(queue)
        else:
            consumer.seek(queue, await consumer.offset_of_time(queue, begin))
