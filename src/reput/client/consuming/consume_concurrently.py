"""ConsumeConcurrently: handles messages of all queues at the same time (`ConsumeMessageConcurrentlyService`)."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from reput.client.consuming.consumed_queue import ConsumedQueue
from reput.client.consuming.consumer_group import ConsumerGroup
from reput.client.consuming.message_handler import MessageHandler
from reput.client.consuming.offset_store import OffsetStore
from reput.client.instance.message_client_ext import MessageClientExt
from reput.client.instance.peer_log import peers
from reput.errors import ReputError
from reput.events import Event
from reput.remoting.queue_tables import QueueKey
from reput.remoting.send_headers import ConsumerSendMsgBackRequestHeader

logger = logging.getLogger("reput.client")

#: A message that its broker did not take back is handled here again after so many seconds.
_AGAIN_S = 5.0
#: The delay level of a message that was handled for too long, and of one whose broker chooses.
_LEVEL_EXPIRED, _LEVEL_OF_BROKER = 3, 0


@dataclass(eq=False, slots=True)
class _Running:
    """A message whose handler runs; since a time of the loop. is_late: the log says that it is handled for too long."""

    consumed: ConsumedQueue
    message: MessageClientExt
    begun: float
    is_late: bool = False


class ConsumeConcurrently:
    """Workers that handle messages, and give those that failed back to their broker, which delivers them later.

    Args:
        group: Asks brokers.
        offsets: Keeps how far the group is.
        handler: Handles a message.
        concurrency: How many messages are handled at once.
        max_reconsume_times: How often a message comes again, before it is a dead letter.
        timeout_s: How long a message may be handled, before it is given back.
    """

    def __init__(
        self,
        group: ConsumerGroup,
        offsets: OffsetStore,
        handler: MessageHandler,
        concurrency: int,
        max_reconsume_times: int,
        timeout_s: float,
    ) -> None:
        self._group = group
        self._offsets = offsets
        self._handler = handler
        self._max_reconsume_times = max_reconsume_times
        self._waiting: asyncio.Queue[tuple[ConsumedQueue, MessageClientExt] | None] = asyncio.Queue()
        self._timeout_s = timeout_s
        self._running: dict[_Running, None] = {}  # in the order of their begins
        group.client.spawn(self._expire_service())
        self._workers = [group.client.spawn(self._work()) for _ in range(concurrency)]

    async def begin(self, queue: QueueKey) -> int:
        """Offset at which the group goes on in a queue; raises RemotingError if its broker does not return it."""
        return await self._offsets.begin(queue)

    def take(self, consumed: ConsumedQueue, messages: list[MessageClientExt]) -> None:
        """Handle messages soon."""
        for message in messages:
            self._waiting.put_nowait((consumed, message))

    async def stop(self, timeout_s: float) -> None:
        """Handle no more messages, and wait for the handlers that run, at most so long."""
        while not self._waiting.empty():
            self._waiting.get_nowait()
        for _ in self._workers:
            self._waiting.put_nowait(None)
        _, running = await asyncio.wait(self._workers, timeout=timeout_s)
        if running:
            logger.warning(Event("handlers were cancelled: they took too long", handlers=len(running)))

    async def ended(self, consumed: ConsumedQueue) -> None:
        """Nothing to wait for: another member may have the queue while a handler still works on a message of it."""

    def locked_s(self, queue: QueueKey) -> float | None:
        """Nothing is locked."""
        return None

    async def unlock(self, queue: QueueKey) -> None:
        """Nothing is locked."""

    async def unlock_all(self) -> None:
        """Nothing is locked."""

    async def _work(self) -> None:
        while (waiting := await self._waiting.get()) is not None:
            consumed, message = waiting
            if not consumed.process_queue.is_dropped:
                await self._consume(consumed, message)

    async def _consume(self, consumed: ConsumedQueue, message: MessageClientExt) -> None:
        running = _Running(consumed, message, asyncio.get_running_loop().time())
        self._running[running] = None
        is_done = await self._handler.handle(message)
        if running not in self._running:  # it was given back
            return
        del self._running[running]
        if consumed.process_queue.is_dropped:
            return
        if not is_done and not self._group.is_broadcasting:
            try:
                await self._send_back(message, _LEVEL_OF_BROKER)
            except ReputError as error:
                peers.failed("a message is kept for a retry: no broker took it back", error)
                message.reconsume_times += 1
                loop = asyncio.get_running_loop()
                loop.call_later(_AGAIN_S, self._waiting.put_nowait, (consumed, message))
                return
        consumed.done(message)

    async def _expire_service(self) -> None:
        """Give back messages that are handled for too long: they hold up the offset (`cleanExpireMsg`)."""
        loop = asyncio.get_running_loop()
        while True:
            oldest = next(iter(self._running), None)
            begun = loop.time() if oldest is None else oldest.begun
            await asyncio.sleep(begun + self._timeout_s - loop.time())
            while (oldest := next(iter(self._running), None)) and oldest.begun + self._timeout_s <= loop.time():
                if not await self._expire(oldest) and oldest in self._running:
                    del self._running[oldest]  # others do not wait for its broker: it is the last one now
                    oldest.begun = loop.time() - self._timeout_s + _AGAIN_S
                    self._running[oldest] = None

    async def _expire(self, running: _Running) -> bool:
        """Count a message as handled whose handler still runs: it comes again. False where no broker took it back."""
        consumed, message = running.consumed, running.message
        if not running.is_late:
            running.is_late = True
            fields = {"queue": message.queue, "offset": message.queue_offset, "seconds": self._timeout_s}
            logger.warning(Event("a message is handled for too long", **fields))
        if not consumed.process_queue.is_dropped and not self._group.is_broadcasting:
            try:
                await self._send_back(message, _LEVEL_EXPIRED)
            except ReputError as error:
                peers.failed("a message is kept for a retry: no broker took it back", error)
                return False
        if running in self._running:
            del self._running[running]
            consumed.done(message)
        return True

    async def _send_back(self, message: MessageClientExt, delay_level: int) -> None:
        """Let the broker deliver a message again, later each time; after the last time it is a dead letter."""
        header = ConsumerSendMsgBackRequestHeader(
            message.commit_log_offset, self._group.name, delay_level, message.message_id,
            self._group.namespace.wrap(message.topic),
            unit_mode=False, max_reconsume_times=self._max_reconsume_times,
        )  # fmt: skip
        await self._group.api.send_back(self._group.client.master(message.queue.broker_name), header)
