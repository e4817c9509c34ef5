"""TimerMessage: a message of rmq_sys_wheel_timer, as the timers look at it."""

from __future__ import annotations

from dataclasses import dataclass

from reput.broker.inner_message import MessageExtBrokerInner
from reput.formats.java import string_hash
from reput.formats.properties import REAL_QID, REAL_TOPIC, TIMER_DEL_UNIQKEY, TIMER_OUT_MS, UNIQ_KEY
from reput.formats.record_layout import Buffer, unpack_record
from reput.formats.timer_log import Magic, TimerUnit
from reput.service.timer_messages import delete_key, due_time, properties_when_due, slot_time
from reput.store.put_rows import PutRow
from reput.store.timer.timer_message_store import TIMER_TOPIC, TimerEntry


@dataclass(slots=True)
class TimerMessage:
    """A stored message that waits for its time.

    Attributes:
        inner: The message; its topic is rmq_sys_wheel_timer.
        commit_log_offset, queue_offset, size, stored_ms: Of its record.
        out_ms: Time of its own slot.
        real_topic, real_queue_id: Where it goes.
    """

    inner: MessageExtBrokerInner
    commit_log_offset: int
    queue_offset: int
    size: int
    stored_ms: int
    out_ms: int
    real_topic: str
    real_queue_id: int

    @classmethod
    def of_record(cls, record: Buffer) -> TimerMessage | None:
        """The message of a record; None where it lacks what a message needs that is to wait."""
        head, _ = unpack_record(record, 0)
        inner = MessageExtBrokerInner.of_record(record)
        topic, queue_id = inner.properties.get(REAL_TOPIC), inner.properties.get(REAL_QID, "")
        out_ms = inner.properties.get(TIMER_OUT_MS, "")
        if topic is None or inner.topic != TIMER_TOPIC or not (_is_number(queue_id, 10) and _is_number(out_ms, 18)):
            return None
        return cls(inner, head[6], head[5], head[0], head[10], int(out_ms), topic, int(queue_id))

    @property
    def deletes(self) -> str | None:
        """Topic and key of the message that this one deletes; None for a message that is to be delivered."""
        return self.inner.properties.get(TIMER_DEL_UNIQKEY)

    @property
    def key(self) -> str | None:
        """Topic and key by which it may be deleted."""
        unique_key = self.inner.properties.get(UNIQ_KEY)
        return None if unique_key is None else delete_key(self.real_topic, unique_key)

    def entry(self, write_ms: int, read_time_ms: int, window_ms: int, precision_ms: int) -> TimerEntry:
        """Where it waits from now on; see `slot_time`. No slot before `read_time_ms` is looked at any more."""
        time = slot_time(self.out_ms, write_ms, window_ms, precision_ms)
        magic: int = Magic.DEFAULT | (Magic.ROLL if time != self.out_ms else 0)
        magic |= Magic.DELETE if self.deletes is not None else 0
        time = max(time, read_time_ms)
        return TimerEntry(time, magic, self.commit_log_offset, self.size, string_hash(self.real_topic))

    def due_ms(self, unit_time: int, magic: int, precision_ms: int) -> int:
        """When something is to be done with it: delivered at its exact time, or put back once its slot has begun."""
        if magic & Magic.ROLL:
            return unit_time + 1
        return due_time(self.inner.properties, self.stored_ms, self.out_ms, precision_ms)

    def row(self, unit: TimerUnit, now_ms: int) -> PutRow:
        """The row that is put when it is due: into its own topic, or back into the queue (`convert`)."""
        is_rolled = bool(unit.magic & Magic.ROLL)
        inner = self.inner
        inner.properties = properties_when_due(
            inner.properties, enqueued_ms=unit.write_time, now_ms=now_ms, is_rolled=is_rolled
        )
        if not is_rolled:
            inner.topic, inner.queue_id = self.real_topic, self.real_queue_id
        inner.prepared_transaction_offset = 0
        return inner.row()


def _is_number(text: str, most_digits: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= most_digits
