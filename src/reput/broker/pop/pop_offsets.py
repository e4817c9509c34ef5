"""PopOffsets: how far groups have popped queues, and which queues are being popped at this moment."""

from __future__ import annotations

import asyncio

from reput.broker.clock import BrokerClock
from reput.broker.disk_work import DiskPools
from reput.broker.pulls.first_offset import asked_of_disk, begins_in_memory, first_offset
from reput.broker.view import BrokerView
from reput.files import FileLayer
from reput.remoting.pop_headers import PopKey, PopMessageRequestHeader
from reput.remoting.topic_validator import is_retry_or_dlq_topic
from reput.service.consumer_offset_manager import ConsumerOffsetManager
from reput.service.pop.consumer_order_info_manager import ConsumerOrderInfoManager
from reput.store.message_store import MessageStore

#: `ConsumeInitMode.MIN`.
_FROM_MIN = 0


class PopOffsets:
    """Offsets that are handed out, beside those that are committed (`PopMessageProcessor.getPopOffset`).

    What was handed out is committed once its check point is safe: an offset that is in consumerOffset.json never has a
    message before it that has neither an ack nor a check point. Until then the next pop goes on from memory.

    Attributes:
        orders: What was popped in order: there the offset stays where it is until messages are acked.
    """

    def __init__(
        self,
        view: BrokerView,
        clock: BrokerClock,
        pools: DiskPools,
        files: FileLayer,
        store: MessageStore,
        consumer_offsets: ConsumerOffsetManager,
    ) -> None:
        self._view, self._clock, self._pools, self._store = view, clock, pools, store
        self._consumer_offsets = consumer_offsets
        self.orders = ConsumerOrderInfoManager(store.path, files)
        self._handed_out: dict[PopKey, int] = {}
        self._locked: dict[PopKey, asyncio.Event | None] = {}

    # -- one pop of a queue at a time

    def try_lock(self, key: PopKey) -> bool:
        """Take the lock of a queue; False if another pop has it."""
        if key in self._locked:
            return False
        self._locked[key] = None
        return True

    def unlock(self, key: PopKey) -> None:
        """Give the lock back."""
        freed = self._locked.pop(key)
        if freed is not None:
            freed.set()

    async def lock(self, key: PopKey) -> None:
        """Wait for the lock of a queue, and take it."""
        while not self.try_lock(key):
            freed = self._locked[key]
            if freed is None:
                freed = self._locked[key] = asyncio.Event()
            await freed.wait()

    # -- where a pop begins

    def known(self, key: PopKey) -> int:
        """The next offset of a group; -1 if it has none."""
        topic, group, queue_id = key
        committed = self._consumer_offsets.query_offset(group, topic, queue_id)
        return max(committed, self._handed_out.get(key, -1)) if self._handed_out else committed

    def left(self, key: PopKey) -> int:
        """Messages of a queue that the group has not popped."""
        store = self._store
        known = self.known(key)
        low = store.min_offset(key.topic, key.queue_id)
        return max(store.max_offset(key.topic, key.queue_id) - max(known, low), 0)

    def is_set(self, key: PopKey) -> bool:
        """Whether a group has an offset, which no reset is to change."""
        (topic, group, queue_id) = key
        has_reset = self._consumer_offsets.has_offset_reset(topic, group, queue_id)
        return self.known(key) >= 0 and not (has_reset and self._view.config.use_server_side_reset_offset)

    def take_reset(self, key: PopKey) -> int | None:
        """The offset of a reset that waits for this pop, committed; None if none waits."""
        (topic, group, queue_id) = key
        if not self._view.config.use_server_side_reset_offset:
            return None
        offset = self._consumer_offsets.query_then_erase_reset_offset(topic, group, queue_id)
        if offset is not None:
            self.orders.clear_block(topic, group, queue_id, self._clock.now_ms())
            self.move(key, offset)
        return offset

    async def begin(self, key: PopKey, header: PopMessageRequestHeader) -> int:
        """The offset of a group, which gets one if it has none (`getInitOffset`)."""
        offset = self.known(key)
        if offset >= 0:
            return offset
        (topic, group, queue_id) = key
        if header.init_mode == _FROM_MIN or is_retry_or_dlq_topic(topic):
            offset = self._store.min_offset(topic, queue_id)
        elif self._view.config.init_pop_offset_by_check_msg_in_mem and await self._has_first_in_memory(topic, queue_id):
            offset = first_offset(self._store, topic, queue_id)
        else:
            offset = max(self._store.max_offset(topic, queue_id) - 1, 0)
        self._consumer_offsets.commit_offset(group, topic, queue_id, offset, self._clock.now_ms())
        return offset

    async def _has_first_in_memory(self, topic: str, queue_id: int) -> bool:
        found = begins_in_memory(self._store, topic, queue_id)
        return await self._pools.reads.run(asked_of_disk, self._store, topic, queue_id) if found is None else found

    # -- where the next one does

    def hand_out(self, key: PopKey, following: int) -> None:
        """The next pop begins there; `commit` keeps it."""
        self._handed_out[key] = following

    def is_uncommitted(self, key: PopKey) -> bool:
        """Whether something was handed out whose check point is not safe yet."""
        return key in self._handed_out

    def commit(self, key: PopKey, following: int) -> None:
        """Keep an offset that was handed out, unless a reset came meanwhile."""
        newest = self._handed_out.get(key)
        if newest is None or following > newest:
            return
        if following == newest:
            del self._handed_out[key]
        (topic, group, queue_id) = key
        if following > self._consumer_offsets.query_offset(group, topic, queue_id):
            self._consumer_offsets.commit_offset(group, topic, queue_id, following, self._clock.now_ms())

    def move(self, key: PopKey, offset: int) -> None:
        """Set the offset of a group at once: the queue has no messages where it was."""
        (topic, group, queue_id) = key
        self._handed_out.pop(key, None)
        self._consumer_offsets.commit_offset(group, topic, queue_id, offset, self._clock.now_ms())
