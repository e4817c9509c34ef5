"""TimerMessage: a message of rmq_sys_wheel_timer, as the timers look at it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from reput.broker.appends.inner_message import write_properties
from reput.formats.properties import (
    PROPERTY_SEPARATOR,
    REAL_QID,
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
    UNIQ_KEY,
    decode_properties,
)
from reput.formats.property_crc import PROPERTY_CRC32
from reput.formats.record_layout import Bounds, Head, unpack_record
from reput.formats.timer_log import TIMER_TOPIC, Magic, TimerUnit
from reput.service.timer_messages import added_when_due, delete_key, due_time
from reput.store.puts.put_rows import PutRow

_TIMER_TOPIC = TIMER_TOPIC.encode()
_ROLL = int(Magic.ROLL)


class DeleteKey(NamedTuple):
    """Topic and key of a message to delete: a client that may not send to a topic deletes nothing there."""

    topic: str
    text: str


@dataclass(slots=True)
class TimerMessage:
    """A stored message that waits for its time; its body is copied once it is put.

    Attributes:
        records: The bytes that hold its record.
        head, bounds: Of its record, as `unpack_record` gives them; its topic is rmq_sys_wheel_timer.
        properties: By name, without the CRC of the record.
        out_ms: Time of its own slot.
        real_topic, real_queue_id: Where it goes.
    """

    records: bytes
    head: Head
    bounds: Bounds
    properties: dict[str, str]
    out_ms: int
    real_topic: str
    real_queue_id: int

    @classmethod
    def of_record(cls, records: bytes, position: int = 0) -> TimerMessage | None:
        """The message of a record; None if it lacks what a message needs that is to wait."""
        head, bounds = unpack_record(records, position)
        properties = decode_properties(records[bounds[4] : bounds[5]])
        topic, queue_id = properties.get(REAL_TOPIC), properties.get(REAL_QID, "")
        out_ms, is_timed = properties.get(TIMER_OUT_MS, ""), records[bounds[2] : bounds[3]] == _TIMER_TOPIC
        if topic is None or not (is_timed and _is_number(queue_id, 10) and _is_number(out_ms, 18)):
            return None
        properties.pop(PROPERTY_CRC32, None)  # the record that it becomes has its own
        return cls(records, head, bounds, properties, int(out_ms), topic, int(queue_id))

    @property
    def commit_log_offset(self) -> int:
        """Of its record."""
        return self.head[6]

    @property
    def record(self) -> bytes:
        """Its record."""
        end = self.bounds[5]
        return self.records[end - self.head[0] : end]

    @property
    def stored_ms(self) -> int:
        """Store time of its record in ms."""
        return self.head[10]

    @property
    def deletes(self) -> DeleteKey | None:
        """The key of the message that this one deletes, if it is of its topic; None: it is to be delivered itself."""
        deleted, topic = self.properties.get(TIMER_DEL_UNIQKEY), self.real_topic
        # RocketMQ writes the topic before the key up to 5.3.3, and then with appendTopicForTimerDeleteKey alone.
        return None if deleted is None else DeleteKey(topic, deleted.removeprefix(delete_key(topic, "")))

    @property
    def key(self) -> DeleteKey | None:
        """By which it may be deleted."""
        unique_key = self.properties.get(UNIQ_KEY)
        return None if unique_key is None else DeleteKey(self.real_topic, unique_key)

    def due_ms(self, unit_time: int, magic: int, precision_ms: int) -> int:
        """Time in ms of its delivery, which is exact, or of its put back, once its slot has begun."""
        if magic & _ROLL:
            return unit_time + 1
        return due_time(self.properties, self.stored_ms, self.out_ms, precision_ms)

    def row(self, unit: TimerUnit, now_ms: int) -> PutRow:
        """The row that is put when it is due: into its own topic, or back into the queue (`convert`)."""
        head, (body, body_end, *_) = self.head, self.bounds
        is_rolled = bool(unit.magic & _ROLL)
        topic, queue_id = (TIMER_TOPIC, head[3]) if is_rolled else (self.real_topic, self.real_queue_id)
        roll_times = self.properties.get(TIMER_ROLL_TIMES, "0") if is_rolled else None
        text = self._text_with(*_added(unit.write_time, now_ms, roll_times))
        return PutRow(
            topic, queue_id, self.records[body:body_end], text, head[4], head[7], head[8], head[9],
            head[12],
        )  # fmt: skip

    def _text_with(self, added: dict[str, str], added_text: bytes) -> bytes:
        """Its properties and others; its own stay as they were sent if each pair of them counts."""
        text, properties = self.records[self.bounds[4] : self.bounds[5]], self.properties
        are_whole = text.endswith(PROPERTY_SEPARATOR) and text.count(PROPERTY_SEPARATOR) == len(properties)
        if are_whole and properties.keys().isdisjoint(added):
            return text + added_text
        return write_properties(properties | added)


@lru_cache(maxsize=256)
def _added(enqueued_ms: int, now_ms: int, roll_times: str | None) -> tuple[dict[str, str], bytes]:
    """`added_when_due`, and its text: it is the same for most messages that are put at once."""
    added = added_when_due(enqueued_ms=enqueued_ms, now_ms=now_ms, roll_times=roll_times)
    return added, write_properties(added)


def _is_number(text: str, most_digits: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= most_digits
