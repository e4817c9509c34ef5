"""`reput produce`: send what comes on standard input to a broker."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from reput.cli.admin_options import DEFAULT_NAMESRV, Config, Namesrv, ask
from reput.cli.display.message_rows import Format, RowFormat, read_messages, standard_input, with_defaults
from reput.cli.display.output import write_error, write_fields, write_json
from reput.cli.options import Json, Keys, Properties, parse_pairs
from reput.counts import counted
from reput.errors import MessageIllegalError, ReputError
from reput.extras import require_tables
from reput.remoting.timer_properties import NOT_IN_BATCHES

if TYPE_CHECKING:
    from reput.admin.admin_client import AdminClient
    from reput.client import Producer
    from reput.formats.message import Message

#: Messages of one request, and those that are read ahead.
_MOST, _MOST_AHEAD = 256, 4096


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic; it must be there.")],
    *,
    format: Annotated[
        Format,
        typer.Option("--format", help="A line is a body, or a JSON object; CSV with names of columns; a Parquet file."),
    ] = "lines",
    tags: Annotated[str | None, typer.Option("--tags", metavar="TAG", help="The tag, if a row has none.")] = None,
    keys: Keys,
    properties: Properties,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.1, metavar="N", help="Maximum number of messages a second.")
    ] = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    config: Config = None,
    as_json: Json = False,
) -> int:
    """Send messages to a broker: one for each line or row of standard input.

    What has come is sent at once, many messages in one request. JSON objects are as `reput consume --format json`
    and `reput get --json` print them: `body` or `body_base64`, and perhaps `tags`, `keys` and `properties`. CSV has
    the same columns; without the column `properties` each further column is a property. --tags, --key and --property
    count if a row says nothing else.
    Parquet has the columns of `reput consume --format parquet`; `body` must be there, and those options do not count.
    Shows how many messages are stored, also if one cannot be sent, or if an interrupt comes, then with how many may be
    stored beside them; and with the exit status 1 how many the broker could not make as safe as it is to, as no slave
    has them.

    Examples:
      seq 1000 | reput produce orders --tags paid --rate 100
      reput consume orders --format json | reput produce orders-copy --format json
      reput produce orders --format parquet < orders.parquet
    """
    from reput.formats.message import check_message

    added = parse_pairs(properties, "--property")
    if format == "parquet":
        require_tables("--format parquet")

    def messages(format: RowFormat) -> Iterator[Message]:
        for number, one in read_messages(standard_input(), format, topic):
            message = with_defaults(one, tags, keys, added)
            if not message.body:
                raise MessageIllegalError(f"line {number}: the body is empty, and brokers refuse such a message")
            try:
                check_message(message, max_message_size=sys.maxsize)  # a broker says what is too large for it
            except MessageIllegalError as error:
                raise MessageIllegalError(f"line {number}: {error}") from error
            yield message

    async def work(client: AdminClient) -> None:
        from reput.admin.topics import check_topic
        from reput.client import Producer

        await check_topic(client, topic)
        async with Producer(namesrv, group="reput-produce", credentials=client.credentials, tls=client.tls) as producer:
            sent.begin()
            if format == "parquet":
                await _produce_tables(producer, topic, sent)
            else:
                await _produce(producer, messages(format), rate, sent)

    sent = _Sent()
    try:
        _, status = ask(namesrv, config, work)
        status = max(status, int(bool(sent.less_safe)))
    finally:
        if sent.has_begun:
            fields = {"messages": sent.messages, "seconds": round(time.monotonic() - sent.since_s, 3)}
            less_safe = dict(sorted(sent.less_safe.items()))
            if as_json:
                write_json(fields | {"less_safe": less_safe, "unknown": sent.unknown})
            else:
                write_fields(fields)
            if sent.unknown:
                write_error(f"{counted(sent.unknown, 'message')} may be stored, too: the answer has not come")
            if less_safe:
                counts = ", ".join(f"{status} {count}" for status, count in less_safe.items())
                write_error(f"messages are stored, and less safe than their broker was to make them: {counts}")
    return status


class _Sent:
    """Counts of stored messages, of them less safe than asked, and the time of the first send (monotonic).

    `unknown`: messages that are sent, and whose answers have not come.
    """

    def __init__(self) -> None:
        self.messages = self.unknown = 0
        self.less_safe: Counter[str] = Counter()  # by status
        self.since_s = 0.0
        self.has_begun = False

    def begin(self) -> None:
        self.since_s, self.has_begun = time.monotonic(), True

    def add(self, statuses: Sequence[str]) -> None:
        """Messages are stored; each has a status."""
        self.messages += len(statuses)
        self.less_safe.update(status for status in statuses if status != "SEND_OK")


async def _produce(producer: Producer, messages: Iterable[Message], rate: float | None, sent: _Sent) -> None:
    ahead = _ReadAhead(messages)
    most = _MOST if rate is None else max(1, min(_MOST, int(rate / 10)))
    while some := await ahead.take(most):
        for is_timed, run in groupby(some, _is_timed):
            part = list(run)
            if is_timed:  # no broker looks for a time inside of a batch
                for message in part:
                    with _counting(sent, 1):
                        result = await producer.send(message)
                    sent.add([result.status])
            else:
                with _counting(sent, len(part)):
                    results = await producer.send_batch(part)
                sent.add([result.status for result in results])
        if rate is not None:
            await asyncio.sleep(max(0.0, sent.since_s + sent.messages / rate - time.monotonic()))


def _is_timed(message: Message) -> bool:
    return not NOT_IN_BATCHES.isdisjoint(message.properties or ())


async def _produce_tables(producer: Producer, topic: str, sent: _Sent) -> None:
    from reput.cli.display.message_tables import read_tables

    for table in read_tables(standard_input(), topic):
        with _counting(sent, len(table)):
            results = await producer.send_arrow(table)
        sent.add(results["status"].to_pylist())


@contextlib.contextmanager
def _counting(sent: _Sent, count: int) -> Iterator[None]:
    """Count what was stored before a send of `count` messages failed; after an interrupt nobody knows."""
    sent.unknown = count
    try:
        yield
    except ReputError as error:
        sent.messages += error.stored_messages
        sent.unknown = 0
        raise
    sent.unknown = 0


class _ReadAhead:
    """Messages that a thread reads: standard input may be a pipe that brings nothing for hours."""

    def __init__(self, messages: Iterable[Message]) -> None:
        self._messages: deque[Message] = deque()
        self._room = threading.Semaphore(_MOST_AHEAD)
        self._failure: BaseException | None = None
        self._is_read = self._is_told = False
        self._loop, self._arrived = asyncio.get_running_loop(), asyncio.Event()
        threading.Thread(target=self._read, args=(messages,), name="reput-stdin", daemon=True).start()

    async def take(self, most: int) -> list[Message]:
        """At most `most` messages, as soon as there is one; none at the end. Raises what reading them raises."""
        while True:
            self._arrived.clear()
            self._is_told, is_read = False, self._is_read
            taken = [self._messages.popleft() for _ in range(min(most, len(self._messages)))]
            if taken:
                self._room.release(len(taken))
                return taken
            if is_read:
                if self._failure is not None:
                    raise self._failure
                return []
            await self._arrived.wait()

    def _read(self, messages: Iterable[Message]) -> None:
        try:
            for message in messages:
                self._room.acquire()
                self._messages.append(message)
                self._tell()
        except BaseException as error:
            self._failure = error
        self._is_read = True
        self._tell()

    def _tell(self) -> None:
        if not self._is_told:
            self._is_told = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody takes anything any more
                self._loop.call_soon_threadsafe(self._arrived.set)
