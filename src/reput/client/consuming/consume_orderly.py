"""ConsumeOrderly: handles messages of each queue one after the other (`ConsumeMessageOrderlyService`)."""

from __future__ import annotations

import asyncio
import logging

from reput.client.consuming.consumed_queue import ConsumedQueue
from reput.client.consuming.consumer_group import ConsumerGroup
from reput.client.consuming.message_handler import MessageHandler
from reput.client.consuming.queue_locks import QueueLocks
from reput.client.instance.message_client_ext import MessageClientExt
from reput.client.instance.peer_log import peers
from reput.errors import ReputError
from reput.events import Event
from reput.remoting.send_headers import ConsumerSendMsgBackRequestHeader

logger = logging.getLogger("reput.client")

#: A message that failed is handled again after this many seconds (`suspendCurrentQueueTimeMillis`).
_AGAIN_S = 1.0
#: The delay level of a message that is a dead letter at once.
_DEAD_LETTER = -1


class ConsumeOrderly:
    """A task for each queue that has messages; a message that fails holds up those behind it.

    Args:
        group: Asks brokers.
        handler: Handles a message.
        concurrency: How many queues are handled at once.
        max_reconsume_times: How often a message is handled again, before it is a dead letter; None: until it succeeds.
    """

    def __init__(
        self,
        group: ConsumerGroup,
        handler: MessageHandler,
        concurrency: int,
        max_reconsume_times: int | None,
    ) -> None:
        self._group = group
        self._handler = handler
        self._max_reconsume_times = max_reconsume_times
        self._free = asyncio.Semaphore(concurrency)
        self._locks: QueueLocks | None = None
        self._stopping = asyncio.Event()

    def start(self) -> None:
        """Begin to handle messages; its client is started."""
        if not self._group.is_broadcasting:
            self._locks = QueueLocks(self._group)

    async def lock(self, one: ConsumedQueue) -> None:
        """Return when a queue is this member's; raises RemotingError if its broker does not tell."""
        if self._locks is not None:
            await self._locks.lock(one)

    def take(self, consumed: ConsumedQueue, messages: list[MessageClientExt]) -> None:
        """Handle messages soon, behind their queue's messages that were taken before."""
        if consumed.handling is None and not self._stopping.is_set():
            consumed.handling = self._group.client.spawn(self._run(consumed))

    async def ended(self, consumed: ConsumedQueue) -> None:
        """Return when no handler works on a queue that is dropped: another member may have it then."""
        if consumed.handling is not None:
            await asyncio.wait([consumed.handling])

    async def unlock(self, one: ConsumedQueue) -> None:
        """Let another member have a queue."""
        if self._locks is not None:
            await self._locks.unlock([one])

    async def stop(self, timeout_s: float) -> None:
        """Handle no more messages, and wait for the handlers that run, at most so long."""
        self._stopping.set()
        handling = [one.handling for one in self._group.queues if one.handling is not None]
        if handling:
            _, running = await asyncio.wait(handling, timeout=timeout_s)
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
            consumed.handling = None

    async def _consume_all(self, consumed: ConsumedQueue) -> None:
        """Handle the messages of a queue until there is none, or the queue is another member's."""
        while (message := consumed.messages.first) is not None and consumed.holds(message):
            if self._stopping.is_set():
                return
            if not self._is_held(consumed):
                assert self._locks is not None, "else nothing is locked"
                await self._locks.lock_again(consumed)
                if not self._is_held(consumed):
                    await self._pause()
                continue
            async with self._free:
                if self._stopping.is_set() or not consumed.holds(message) or not self._is_held(consumed):
                    continue  # it was so before the wait for a free place
                is_done = await self._handler.handle(message)
            if is_done or (message in consumed.messages and await self._is_given_up(message)):
                consumed.done(message)
            elif consumed.holds(message):
                message.reconsume_times += 1
                await self._pause()

    def _is_held(self, consumed: ConsumedQueue) -> bool:
        """Whether this member may handle messages of a queue now."""
        return self._locks is None or self._locks.is_held(consumed)

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
