"""PopOffsets: how far groups have popped queues, and which queues are being popped at this moment."""

from __future__ import annotations

import asyncio

from reput.broker.pulls.first_message import asked_of_disk, begins_in_memory
from reput.broker.state import BrokerState
from reput.remoting.pop_headers import PopKey, PopMessageRequestHeader
from reput.remoting.topic_validator import is_retry_or_dlq_topic
from reput.service.pop.consumer_order_info_manager import ConsumerOrderInfoManager

#: `ConsumeInitMode.MIN`.
_FROM_MIN = 0


class PopOffsets:
    """Offsets that are handed out, beside those that are committed (`PopMessageProcessor.getPopOffset`).

    What was handed out is committed once its check point is safe: an offset that is in consumerOffset.json never has a
    message before it that has neither an ack nor a check point. Until then the next pop goes on from memory.

    Attributes:
        orders: What was popped in order: there the offset stays where it is until messages are acked.
    """

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self.orders = ConsumerOrderInfoManager(state.store.path, state.files)
        self._handed_out: dict[PopKey, int] = {}
        self._locked: dict[PopKey, asyncio.Event | None] = {}

    # -- one pop of a queue at a time

    def try_lock(self, key: PopKey) -> bool:
        """Take the lock of a queue; False where another pop has it."""
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
        """The next offset of a group; -1 where it has none."""
        topic, group, queue_id = key
        committed = self._state.offsets.query_offset(group, topic, queue_id)
        return max(committed, self._handed_out.get(key, -1)) if self._handed_out else committed

    def left(self, key: PopKey) -> int:
        """Messages of a queue that the group has not popped."""
        store = self._state.store
        known = self.known(key)
        low = store.min_offset(key.topic, key.queue_id)
        return max(store.max_offset(key.topic, key.queue_id) - max(known, low), 0)

    def take_reset(self, key: PopKey) -> int | None:
        """The offset of a reset that waits for this pop, committed; None where none waits."""
        state, (topic, group, queue_id) = self._state, key
        if not state.config.use_server_side_reset_offset:
            return None
        offset = state.offsets.query_then_erase_reset_offset(topic, group, queue_id)
        if offset is not None:
            self.orders.clear_block(topic, group, queue_id, state.now_ms())
            self.move(key, offset)
        return offset

    async def begin(self, key: PopKey, header: PopMessageRequestHeader) -> int:
        """The offset of a group, which gets one where it has none (`getInitOffset`)."""
        offset = self.known(key)
        if offset >= 0:
            return offset
        state, (topic, group, queue_id) = self._state, key
        if header.init_mode == _FROM_MIN or is_retry_or_dlq_topic(topic):
            offset = state.store.min_offset(topic, queue_id)
        elif state.config.init_pop_offset_by_check_msg_in_mem and await self._has_first_in_memory(topic, queue_id):
            offset = 0
        else:
            offset = max(state.store.max_offset(topic, queue_id) - 1, 0)
        state.offsets.commit_offset(group, topic, queue_id, offset, state.now_ms())
        return offset

    async def _has_first_in_memory(self, topic: str, queue_id: int) -> bool:
        found = begins_in_memory(self._state, topic, queue_id)
        return await self._state.reads.run(asked_of_disk, self._state, topic, queue_id) if found is None else found

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
        state, (topic, group, queue_id) = self._state, key
        if following > state.offsets.query_offset(group, topic, queue_id):
            state.offsets.commit_offset(group, topic, queue_id, following, state.now_ms())

    def move(self, key: PopKey, offset: int) -> None:
        """Set the offset of a group at once: the queue has no messages where it was."""
        state, (topic, group, queue_id) = self._state, key
        self._handed_out.pop(key, None)
        state.offsets.commit_offset(group, topic, queue_id, offset, state.now_ms())
