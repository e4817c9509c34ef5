"""AckFrames: the acks that one read of a connection brings, a queue's in one call of a kernel."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from reput.broker.appends.loop_dispatch import LoopDispatch
from reput.broker.appends.put_hooks import PutHooks
from reput.broker.appends.room_waiters import RoomWaiters
from reput.broker.clock import BrokerClock
from reput.broker.pop.handles import check_handle, check_point_key
from reput.broker.pop.revive_messages import Place, ReviveMessages
from reput.broker.rpc_latency import RpcLatency
from reput.errors import ReputError, WouldWaitError
from reput.formats.pop_messages import CheckPointKey
from reput.formats.timer_log import TIMER_TOPIC
from reput.kernels.records.log_room import LogRoom
from reput.kernels.records.record_form import RecordForm
from reput.kernels.wire.ack_frames import NUMBERS, AckForm
from reput.remoting.ack_frames import TAKEN, AckFrame, AckHeaderForm, decode_plain_ack
from reput.remoting.codes import RequestCode
from reput.service.pop.pop_stats import ACK, PUT_OK
from reput.service.topic_config_manager import TopicConfigManager
from reput.store.loop_writer import LoopWriter
from reput.store.message_store import MessageStore
from reput.transport.connection import Connection

#: Memory for the answers to some 500 acks, which take a quarter of a millisecond.
_ANSWER_BYTES = 1 << 16
#: Forms that are kept, each of one queue of a group and 4 KB.
_MOST_FORMS = 4096


class AckFrames:
    """Takes acks as `AckMessageProcessor` does, as many at once as come one after the other.

    Only for `SendFrameProcessor`, which has looked first: under ASYNC_FLUSH, no request is checked, hosts are IPv4, and
    records have no CRC of their properties. So an answer need not wait, and the kernel can write the record.

    Args:
        clock, store, topics, writer, room, hooks, dispatch, rpc_latency: The broker's.
        revive: Makes what acks become.
    """

    def __init__(
        self,
        clock: BrokerClock,
        store: MessageStore,
        topics: TopicConfigManager,
        writer: LoopWriter,
        room: RoomWaiters,
        hooks: PutHooks,
        dispatch: LoopDispatch,
        rpc_latency: RpcLatency | None,
        revive: ReviveMessages,
    ) -> None:
        self._clock, self._store, self._topics, self._writer = clock, store, topics, writer
        self._room, self._hooks, self._dispatch, self._rpc_latency = room, hooks, dispatch, rpc_latency
        self._revive = revive
        self._answers = np.empty(_ANSWER_BYTES, np.uint8)
        self._form = lru_cache(_MOST_FORMS)(self._make_form)

    def take(self, connection: Connection, keep: Callable[[bytes], None]) -> bool:
        """Take the acks of the group and the queue of the next frame, and give their answers to `keep`.

        Returns False if that frame is no plain ack, and nothing has changed. Plain is an ack that
        `AckMessageProcessor` would put, and that waits with the timers: of a message that a queue has, not popped in
        order, and whose time is not over.

        Raises:
            WouldWaitError: In `NeverWaiting`: the log has no room for the next ack.
        """
        since_s = time.perf_counter()
        frames = connection.frames
        frame = frames.frame()
        if frame is None:
            return False
        frames.put_back(len(frame))
        ack = decode_plain_ack(frame)
        form = None if ack is None else self._form_for(connection, ack)
        if ack is None or form is None:
            return False
        begin, end = frames.window()
        taken = self._append(form, begin, end)
        if not taken:
            return False
        frames.taken(form.at - begin)
        keep(form.take_answers())
        self._dispatch.soon(is_of_system=True)
        self._revive.stats.inc_put(check_point_key(ack.form.queue, ack.info), ACK, PUT_OK, taken)
        if self._rpc_latency is not None:
            self._rpc_latency.sent({RequestCode.ACK_MESSAGE: taken}, since_s)
        return True

    def _append(self, form: AckForm, begin: int, end: int) -> int:
        """Let the kernel take acks; 0 if the plain way is to say why it cannot."""
        writer, taken = self._writer, 0

        def write(room: LogRoom) -> int:
            nonlocal taken
            taken = form.take(begin, end, room)
            return form.log_address - room.address

        try:
            writer.append_written(write)
            if form.needed and not taken:
                writer.make_room(form.needed)
                writer.append_written(write)
        except WouldWaitError:
            if self._room.failure is None:
                raise
        except ReputError:
            pass
        return taken

    def _form_for(self, connection: Connection, ack: AckFrame) -> AckForm | None:
        """The form of an ack and of those like it; None if the ack is not plain."""
        info, queue = ack.info, ack.form.queue
        place = queue.topic, queue.queue_id
        low, high = self._store.min_offset(*place), self._store.max_offset(*place)
        is_plain = low <= ack.offset <= high and not info.is_order and self._revive.has_queue(info.revive_qid)
        if not is_plain or check_handle(self._topics, connection, queue) is not None:
            return None
        now_ms, hooks = self._clock.now_ms(), self._hooks
        try:
            slot_ms = hooks.slot_of(info.revive_time, now_ms)
            if slot_ms is None:
                return None
            form = self._form(ack.form)
        except ReputError:
            return None
        if form is not None:
            form.begin(now_ms, (low, high), self._revive.queues, slot_ms, hooks.times_of(slot_ms, now_ms))
        return form

    def _make_form(self, of: AckHeaderForm) -> AckForm | None:
        """A form; None if a name of it is odd."""
        writer, revive = self._writer, self._revive

        def encode(numbers: Sequence[int]) -> bytes:
            start, pop_time, _, revive_qid, offset, _, deliver_ms, slot_ms = numbers
            key = CheckPointKey(*of.queue, start, pop_time, of.broker_name)
            return writer.encode_row(revive.ack_row(key, offset, Place(revive_qid, deliver_ms, slot_ms)))

        try:
            record = RecordForm(encode, NUMBERS)
        except ValueError:
            return None
        (queue,) = writer.number_queues(TIMER_TOPIC, 1).tolist()
        return AckForm(
            texts=of.texts, numbers=of.numbers, record=record, queue=queue, answer=TAKEN, answers=self._answers
        )
