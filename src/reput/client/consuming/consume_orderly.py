"""ConsumeOrderly: handles messages of each queue one after the other (`ConsumeMessageOrderlyService`)."""

from __future__ import annotations

import asyncio
import logging

from reput.client.consuming.consumed_queue import ConsumedQueue
from reput.client.consuming.consumer_group import ConsumerGroup
from reput.client.consuming.message_handler import MessageHandler
from reput.client.consuming.offset_store import OffsetStore
from reput.client.consuming.queue_locks import QueueLocks
from reput.client.instance.message_client_ext import MessageClientExt
from reput.client.instance.peer_log import peers
from reput.errors import ReputError
from reput.events import Event
from reput.remoting.queue_tables import QueueKey
from reput.remoting.send_headers import ConsumerSendMsgBackRequestHeader

logger = logging.getLogger("reput.client")

#: A message that failed is handled again after so many seconds (`suspendCurrentQueueTimeMillis`).
_AGAIN_S = 1.0
#: The delay level of a message that is a dead letter at once.
_DEAD_LETTER = -1


class ConsumeOrderly:
    """A task for each queue that has messages; a message that fails holds up those behind it.

    Args:
        group: Asks brokers.
        offsets: Keeps how far the group is.
        handler: Handles a message.
        concurrency: How many queues are handled at once.
        max_reconsume_times: How often a message is handled again, before it is a dead letter; None: until it succeeds.
    """

    def __init__(
        self,
        group: ConsumerGroup,
        offsets: OffsetStore,
        handler: MessageHandler,
        concurrency: int,
        max_reconsume_times: int | None,
    ) -> None:
        self._group = group
        self._offsets = offsets
        self._handler = handler
        self._max_reconsume_times = max_reconsume_times
        self._free = asyncio.Semaphore(concurrency)
        self._locks = None if group.is_broadcasting else QueueLocks(group)
        self._running: dict[ConsumedQueue, asyncio.Task[None]] = {}
        self._stopping = asyncio.Event()

    async def begin(self, queue: QueueKey) -> int:
        """Offset of the group in a queue, which is locked first; raises RemotingError if its broker returns none."""
        if self._locks is not None:
            await self._locks.lock(queue)
        return await self._offsets.begin(queue)

    def take(self, consumed: ConsumedQueue, messages: list[MessageClientExt]) -> None:
        """Handle messages soon, behind those of their queue that were taken before."""
        if consumed not in self._running and not self._stopping.is_set():
            self._running[consumed] = self._group.client.spawn(self._run(consumed))

    async def ended(self, consumed: ConsumedQueue) -> None:
        """Return when no handler works on a queue that is dropped: another member may have it then."""
        running = self._running.get(consumed)
        if running is not None:
            await asyncio.wait([running])

    def locked_s(self, queue: QueueKey) -> float | None:
        """Seconds since a queue was locked; None if it is not locked."""
        return None if self._locks is None else self._locks.locked_s(queue)

    async def unlock(self, queue: QueueKey) -> None:
        """Let another member have a queue."""
        if self._locks is not None:
            await self._locks.unlock([queue])

    async def stop(self, timeout_s: float) -> None:
        """Handle no more messages, and wait for the handlers that run, at most so long."""
        self._stopping.set()
        if self._running:
            _, running = await asyncio.wait(self._running.values(), timeout=timeout_s)
            if running:
                logger.warning(Event("handlers were cancelled: they took too long", handlers=len(running)))
            for task in running:
                task.cancel()

    async def unlock_all(self) -> None:
        """Let other members have all queues."""
        if self._locks is not None:
            await self._locks.unlock_all()

    async def _run(self, consumed: ConsumedQueue) -> None:
        try:
            await self._consume_all(consumed)
        finally:  # not by a callback of the task: messages that are taken before it is called would wait for others
            del self._running[consumed]

    async def _consume_all(self, consumed: ConsumedQueue) -> None:
        """Handle the messages of a queue until there is none, or the queue is another member's."""
        waiting = consumed.process_queue
        while (message := waiting.first) is not None and not waiting.is_dropped and not self._stopping.is_set():
            if self._locks is not None and not self._locks.is_held(consumed.queue):
                await self._locks.lock_again(consumed.queue)
                if not self._locks.is_held(consumed.queue):
                    await self._pause()
                continue
            async with self._free:
                is_done = await self._handler.handle(message)
            if is_done or await self._is_given_up(message):
                consumed.done(message)
            elif not waiting.is_dropped:
                message.reconsume_times += 1
                await self._pause()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(_AGAIN_S):
                await self._stopping.wait()
        except TimeoutError:
            pass

    async def _is_given_up(self, message: MessageClientExt) -> bool:
        """Whether a message that failed has become a dead letter."""
        limit = self._max_reconsume_times
        if limit is None or message.reconsume_times < limit or self._group.is_broadcasting:
            return False
        header = ConsumerSendMsgBackRequestHeader(
            message.commit_log_offset, self._group.name, _DEAD_LETTER, message.message_id,
            self._group.namespace.wrap(message.topic),
            unit_mode=False, max_reconsume_times=limit,
        )  # fmt: skip
        try:
            await self._group.api.send_back(self._group.client.master(message.queue.broker_name), header)
        except ReputError as error:
            peers.failed("a message is kept for a retry: no broker took it back", error)
            return False
        return True
