"""AckFrames: the acks that one read of a connection brings, in one call of a kernel for those with one handle."""

from __future__ import annotations

import time
from collections.abc import Callable
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
from reput.formats.pop_messages import ack_unique_key
from reput.formats.record_layout import unpack_record
from reput.kernels.records.log_room import LogRoom
from reput.kernels.wire.ack_frames import MARK, AckForm
from reput.remoting.ack_frames import TAKEN, AckFrame, decode_plain_ack
from reput.remoting.codes import RequestCode
from reput.remoting.extra_info import ExtraInfo
from reput.remoting.pop_headers import PopKey
from reput.service.pop.pop_stats import ACK, PUT_OK
from reput.service.topic_config_manager import TopicConfigManager
from reput.store.loop_writer import LoopWriter
from reput.store.message_store import MessageStore
from reput.transport.connection import Connection

#: Memory for the answers to some 500 acks, which take a quarter of a millisecond.
_ANSWER_BYTES = 1 << 16
#: Forms that are kept, each of one handle and 2 KB.
_MOST_FORMS = 1024


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
        """Take the acks with the handle of the next frame, and give their answers to `keep`.

        Returns False if that frame is no plain ack, and nothing has changed. Plain is an ack that
        `AckMessageProcessor` would put: of a message that a queue has, not popped in order.

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
        self._revive.stats.inc_put(check_point_key(ack.queue, ack.info), ACK, PUT_OK, taken)
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
        info, (topic, _, queue_id) = ack.info, ack.queue
        low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        is_plain = low <= ack.offset <= high and not info.is_order and self._revive.has_queue(info.revive_qid)
        if not is_plain or check_handle(self._topics, connection, ack.queue) is not None:
            return None
        now_ms = self._clock.now_ms()
        try:
            place = Place(info.revive_qid, info.revive_time, self._hooks.slot_of(info.revive_time, now_ms))
            form = self._form(ack.queue, info, place, ack.texts, ack.numbers)
        except ReputError:
            return None
        form.begin(now_ms, (low, high))
        return form

    def _make_form(
        self, queue: PopKey, info: ExtraInfo, place: Place, texts: tuple[bytes, ...], numbers: tuple[int, int]
    ) -> AckForm:
        key, writer = check_point_key(queue, info), self._writer
        row = self._revive.ack_row(key, MARK, place)
        record = writer.encode_row(row)
        _, (body, _, _, _, properties, _) = unpack_record(record, 0)
        unique_key, offset = ack_unique_key(key, MARK).encode("utf-8", "replace"), b"%d" % MARK
        before = len(f"{key.topic}@{key.queue_id}@".encode("utf-8", "replace"))
        return AckForm(
            texts=texts, numbers=numbers, record=record,
            offsets_at=(record.index(offset, body), record.index(unique_key, properties) + before),
            queue=int(writer.number_queues(row.topic, row.queue_id + 1)[row.queue_id]),
            answer=TAKEN, answers=self._answers,
        )  # fmt: skip
