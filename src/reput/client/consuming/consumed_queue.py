"""ConsumedQueue: one queue of a push consumer, pulled as fast as its messages are handled."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from reput.client.consuming.cached_messages import CachedMessages
from reput.client.consuming.consume_statistics import ConsumeStatistics
from reput.client.consuming.consumer_group import ConsumerGroup
from reput.client.consuming.offset_store import OffsetStore, persist_or_tell
from reput.client.consuming.process_queue import ProcessQueue, tell_moved
from reput.client.instance.message_client_ext import MessageClientExt
from reput.client.instance.peer_log import peers
from reput.config.arguments import MOST_INT, check_whole
from reput.errors import ReputError
from reput.remoting.queue_tables import QueueKey

#: A pull that failed is tried again after this many seconds (`pullTimeDelayMillsWhenException`).
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
        for name in ("count", "bytes"):
            check_whole(f"limits: {name}", getattr(self, name), 1)
        check_whole("limits: batch", self.batch, 1, MOST_INT)
        if self.span is not None:
            check_whole("limits: span", self.span, 1)


class ConsumeMessageService(Protocol):
    """Service that handles the messages of a push consumer's queues (`ConsumeMessageService`)."""

    async def lock(self, one: ConsumedQueue) -> None:
        """Return when this member may handle a queue; raises RemotingError if its broker does not tell."""

    def take(self, one: ConsumedQueue, messages: list[MessageClientExt]) -> None:
        """Handle messages of a queue soon."""

    async def ended(self, one: ConsumedQueue) -> None:
        """Return when another member may have a queue that is dropped."""

    async def unlock(self, one: ConsumedQueue) -> None:
        """Let another member have a queue."""


class ConsumedQueue(ProcessQueue):
    """One queue, from the day it is wanted until nobody works on it.

    One task takes its steps, so none overtakes another one: the lock, the offset to begin at, pulls; once the queue is
    dropped, the end of its handlers, the commit, the end of the lock; and again if it is wanted by then.

    Args:
        group: Asks the broker.
        queue: Its key.
        offsets: Keeps how far the group is.
        service: Handles its messages.
        limits: Of what is pulled ahead.
        statistics: Counts each pull.

    Attributes:
        messages: Those that are not handled yet.
        last_pull_ms, last_consume_ms: When it was pulled and handled last, in ms since 1970 UTC; 0 for never.
        is_dropped: No handler of its messages begins: it is another member's, or goes on at another offset.
    """

    def __init__(
        self,
        group: ConsumerGroup,
        queue: QueueKey,
        offsets: OffsetStore,
        service: ConsumeMessageService,
        limits: PullLimits,
        statistics: ConsumeStatistics,
    ) -> None:
        super().__init__(queue)
        self.messages = CachedMessages()
        self.last_pull_ms = self.last_consume_ms = 0
        self._group = group
        self._offsets = offsets
        self._service = service
        self._limits = limits
        self._statistics = statistics
        self._moved_to: int | None = None
        self.is_dropped = True
        self._room = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._is_closed = False

    def want(self) -> None:
        """As in `ProcessQueue`; it begins when its end before that is over."""
        super().want()
        if self._running is None:
            self._running = self._group.client.spawn(self._run())

    def drop(self) -> None:
        """As in `ProcessQueue`; what its handlers do until they end is committed."""
        self._moved_to, self.is_dropped = None, True
        super().drop()

    def move(self, offset: int) -> None:
        """As in `ProcessQueue`; what was pulled before says nothing any more. It stays locked."""
        super().move(offset)
        self._moved_to, self.is_dropped = offset, True
        self.messages = CachedMessages()
        self.stop()

    def close(self) -> None:
        """Pull no more, whatever comes: the consumer is closed, and commits and unlocks all its queues at once."""
        self._is_closed = True
        self.stop()

    def holds(self, message: MessageClientExt) -> bool:
        """Whether it counts what becomes of a message: the queue was not dropped or moved since its pull."""
        return not self.is_dropped and message in self.messages

    def done(self, message: MessageClientExt) -> None:
        """A message is handled, or will come again as another one; nothing for one of before a move."""
        if not self.messages.remove(message):
            return
        self.last_consume_ms = self._group.client.now_ms()
        if not self.is_dropped:
            self._keep_offset()
        self._room.set()

    def _keep_offset(self) -> None:
        """Count what is handled by now."""
        offset = self.messages.commit_offset
        if offset is not None:
            self.offset = offset

    async def _run(self) -> None:
        while self._goes_on():
            await asyncio.wait([self._begin()])
            if self._is_closed:
                break
            if not self.is_dropped:  # an error of ours, which is in the log, has ended it, and not `stop`
                self.is_dropped = True
                await asyncio.sleep(_AGAIN_S)
            await self._service.ended(self)
            if self._moved_to is None or not self.is_wanted:
                await self._leave()
            self.messages = CachedMessages()
        self._running = self.pulling = None
        if not (self._is_closed or self._group.is_broadcasting or self.is_wanted):  # a close unlocks it, and commits
            self._group.queues.remove(self)

    def _goes_on(self) -> bool:
        return self.is_wanted and not self._is_closed

    def _begin(self) -> asyncio.Task[None]:
        """Begin to pull from where the queue was moved to, else from where the group is."""
        offset, self._moved_to, self.is_dropped = self._moved_to, None, False
        self.pulling = self._group.client.spawn(self._pull_all(offset))
        return self.pulling

    async def _leave(self) -> None:
        """Commit what was handled, or the offset of a reset that comes meanwhile, and let another member have it."""
        self._keep_offset()
        moved_to: int | None = -1
        while moved_to != self._moved_to:
            moved_to = self._moved_to
            await persist_or_tell(self._offsets, self._group, self.queue.broker_name)
        if not self._group.is_broadcasting and self._moved_to is None:
            self.forget()
        await self._service.unlock(self)

    async def _pull_all(self, offset: int | None) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                await self._service.lock(self)
                if offset is None:
                    offset = await self._offsets.begin(self)
                await self._wait_for_room()
                self.last_pull_ms = self._group.client.now_ms()
                begun = loop.time()
                result = await self._group.pull(self, offset, count=self._limits.batch, commits=True)
            except ReputError as error:
                peers.failed("a pull failed", error, queue=self.queue, group=self._group.name)
                await self._group.client.routes.renew(self.queue.topic)
                await asyncio.sleep(_AGAIN_S)
                if self.offset is None:  # nothing was pulled yet: another member may have had it meanwhile
                    offset = None
                continue
            if result.is_moved:
                tell_moved(self.queue, offset, result.next_begin_offset)
                self.move(result.next_begin_offset)
                return
            messages = self._group.decode(result.body, self.queue)
            offset = result.next_begin_offset
            self.messages.put(messages, offset)
            self._keep_offset()
            if messages:
                self._statistics.pulled(messages[0].queue.topic, len(messages), loop.time() - begun)
                self._service.take(self, messages)

    async def _wait_for_room(self) -> None:
        while self._is_full():
            self._room.clear()
            await self._room.wait()

    def _is_full(self) -> bool:
        waiting, limits = self.messages, self._limits
        is_long = limits.span is not None and waiting.span > limits.span
        return len(waiting) >= limits.count or waiting.bytes >= limits.bytes or is_long
