"""PulledQueue: one queue of a pull consumer, which is pulled ahead."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

from reput.client.consuming.consumer_api import PullResult
from reput.client.consuming.consumer_group import ConsumerGroup
from reput.client.consuming.offset_store import OffsetStore
from reput.client.consuming.process_queue import ProcessQueue, tell_moved
from reput.client.instance.message_client_ext import MessageClientExt
from reput.client.instance.peer_log import peers
from reput.errors import MQBrokerError, ReputError
from reput.remoting.queue_tables import QueueKey

#: Messages of one pull, and the bytes of a queue that are pulled ahead.
_PULL_COUNT, _AHEAD_BYTES = 1024, 4 << 20
#: Pulls of a queue that are under way at a time: a broker gives 32 messages for each, by default.
_PULLS = 4
#: A pull that failed is tried again after this many seconds.
_AGAIN_S = 1.0


class PulledQueue(ProcessQueue):
    """One queue, from the day it is wanted until it is dropped, and what was pulled ahead of it.

    Args:
        group: Asks the broker.
        queue: Its key.
        offsets: Tells where the group is.
        arrived: Called when there is something to take.

    Attributes:
        position: Offset of the next message to take; None before the group's offset is known.
        error: Why the last pull failed, if a broker refused it.
        is_behind: The broker has more messages, and the next pull of them is under way.
        held_bytes: What is pulled and not taken.
    """

    def __init__(
        self,
        group: ConsumerGroup,
        queue: QueueKey,
        offsets: OffsetStore,
        arrived: Callable[[], None],
    ) -> None:
        super().__init__(queue)
        self.position: int | None = None
        self.error: MQBrokerError | None = None
        self.is_paused = False
        self.is_behind = False
        self.held_bytes = 0
        self._group = group
        self._offsets = offsets
        self._arrived = arrived
        self._begin: int | None = None  # what was taken since then is between it and the position
        self._pulled: deque[PullResult] = deque()
        self._messages: deque[MessageClientExt] = deque()
        self._after_messages = self._max_offset = 0
        self._wanted = asyncio.Event()
        self._wanted.set()

    def want(self) -> None:
        """As in `ProcessQueue`."""
        super().want()
        self.pulling = self._group.client.spawn(self._pull_all(None))

    def drop(self) -> None:
        """As in `ProcessQueue`; nothing is committed, nor what a commit that is under way has not sent yet."""
        super().drop()
        self.forget()
        self._group.queues.remove(self)

    def seek(self, offset: int | None) -> None:
        """Go on at an offset; None for where the group is. What was pulled ahead is dropped."""
        self.stop()
        self._go_to(offset)
        self.pulling = self._group.client.spawn(self._pull_all(offset))

    def _go_to(self, offset: int | None) -> None:
        self.position = self._begin = offset
        self._pulled.clear()
        self._messages.clear()
        self.held_bytes, self.is_behind = 0, False
        self._wanted.set()

    def handled_before(self, first: int | None) -> int | None:
        """The offset behind all that was taken and is handled; None before the group's offset is known.

        `first`: The first message that is not handled. It counts only if it was taken since the queue came to this
        member, or to its place: the offset of one that was taken before says nothing.
        """
        begin, position = self._begin, self.position
        if first is None or begin is None or position is None or not begin <= first < position:
            return position
        return first

    async def _pull_all(self, offset: int | None) -> None:
        steps = [0, 0]  # of the last two pulls
        while True:
            try:
                if offset is None:
                    offset = await self._offsets.begin(self)
                if self.position is None:
                    self.position = self._begin = offset
                await self._wanted.wait()
                async for result in self._pulls(offset, steps[-1] if steps[0] == steps[1] else 0):
                    if result.is_moved:
                        self._moved(offset, result.next_begin_offset)
                    self._keep(result)
                    steps = [steps[-1], result.next_begin_offset - offset]
                    offset = result.next_begin_offset
            except ReputError as error:
                await self._failed(error)

    async def _pulls(self, offset: int, step: int) -> AsyncIterator[PullResult]:
        """Results of pulls that follow each other from an offset on.

        The next pulls do not wait for the first one, if the last ones brought `step` offsets each: they begin where
        that lets expect. One that does not follow the one before is dropped.
        """
        offsets = [offset]
        if step > 0:  # before the end of the queue: there the broker would keep a pull until messages come
            offsets += range(offset + step, self._max_offset, step)[: _PULLS - 1]
        pulls = (self._group.pull(self, one, count=_PULL_COUNT) for one in offsets)
        for asked, result in zip(offsets, await asyncio.gather(*pulls, return_exceptions=True), strict=True):
            if isinstance(result, BaseException):
                raise result
            if asked != offset:
                break
            yield result
            offset = result.next_begin_offset

    def _moved(self, offset: int, to: int) -> None:
        """Go on elsewhere, as the broker says: back at once, forward behind what was pulled ahead."""
        tell_moved(self.queue, offset, to)
        if to < offset:
            self._go_to(to)
        self.move(to)

    async def _failed(self, error: ReputError) -> None:
        peers.failed("a pull failed", error, queue=self.queue, group=self._group.name)
        self.is_behind = False
        if isinstance(error, MQBrokerError):
            self.error = error
            self._arrived()
        else:
            await self._group.client.routes.renew(self.queue.topic)
        await asyncio.sleep(_AGAIN_S)

    def _keep(self, result: PullResult) -> None:
        self.error = None
        self._pulled.append(result)
        self.held_bytes += len(result.body)
        self._max_offset = result.max_offset
        self.is_behind = result.next_begin_offset < result.max_offset
        if self.held_bytes >= _AHEAD_BYTES:
            self._wanted.clear()
        self._arrived()

    # -- what is pulled

    def take_error(self) -> MQBrokerError | None:
        """Take the error of the last pull, if it was refused; the next call returns None."""
        error, self.error = self.error, None
        return error

    def take(self, count: int) -> list[MessageClientExt]:
        """At most `count` messages; the position is behind them."""
        taken: list[MessageClientExt] = []
        while len(taken) < count and (self._messages or self._pulled) and not self.is_paused:
            if not self._messages:
                result = self._next_pulled()
                self._messages.extend(self._group.decode(result.body, self.queue))
                self._after_messages = result.next_begin_offset
            while self._messages and len(taken) < count:
                taken.append(self._messages.popleft())
            self.position = self._messages[0].queue_offset if self._messages else self._after_messages
        return taken

    def take_bodies(self) -> list[bytes]:
        """The records of all that is pulled ahead, as pulls brought them; the position is behind them."""
        bodies: list[bytes] = []
        if self.is_paused:
            return bodies
        if self._messages:  # what `take` has left of a pull
            bodies.append(b"".join(one.raw for one in self._messages))
            self._messages.clear()
            self.position = self._after_messages
        while self._pulled:
            result = self._next_pulled()
            self.position = result.next_begin_offset
            if result.body:
                bodies.append(result.body)
        return bodies

    def _next_pulled(self) -> PullResult:
        result = self._pulled.popleft()
        self.held_bytes -= len(result.body)
        if self.held_bytes < _AHEAD_BYTES:
            self._wanted.set()
        return result
