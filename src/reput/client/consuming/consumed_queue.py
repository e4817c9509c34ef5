"""ConsumedQueue: pulls one queue of a push consumer, as fast as its messages are handled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from reput.client.consuming.consume_statistics import ConsumeStatistics
from reput.client.consuming.consumer_group import ConsumerGroup
from reput.client.consuming.offset_store import OffsetStore
from reput.client.consuming.process_queue import ProcessQueue
from reput.client.instance.message_client_ext import MessageClientExt
from reput.client.instance.peer_log import peers
from reput.config.arguments import check_whole
from reput.errors import ReputError
from reput.events import Event
from reput.remoting.queue_tables import QueueKey

logger = logging.getLogger("reput.client")

#: A pull that failed is tried again after so many seconds (`pullTimeDelayMillsWhenException`).
_AGAIN_S = 3.0


@dataclass(frozen=True, slots=True)
class PullLimits:
    """Limits of the pulls of a queue, until messages of it are handled (`DefaultMQPushConsumer`).

    Attributes:
        count: Messages of a queue that wait or are handled.
        bytes: Size of them.
        span: How far a slow message may be behind the last one; none for orderly consumers.
        batch: Messages of one pull.

    Raises ConfigError for one that is no whole number, 1 or more.
    """

    count: int = 1000
    bytes: int = 100 << 20
    span: int | None = 2000
    batch: int = 32

    def __post_init__(self) -> None:
        for name in ("count", "bytes", "batch"):
            check_whole(f"limits: {name}", getattr(self, name), 1)
        if self.span is not None:
            check_whole("limits: span", self.span, 1)


class ConsumedQueue:
    """One queue of this member.

    Args:
        group: Asks the broker.
        queue: The queue.
        offsets: Keeps how far the group is.
        begin: Tells where the group is in a queue, when this member may handle it.
        limits: Of what is pulled ahead.
        arrived: Takes new messages.
        moved: Called with the offset to go on at, where the broker says that it is another one.
        statistics: Is told of each pull.

    Attributes:
        process_queue: Messages that are not handled yet.
        last_pull_ms, last_consume_ms: When it was pulled and handled last, in ms since 1970 UTC; 0 for never.
    """

    def __init__(
        self,
        group: ConsumerGroup,
        queue: QueueKey,
        offsets: OffsetStore,
        begin: Callable[[QueueKey], Awaitable[int]],
        limits: PullLimits,
        arrived: Callable[[ConsumedQueue, list[MessageClientExt]], None],
        moved: Callable[[QueueKey, int], None],
        statistics: ConsumeStatistics,
    ) -> None:
        self.queue = queue
        self.process_queue = ProcessQueue()
        self._group = group
        self._offsets = offsets
        self._begin = begin
        self._limits = limits
        self._arrived = arrived
        self._moved = moved
        self._statistics = statistics
        self.last_pull_ms = self.last_consume_ms = 0
        self._room = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, offset: int | None = None, after: asyncio.Task[None] | None = None) -> None:
        """Begin to pull, at an offset, or where the group is; once a task has ended."""
        self._task = self._group.client.spawn(self._pull_all(offset, after))

    def stop(self) -> None:
        """Pull no more."""
        if self._task is not None:
            self._task.cancel()

    def drop(self) -> None:
        """The queue is another member's: pull no more, and let handlers that run change no offset."""
        self.process_queue.is_dropped = True
        self.stop()

    def done(self, message: MessageClientExt) -> None:
        """A message is handled, or will come again as another one."""
        process_queue = self.process_queue
        process_queue.remove(message)
        self.last_consume_ms = self._group.client.now_ms()
        if not process_queue.is_dropped:
            self.keep_offset()
        self._room.set()

    def keep_offset(self) -> None:
        """Count what is handled by now."""
        offset = self.process_queue.commit_offset
        if offset is not None:
            self._offsets.update(self.queue, offset)

    async def _pull_all(self, offset: int | None, after: asyncio.Task[None] | None) -> None:
        if after is not None:
            await asyncio.wait([after])
        loop = asyncio.get_running_loop()
        while True:
            try:
                if offset is None:
                    offset = await self._begin(self.queue)
                await self._wait_for_room()
                self.last_pull_ms = self._group.client.now_ms()
                begun = loop.time()
                result = await self._group.pull(
                    self.queue, offset, count=self._limits.batch, commit_offset=self._commit_offset()
                )
            except ReputError as error:
                peers.failed("a pull failed", error, queue=self.queue, group=self._group.name)
                await self._group.client.routes.renew(self.queue.topic)
                await asyncio.sleep(_AGAIN_S)
                continue
            if result.is_moved:
                logger.warning(Event("an offset is moved", queue=self.queue, was=offset, to=result.next_begin_offset))
                self._moved(self.queue, result.next_begin_offset)
                return
            messages = self._group.decode(result.body, self.queue)
            offset = result.next_begin_offset
            self.process_queue.put(messages, offset)
            self.keep_offset()
            if messages:
                self._statistics.pulled(messages[0].queue.topic, len(messages), loop.time() - begun)
                self._arrived(self, messages)

    def _commit_offset(self) -> int | None:
        """The offset that a pull tells the broker by the way."""
        return None if self._group.is_broadcasting else self._offsets.read(self.queue)

    async def _wait_for_room(self) -> None:
        while self._is_full():
            self._room.clear()
            await self._room.wait()

    def _is_full(self) -> bool:
        waiting, limits = self.process_queue, self._limits
        is_long = limits.span is not None and waiting.span > limits.span
        return len(waiting) >= limits.count or waiting.bytes >= limits.bytes or is_long
