"""The client without asyncio: the same names and arguments, no `await`, no event loop to manage.

    from reput.client.sync import Producer

    with Producer("127.0.0.1:9876", group="shop") as producer:
        producer.send(Message("orders", b"..."))

Each object has an event loop of its own in a thread, and may be used from many threads at once.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, Unpack

import reput.client.consuming.pull_consumer as _pull_consumer
import reput.client.consuming.push_consumer as _push_consumer
import reput.client.producing.producer as _producer
from reput.client.instance.message_client_ext import MessageClientExt
from reput.client.instance.send_result import SendResult
from reput.client.options import ProducerOptions, PullConsumerOptions, PushConsumerOptions
from reput.client.program_errors import call_in_thread
from reput.config.arguments import check_function
from reput.errors import MQClientError
from reput.formats.message import Message
from reput.remoting.queue_tables import QueueKey

if TYPE_CHECKING:
    import pyarrow as pa

    from reput.client.consuming.message_handler import OnMessage
    from reput.client.consuming.tail import PullTail
    from reput.client.instance.subscriptions import MessageSelector
    from reput.client.producing.transactions import LocalTransactionState, TransactionSendResult

__all__ = ["Producer", "PullConsumer", "PushConsumer"]

#: A client that leaves waits for its brokers for 3 s.
_REST_S = 5.0
_T = TypeVar("_T")
_M = TypeVar("_M")


def _in_thread(name: str, function: Callable[[_M], _T | Awaitable[_T]]) -> Callable[[_M], Coroutine[Any, Any, _T]]:
    """A program's function, called in a thread: in the loop it would hold up this client, which it may wait for.

    Raises ConfigError for what is none, with the argument's name.
    """
    check_function(name, function)

    async def called(message: _M) -> _T:
        found = await asyncio.to_thread(call_in_thread, function, message)
        return await found if inspect.isawaitable(found) else found

    return called


async def _tell(work: Coroutine[Any, Any, _T], told: Future[_T], unwanted: Callable[[_T], object]) -> None:
    """Wait for a coroutine, and hand on how it has ended."""
    try:
        result = await work
    except asyncio.CancelledError:
        told.cancel()
        raise
    except BaseException as error:
        if told.set_running_or_notify_cancel():
            told.set_exception(error)
    else:
        if told.set_running_or_notify_cancel():
            told.set_result(result)
        else:
            unwanted(result)


async def _rest() -> None:
    """Let calls of other threads end, and what an interrupted call has to undo; end what takes longer."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        _, late = await asyncio.wait(left, timeout=_REST_S)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_default_executor()


class _Client(Protocol):
    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def __aexit__(self, *error: Any) -> None: ...


