"""Traces: tells the trace topic what became of messages, in the background (`AsyncTraceDispatcher`)."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from reput.client.instance.client_instance import ClientInstance
from reput.client.instance.message_client_ext import MessageClientExt
from reput.client.instance.peer_log import peers
from reput.client.instance.send_request import SendRequest
from reput.client.instance.send_result import SendResult, SendStatus
from reput.client.instance.trace_data import (
    ConsumedContext,
    ConsumeReturnType,
    EndedContext,
    MessageType,
    SentContext,
    TraceContext,
    TracedMessage,
)
from reput.errors import ReputError
from reput.events import Event
from reput.formats.message import Message
from reput.formats.properties import DELAY, MSG_REGION, TIMER_DELAY_MS, TRACE_ON
from reput.formats.record_layout import SysFlag

logger = logging.getLogger("reput.client")

DEFAULT_REGION = "DefaultRegion"
#: What happens within this many seconds goes into one message.
_PAUSE_S = 0.1
#: Contexts of one message, about the bytes of it, and of its keys, which are indexed.
_MOST_CONTEXTS, _MOST_SIZE, _MOST_KEYS_SIZE = 100, 128_000, 16_000
#: Contexts that wait; further ones are lost.
_MOST_WAITING = 10_000
#: How long a client that is closed waits for its last traces.
_CLOSE_S = 3.0


class TraceProducer(Protocol):
    """Sender of traces: a `Producer`."""

    async def send(self, message: Message) -> object:
        """Send a message; raises ReputError if that fails."""

    async def close(self) -> None:
        """End."""


class Traces:
    """The traces of one client. Nothing waits for them, and if they cannot be sent, only the log tells.

    Args:
        client: The client that is traced.
        producer: Sends the traces, over connections of its own; it is closed with them.
        topic: Where they go; messages of this topic are not traced.
        group: The client's group, without its namespace.
    """

    def __init__(self, client: ClientInstance, producer: TraceProducer, topic: str, group: str) -> None:
        self._client = client
        self._producer = producer
        self._topic = topic
        self._group = group
        self._waiting: deque[TraceContext] = deque()
        self._sending = 0  # contexts of the message that is on its way
        self._lost = 0
        self._wake = asyncio.Event()
        self._closing = asyncio.Event()
        self._task = client.spawn(self._send_service())
        client.before_close = self.close

    async def close(self) -> None:
        """Send what waits, within some seconds."""
        self._closing.set()
        self._wake.set()
        await asyncio.wait([self._task], timeout=_CLOSE_S)
        self._task.cancel()
        if lost := self._lost + self._sending + len(self._waiting):
            logger.warning(Event("traces are lost: the client is closed", traces=lost))
        await self._producer.close()

    # -- what happens

    def sent(
        self,
        messages: Sequence[Message],
        request: SendRequest,
        results: Sequence[SendResult],
        broker_address: str,
        cost_s: float,
    ) -> None:
        """Messages were sent by one request."""
        if not results[0].is_traced or messages[0].topic == self._topic:
            return
        kind = _type_of(request)
        cost_ms = int(cost_s * 1000)
        for message, result in zip(messages, results, strict=True):
            traced = TracedMessage(
                result.queue.topic, result.message_id, message.tags or None, " ".join(message.keys) or None
            )
            self._add(
                SentContext(
                    traced, self._client.now_ms() - cost_ms, result.region_id, self._group, broker_address,
                    len(message.body), cost_ms, kind, result.offset_message_id, result.status is SendStatus.SEND_OK,
                )
            )  # fmt: skip

    def consuming(self, message: MessageClientExt) -> ConsumedContext | None:
        """A handler is given a message; None if its broker wants no traces, and for a trace itself."""
        if message.properties.get(TRACE_ON) == "false" or message.topic == self._topic:
            return None
        region_id = message.properties.get(MSG_REGION, DEFAULT_REGION)
        context = ConsumedContext(
            _traced(message, message.message_id), self._client.now_ms(), region_id, self._group,
            self._client.unique_key(), message.reconsume_times,
        )  # fmt: skip
        self._add(context)
        return context

    def polled(self, message: MessageClientExt) -> None:
        """A message was given to who has polled; what becomes of it there, nobody tells."""
        before = self.consuming(message)
        if before is not None:
            self.consumed(before, ConsumeReturnType.SUCCESS)

    def consumed(self, before: ConsumedContext, return_type: ConsumeReturnType) -> None:
        """A handler has ended."""
        now_ms = self._client.now_ms()
        self._add(
            ConsumedContext(
                before.message, now_ms, before.region_id, self._group, before.request_id, before.retry_times,
                now_ms - before.timestamp, return_type,
            )
        )  # fmt: skip

    def ended(
        self,
        message: Message | MessageClientExt,
        message_id: str,
        broker_address: str,
        transaction_id: str,
        state: str,
        *,
        is_from_check: bool,
    ) -> None:
        """A broker has got the end of a transaction."""
        self._add(
            EndedContext(
                _traced(message, message_id), self._client.now_ms(), DEFAULT_REGION, self._group, broker_address,
                transaction_id, state, is_from_check,
            )
        )  # fmt: skip

    def _add(self, context: TraceContext) -> None:
        if len(self._waiting) >= _MOST_WAITING:
            self._lost += 1
        else:
            self._waiting.append(context)
            self._wake.set()

    # -- their messages

    async def _send_service(self) -> None:
        while not self._closing.is_set():
            await self._wake.wait()
            try:
                async with asyncio.timeout(_PAUSE_S):
                    await self._closing.wait()
            except TimeoutError:
                self._wake.clear()
            while self._waiting:
                await self._send()

    def _next_message(self) -> Message:
        """A message of the contexts that have waited longest."""
        texts: list[str] = []
        keys: dict[str, None] = {}
        size = keys_size = 0
        while self._waiting and len(texts) < _MOST_CONTEXTS and size < _MOST_SIZE and keys_size < _MOST_KEYS_SIZE:
            context = self._waiting.popleft()
            texts.append(context.encode())
            keys |= dict.fromkeys(context.message.index_keys)
            size += len(texts[-1])
            keys_size += sum(len(key) + 1 for key in context.message.index_keys)
        return Message(self._topic, "".join(texts).encode(), keys=tuple(keys))

    async def _send(self) -> None:
        if self._lost:
            logger.warning(Event("traces are lost: too many wait", traces=self._lost))
            self._lost = 0
        waiting = len(self._waiting)
        try:
            message = self._next_message()
            self._sending = waiting - len(self._waiting)
            await self._producer.send(message)
        except ReputError as error:
            peers.failed("traces are lost: they cannot be sent", error, topic=self._topic)
        except Exception:  # a bug, which is not to end all later traces
            logger.exception(Event("traces are lost", topic=self._topic))
        self._sending = 0


def _traced(message: Message | MessageClientExt, message_id: str) -> TracedMessage:
    return TracedMessage(message.topic, message_id, message.tags or None, " ".join(message.keys) or None)


def _type_of(request: SendRequest) -> MessageType:
    if request.sys_flag & SysFlag.TRANSACTION_PREPARED:
        return MessageType.TRANS_HALF
    names = {part.partition("\x01")[0] for part in request.properties.split("\x02")}
    return MessageType.DELAY if names & {DELAY, TIMER_DELAY_MS} else MessageType.NORMAL
