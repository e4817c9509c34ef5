"""A slot whose time has come: which of its messages are next."""

from __future__ import annotations

import pytest

from reput.broker.timer import open_slot
from reput.broker.timer.open_slot import OpenSlot
from reput.broker.timer.timer_message import TimerMessage
from reput.formats.record_layout import encode_topic, pack_record, unpack_record
from reput.formats.timer_log import TimerUnit

_MAGIC, _TOPIC = encode_topic("t")
RECORD = pack_record(_MAGIC, 0, 0, 0, 0, 0, 0, 0, bytes(8), 0, bytes(8), 0, 0, b"", _TOPIC, b"")


def slot_of(*messages: tuple[int, int]) -> OpenSlot:
    """A slot with messages: when each is due, and the size of its record."""
    slot = OpenSlot(0, [])
    for due_ms, size in messages:
        slot.add(due_ms, TimerUnit(-1, 1, 0, 0, 0, size, 0))
    return slot


@pytest.mark.parametrize(
    ("now_ms", "most", "most_bytes", "expected"),
    [
        (0, 9, 999, []),
        (9, 9, 999, [1, 2, 4, 3]),
        (2, 9, 999, [1, 2, 4]),
        (9, 2, 999, [1, 2]),
        (9, 9, 25, [1, 2]),
        (9, 9, 30, [1, 2, 4]),
        (9, 9, 5, [1]),
    ],
)
def test_the_next_messages_are_taken_up_to_a_number_and_a_size(
    now_ms: int, most: int, most_bytes: int, expected: list[int]
) -> None:
    slot = slot_of((1, 10), (2, 10), (3, 10), (2, 10))
    taken = slot.take(now_ms, most, most_bytes)
    assert [one.number for one in taken] == expected
    assert [one.number for one in slot.take(9, 9, 999)] == [one for one in (1, 2, 4, 3) if one not in expected]


def test_messages_that_are_put_back_are_the_next_ones() -> None:
    slot = slot_of((1, 10), (1, 10), (5, 10))
    slot.put_back(slot.take(1, 2, 999))
    assert slot.next_due_ms == 1
    assert [one.number for one in slot.take(5, 9, 999)] == [1, 2, 3]
    assert slot.next_due_ms is None


def test_messages_that_were_taken_are_undelivered_until_the_next_are_taken() -> None:
    slot = slot_of((1, 10), (5, 10))
    assert slot.undelivered_ms == 1
    slot.take(1, 9, 999)
    assert (slot.undelivered_ms, slot.next_due_ms) == (1, 5)
    slot.take(1, 9, 999)
    assert slot.undelivered_ms == 5
    slot.take(5, 9, 999)
    slot.take(5, 9, 999)
    assert slot.undelivered_ms is None


def test_the_first_messages_are_kept_up_to_a_number_and_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    message = TimerMessage(b"", *unpack_record(RECORD, 0), {}, 0, "orders", 0)
    for most, most_bytes, expected in ((2, 99, [1, 2]), (9, 35, [1, 2, 3])):
        monkeypatch.setattr(open_slot, "_MOST_KEPT", most)
        monkeypatch.setattr(open_slot, "_MOST_KEPT_BYTES", most_bytes)
        slot = OpenSlot(0, [])
        for _ in range(5):
            slot.add(1, TimerUnit(-1, 1, 0, 0, 0, 10, 0), message)
        assert [one.number for one in slot.take(1, 9, 999) if one.message is message] == expected