class _Face:
    """A client of asyncio, in a thread of its own between `start` and `close`."""

    def __init__(self, client: _Client) -> None:
        self._client = client
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = 0

    def start(self) -> None:
        """As `start` of the client of asyncio."""
        if self._loop is not None:
            raise MQClientError("this client is started already")
        self._process = os.getpid()
        loop = self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=loop.run_forever, name="reput-client", daemon=True)
        self._thread.start()
        try:
            self._run(self._client.start())
        except BaseException:
            self._end()
            raise

    def close(self) -> None:
        """As `close` of the client of asyncio. Closing again does nothing, nor does closing in a forked process.

        Nor does a close while the interpreter ends: the client's thread stands still by then.
        """
        self._close(self._client.close)

    def _close(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._loop is None or self._process != os.getpid() or sys.is_finalizing():
            return
        try:
            self._run(close())
        finally:
            self._end()

    def _end(self) -> None:
        loop, self._loop = self._loop, None
        assert loop is not None
        asyncio.run_coroutine_threadsafe(_rest(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        if self._thread is not None:
            self._thread.join()
        loop.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._close(lambda: self._client.__aexit__(*error))

    def _run(self, work: Coroutine[Any, Any, _T], unwanted: Callable[[_T], object] = lambda _: None) -> _T:
        """The result of a coroutine in the client's loop; it is cancelled if the caller is interrupted.

        `unwanted`: Called in the loop with a result that comes all the same, which nobody gets.
        """
        loop = self._loop
        if loop is None or self._process != os.getpid() or sys.is_finalizing():
            work.close()
            if sys.is_finalizing():
                raise MQClientError("this client's thread has ended, as Python ends: use it before")
            if loop is None:
                raise MQClientError("this client is not started, or closed: use it inside of `with`")
            raise MQClientError("this client was made before the process forked: make another one in this process")
        if self._thread is threading.current_thread():
            work.close()
            raise MQClientError(
                "a coroutine in this client's loop waits for the client, which waits for the loop: make it a plain "
                "function, or use the client of asyncio"
            )
        told: Future[_T] = Future()
        running = asyncio.run_coroutine_threadsafe(_tell(work, told, unwanted), loop)
        try:
            return told.result()
        except CancelledError:
            raise MQClientError("this client was closed while it was waited for") from None
        except BaseException:
            if told.cancel():
                running.cancel()
            elif told.exception() is None:  # it came while the caller was interrupted
                loop.call_soon_threadsafe(unwanted, told.result())
            raise

    def _call(self, function: Callable[..., _T], *arguments: Any) -> _T:
        """The result of a plain function that must run in the client's loop."""

        async def called() -> _T:
            return function(*arguments)

        return self._run(called())


class Producer(_Face):
    """Sends messages; see `reput.client.Producer`, whose arguments it takes."""

    _client: _producer.Producer

    def __init__(self, namesrv: str, *, group: str, **options: Unpack[ProducerOptions]) -> None:
        if (check := options.get("check_transaction")) is not None:
            options["check_transaction"] = _in_thread("check_transaction", check)
        super().__init__(_producer.Producer(namesrv, group=group, **options))

    def send(
        self,
        message: Message,
        *,
        sharding_key: str | None = None,
        queue: QueueKey | None = None,
        delay_ms: int | None = None,
        delay_level: int | None = None,
    ) -> SendResult:
        """Send a message, and return its place in a queue."""
        return self._run(
            self._client.send(
                message, sharding_key=sharding_key, queue=queue, delay_ms=delay_ms, delay_level=delay_level
            )
        )

    def send_batch(self, messages: Sequence[Message], *, queue: QueueKey | None = None) -> list[SendResult]:
        """Send messages of one topic in one request, or in a few."""
        return self._run(self._client.send_batch(messages, queue=queue))

    def send_arrow(self, rows: pa.Table | pa.RecordBatch) -> pa.Table:
        """Send the rows of a table as messages, and return the place of each."""
        return self._run(self._client.send_arrow(rows))

    def recall(self, topic: str, recall_handle: str | None) -> str:
        """Take back a delayed message; returns its id."""
        return self._run(self._client.recall(topic, recall_handle))

    def send_oneway(self, message: Message, *, sharding_key: str | None = None) -> None:
        """Send a message that no broker answers: it may be lost."""
        self._run(self._client.send_oneway(message, sharding_key=sharding_key))

    def send_in_transaction(
        self, message: Message, execute: Callable[[Message], LocalTransactionState]
    ) -> TransactionSendResult:
        """Send a message that consumers see only if a local transaction is committed; `execute` runs in a thread."""
        return self._run(self._client.send_in_transaction(message, _in_thread("execute", execute)))

    def request(self, message: Message, *, timeout: float = 3.0) -> Message:
        """Send a message to a consumer that replies to it, and return the reply."""
        return self._run(self._client.request(message, timeout=timeout))

    def reply(self, request: MessageClientExt, body: bytes) -> SendResult:
        """Reply to a message that a client has sent by `request`."""
        return self._run(self._client.reply(request, body))

    def queues(self, topic: str) -> tuple[QueueKey, ...]:
        """The queues of a topic that take messages."""
        return self._run(self._client.queues(topic))


class PushConsumer(_Face):
    """Calls a handler for each message, in threads; see `reput.client.PushConsumer`, whose arguments it takes."""

    _client: _push_consumer.PushConsumer

    def __init__(
        self,
        namesrv: str,
        *,
        group: str,
        topics: Mapping[str, str | MessageSelector],
        on_message: OnMessage,
        **options: Unpack[PushConsumerOptions],
    ) -> None:
        super().__init__(
            _push_consumer.PushConsumer(namesrv, group=group, topics=topics, on_message=on_message, **options)
        )

    @property
    def assignment(self) -> set[QueueKey]:
        """The queues that this consumer has now."""
        return self._call(lambda: self._client.assignment)


class PullConsumer(_Face):
    """Gives messages when it is asked for them; see `reput.client.PullConsumer`, whose arguments it takes."""

    _client: _pull_consumer.PullConsumer

    def __init__(self, namesrv: str, *, group: str, **options: Unpack[PullConsumerOptions]) -> None:
        super().__init__(_pull_consumer.PullConsumer(namesrv, group=group, **options))

    def poll(self, max_messages: int = 1000, timeout: float = 1.0) -> list[MessageClientExt]:
        """Messages that have come; none if none comes in time."""
        return self._run(self._client.poll(max_messages, timeout), self._client._give_back)

    def tail(self, timeout: float | None = None) -> Iterator[MessageClientExt]:
        """The messages of this consumer's queues one by one, as they come; what is handled is committed."""
        return self._told(self._call(self._client.tail, timeout))

    def _told(self, tail: PullTail) -> Iterator[MessageClientExt]:
        while not tail.must_wait or self._run(tail.advance()):
            yield tail.give()

    def poll_arrow(self, timeout: float = 1.0, *, columns: Sequence[str] | None = None) -> pa.Table:
        """All messages that have come as one Arrow table."""
        found = self._client._poll_table(timeout, columns)
        return self._run(found, lambda unwanted: self._client._go_back(unwanted[1]))[0]

    def commit(self, offsets: Mapping[QueueKey, int] | None = None) -> None:
        """Keep offsets at the brokers: those given, else those behind all that was polled."""
        self._run(self._client.commit(offsets))

    def committed(self, queue: QueueKey) -> int | None:
        """The group's offset in a queue; None for none."""
        return self._run(self._client.committed(queue))

    def position(self, queue: QueueKey) -> int | None:
        """The offset of the next message that `poll` gives; None before it is known."""
        return self._call(self._client.position, queue)

    @property
    def assignment(self) -> set[QueueKey]:
        """The queues that this consumer has now."""
        return self._call(lambda: self._client.assignment)

    def queues(self, topic: str) -> tuple[QueueKey, ...]:
        """All queues of a topic, to assign some."""
        return self._run(self._client.queues(topic))

    def assign(self, queues: Iterable[QueueKey]) -> None:
        """Take these queues and no others."""
        self._call(self._client.assign, queues)

    def pause(self, *queues: QueueKey) -> None:
        """Poll nothing of these queues until `resume`."""
        self._call(self._client.pause, *queues)

    def resume(self, *queues: QueueKey) -> None:
        """Poll these queues again."""
        self._call(self._client.resume, *queues)

    def seek(self, queue: QueueKey, offset: int) -> None:
        """Go on at an offset of a queue."""
        self._call(self._client.seek, queue, offset)

    def seek_to_begin(self, queue: QueueKey) -> None:
        """Go on at the first message of a queue."""
        self._run(self._client.seek_to_begin(queue))

    def seek_to_end(self, queue: QueueKey) -> None:
        """Go on behind the last message of a queue."""
        self._run(self._client.seek_to_end(queue))

    def offset_of_time(self, queue: QueueKey, moment: datetime) -> int:
        """The offset of the first message that was stored then or later."""
        return self._run(self._client.offset_of_time(queue, moment))
