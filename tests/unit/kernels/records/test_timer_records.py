"""Columns of messages that are to wait: `TimerMessage`, which looks at one record, is their oracle."""

from __future__ import annotations

import random

from hypothesis import example, given
from hypothesis import strategies as st

from reput.broker.timer.timer_message import TimerMessage
from reput.formats.hosts import encode_host
from reput.formats.record_layout import encode_topic, pack_record, unpack_record
from reput.formats.timer_log import TIMER_TOPIC
from reput.kernels.records.timer_records import TimerRecords

#: Pieces of properties: what counts, what does not, and what almost does.
_PIECES = st.sampled_from([
    b"REAL_TOPIC\x01orders", b"REAL_TOPIC\x01other", "REAL_TOPIC\x01ö\U0001f600".encode(), b"REAL_TOPIC\x01",
    b"REAL_TOPIC\x01\xff", b"REAL_QID\x012", b"REAL_QID\x0112345678901", b"REAL_QID\x01-1", b"REAL_QID\x01\xd9\xa3",
    b"TIMER_OUT_MS\x015000", b"TIMER_OUT_MS\x01007", b"TIMER_OUT_MS\x01" + b"9" * 18, b"TIMER_OUT_MS\x01" + b"9" * 19,
    b"TIMER_OUT_MS\x01x", b"TIMER_OUT_MS", b"TIMER_OUT_MSX\x015", b"TIMER_DEL_UNIQKEY\x01orders+u", b"\x01a", b"",
    b"KEYS\x01k\x01k", b"REAL_TOPIC\x01a\x01b", b"REAL_TOPIC\x01REAL_QID\x013",
])  # fmt: skip
_WAITS = [b"REAL_TOPIC\x01orders", b"REAL_QID\x012", b"TIMER_OUT_MS\x015000"]
_TEXTS = st.one_of(st.lists(_PIECES, max_size=8), _PIECES.map(lambda one: [*_WAITS, one]), st.permutations(_WAITS))


def record(number: int, pieces: list[bytes], topic: str = TIMER_TOPIC, ends: bool = True) -> bytes:
    magic, name = encode_topic(topic)
    host = encode_host("127.0.0.1:1" if number % 3 else "[::1]:1")
    text = b"\x02".join(pieces) + b"\x02" * ends
    return pack_record(
        magic, 0, 3, 0, number, 900 + number, 0, 70 + number, host, 80 + number, host, 0, 0, b"b", name, text
    )


@given(
    st.lists(st.tuples(_TEXTS, st.booleans(), st.sampled_from([TIMER_TOPIC, TIMER_TOPIC[:-1] + "s", "t"])), max_size=9)
)
@example([(_WAITS, False, TIMER_TOPIC), ([*_WAITS, b"REAL_TOPIC\x01"], True, TIMER_TOPIC)])
@example([([*_WAITS, b"REAL_TOPIC\x01a\x01b"], True, TIMER_TOPIC)])
def test_columns_are_what_a_look_at_each_record_finds(messages: list[tuple[list[bytes], bool, str]]) -> None:
    each = [record(number, pieces, topic, ends) for number, (pieces, ends, topic) in enumerate(messages)]
    found = TimerRecords.of(b"".join(each), TIMER_TOPIC.encode())
    assert found.end == sum(map(len, each))
    assert found.sizes.tolist() == list(map(len, each))
    for row, one in enumerate(each):
        head, _ = unpack_record(one, 0)
        values = (found.queue_offsets, found.commit_log_offsets, found.born_ms, found.stored_ms)
        assert tuple(int(column[row]) for column in values) == (head[5], head[6], head[8], head[10])
        message = TimerMessage.of_record(b"".join(each), int(found.positions[row]))
        if message is None:
            assert (found.out_ms[row], found.topics[row]) == (-1, -1)
        else:
            assert found.out_ms[row] == message.out_ms
            assert found.topic_names[found.topics[row]] == message.real_topic
            assert found.deletes[row] == (message.deletes is not None)
    assert set(found.topics.tolist()) - {-1} == set(range(len(found.topic_names)))


def test_it_ends_before_a_record_that_does_not_prove_itself() -> None:
    each = [record(number, _WAITS) for number in range(4)]
    torn = bytearray(b"".join(each))
    torn[len(each[0]) + len(each[1]) + 4] ^= 1  # the magic of the third
    assert TimerRecords.of(bytes(torn), TIMER_TOPIC.encode()).end == len(each[0]) + len(each[1])
    assert TimerRecords.of(b"".join(each)[:-1], TIMER_TOPIC.encode()).out_ms.tolist() == [5000] * 3


def test_many_topics_have_numbers_in_the_order_of_their_first_messages() -> None:
    names = [f"t{random.Random(number).randrange(9)}" for number in range(50)]
    each = [record(n, [b"REAL_TOPIC\x01" + name.encode(), *_WAITS[1:]]) for n, name in enumerate(names)]
    found = TimerRecords.of(b"".join(each), TIMER_TOPIC.encode())
    assert found.topic_names == list(dict.fromkeys(names))
    assert [found.topic_names[number] for number in found.topics] == names
