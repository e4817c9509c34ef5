"""A message with a time as it waits, and as it is put when it is due."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.broker.timer.timer_message import TimerMessage
from reput.formats.hosts import encode_host
from reput.formats.java import string_hash
from reput.formats.properties import decode_properties
from reput.formats.record_layout import encode_topic, pack_record
from reput.formats.timer_log import TIMER_TOPIC, Magic, TimerUnit
from reput.store.puts.put_rows import PutRow

HOST = encode_host("127.0.0.1:1")
WAITS = b"REAL_TOPIC\x01orders\x02REAL_QID\x012\x02TIMER_OUT_MS\x015000\x02"
ADDED = b"TIMER_ENQUEUE_MS\x014000\x02TIMER_DEQUEUE_MS\x016000\x02"


def record(properties: bytes, topic: str = TIMER_TOPIC, body: bytes = b"body") -> bytes:
    """A record of a queue 3, with flag 7, sys flag 1, reconsumed 4 times, at offset 900 of the log."""
    magic, name = encode_topic(topic)
    return pack_record(magic, 0, 3, 7, 11, 900, 1, 1000, HOST, 2000, HOST, 4, 55, body, name, properties)


def unit(magic: int = Magic.DEFAULT) -> TimerUnit:
    return TimerUnit(-1, magic, 4000, 1000, 900, 1, string_hash("orders"))


def message(properties: bytes) -> TimerMessage:
    found = TimerMessage.of_record(record(properties))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (WAITS, WAITS + ADDED),
        (b"KEYS\x01k\x01k\x02\x02X\x01\x02" + WAITS, b"KEYS\x01k\x01k\x02" + WAITS + ADDED),
        (b"KEYS\x01k\x02" + WAITS + b"KEYS\x01l\x02", b"KEYS\x01l\x02" + WAITS + ADDED),
        (b"KEYS\x02\x01v\x02K\x01\x02" + WAITS, WAITS + ADDED),
        (WAITS[:-1], WAITS + ADDED),
        (WAITS + b"\x02", WAITS + ADDED),
        (WAITS + b"__CRC32#\x010123456789\x02", WAITS + ADDED),
        (b"TIMER_DEQUEUE_MS\x011\x02" + WAITS, b"TIMER_DEQUEUE_MS\x016000\x02" + WAITS + ADDED[:22]),
        ("K\x01ü\U0001f600\x02".encode() + WAITS, "K\x01ü\U0001f600\x02".encode() + WAITS + ADDED),
    ],
)
def test_a_message_that_is_due_has_its_properties_and_its_times(properties: bytes, expected: bytes) -> None:
    assert message(properties).row(unit(), 6000) == PutRow("orders", 2, b"body", expected, 7, 1, 1000, HOST, 4)


@given(st.lists(st.tuples(*[st.text(st.sampled_from("ab\x01\x02"), max_size=3)] * 2), max_size=5), st.booleans())
def test_no_property_that_counts_is_lost_or_changed(pairs: list[tuple[str, str]], ends: bool) -> None:
    text = "".join([f"{name}\x01{value}\x02" for name, value in pairs]).encode() + (WAITS if ends else WAITS[:-1])
    put = decode_properties(message(text).row(unit(), 6000).properties)
    assert list(put.items()) == list((decode_properties(text) | decode_properties(ADDED)).items())


@pytest.mark.parametrize("recalled", [b"orders+u", b"u"], ids=["as 5.3.3 writes it", "as 5.5.1 writes it"])
def test_a_recall_names_its_message_with_the_topic_or_without(recalled: bytes) -> None:
    recall = message(b"TIMER_DEL_UNIQKEY" + recalled + b"" + WAITS)
    assert recall.deletes == message(b"UNIQ_KEYu" + WAITS).key
    assert recall.deletes != message(b"UNIQ_KEYu" + WAITS.replace(b"orders", b"others")).key


def test_a_message_that_is_put_back_stays_in_its_queue() -> None:
    row = message(WAITS).row(unit(Magic.DEFAULT | Magic.ROLL), 6000)
    added = b"TIMER_ENQUEUE_MS\x014000\x02TIMER_ROLL_TIMES\x011\x02TIMER_DEQUEUE_MS\x016000\x02"
    assert row == PutRow(TIMER_TOPIC, 3, b"body", WAITS + added, 7, 1, 1000, HOST, 4)
    again = message(row.properties).row(unit(Magic.DEFAULT | Magic.ROLL)._replace(write_time=7000), 8000)
    assert (
        again.properties == WAITS + b"TIMER_ENQUEUE_MS\x017000\x02TIMER_ROLL_TIMES\x012\x02TIMER_DEQUEUE_MS\x018000\x02"
    )
    at_last = decode_properties(message(again.properties).row(unit(), 9000).properties)
    assert at_last["TIMER_ROLL_TIMES"] == "2"


@pytest.mark.parametrize(
    ("properties", "topic"),
    [
        (b"", TIMER_TOPIC),
        (WAITS, "orders"),
        (WAITS.replace(b"REAL_TOPIC", b"REEL_TOPIC"), TIMER_TOPIC),
        (WAITS.replace(b"5000", b"-5"), TIMER_TOPIC),
        (WAITS.replace(b"5000", b"1" * 19), TIMER_TOPIC),
        (WAITS.replace(b"REAL_QID\x012", b"REAL_QID\x01x"), TIMER_TOPIC),
        (WAITS.replace(b"REAL_QID\x012", "REAL_QID\x01\u0663".encode()), TIMER_TOPIC),
    ],
)
def test_a_message_without_what_it_needs_to_wait_is_none(properties: bytes, topic: str) -> None:
    assert TimerMessage.of_record(record(properties, topic)) is None
