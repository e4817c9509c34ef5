"""ConsumeConcurrently: handles messages of all queues at the same time (`ConsumeMessageConcurrentlyService`)."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

from reput.client.consuming.consumed_queue import ConsumedQueue
from reput.client.consuming.consumer_group import ConsumerGroup
from reput.client.consuming.message_handler import MessageHandler
from reput.client.instance.message_client_ext import MessageClientExt
from reput.client.instance.peer_log import peers
from reput.errors import ReputError
from reput.events import Event
from reput.remoting.send_headers import ConsumerSendMsgBackRequestHeader

logger = logging.getLogger("reput.client")

#: A message that its broker did not take back is handled here again after this many seconds.
_AGAIN_S = 5.0
#: The delay level of a message that was handled for too long, and of one whose broker chooses.
_LEVEL_EXPIRED, _LEVEL_OF_BROKER = 3, 0


@dataclass(eq=False, slots=True)
class _Running:
    """A message whose handler runs; since a time of the loop.

    Attributes:
        is_late: The log says that it is handled for too long.
        turn: Who decides what becomes of it: its handler's end, or the end of its time.
    """

    consumed: ConsumedQueue
    message: MessageClientExt
    begun: float
    is_late: bool = False
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class ConsumeConcurrently:
    """Workers that handle messages, and give those that failed back to their broker, which delivers them later.

    Args:
        group: Asks brokers.
        handler: Handles a message.
        concurrency: How many messages are handled at once.
        max_reconsume_times: How often a message comes again, before it is a dead letter.
        timeout_s: How long a message may be handled, before it is given back.
    """

    def __init__(
        self,
        group: ConsumerGroup,
        handler: MessageHandler,
        concurrency: int,
        max_reconsume_times: int,
        timeout_s: float,
    ) -> None:
        self._group = group
        self._handler = handler
        self._max_reconsume_times = max_reconsume_times
        self._waiting: asyncio.Queue[tuple[ConsumedQueue, MessageClientExt] | None] = asyncio.Queue()
        self._timeout_s = timeout_s
        self._running: dict[_Running, None] = {}  # in the order of their begins
        self._concurrency = concurrency
        self._workers: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to handle messages; its client is started."""
        spawn = self._group.client.spawn
        spawn(self._expire_service())
        self._workers = [spawn(self._work()) for _ in range(self._concurrency)]

    async def lock(self, one: ConsumedQueue) -> None:
        """Nothing is locked."""

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

    async def unlock(self, one: ConsumedQueue) -> None:
        """Nothing is locked."""

    async def unlock_all(self) -> None:
        """Nothing is locked."""

    async def _work(self) -> None:
        while (waiting := await self._waiting.get()) is not None:
            consumed, message = waiting
            if consumed.holds(message):
                await self._consume(consumed, message)

    async def _consume(self, consumed: ConsumedQueue, message: MessageClientExt) -> None:
        running = _Running(consumed, message, asyncio.get_running_loop().time())
        self._running[running] = None
        is_done = await self._handler.handle(message)
        async with running.turn:  # it may be on its way back
            if running not in self._running:
                return
            del self._running[running]
        if not is_done and not self._group.is_broadcasting:
            if not consumed.holds(message):
                return
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
        """Count a message as handled whose handler still runs: it comes again. False if no broker took it back."""
        consumed, message = running.consumed, running.message
        if not running.is_late:
            running.is_late = True
            fields = {"queue": message.queue, "offset": message.queue_offset, "seconds": self._timeout_s}
            logger.warning(Event("a message is handled for too long", **fields))
        async with running.turn:
            if running not in self._running:
                return True
            if not self._group.is_broadcasting:
                if not consumed.holds(message):  # it comes again to whom the queue goes: it counts for nothing here
                    del self._running[running]
                    return True
                try:
                    await self._send_back(message, _LEVEL_EXPIRED)
                except ReputError as error:
                    peers.failed("a message is kept for a retry: no broker took it back", error)
                    return False
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
