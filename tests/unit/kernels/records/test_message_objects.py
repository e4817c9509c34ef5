"""Messages that a kernel encodes are those of `formats`, byte for byte; what it does not know it leaves alone."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.formats.hosts import encode_host
from reput.formats.message import Message, check_message
from reput.formats.record import decode_record, encode_record
from reput.formats.record_layout import QUEUE_ID, QUEUE_OFFSET
from reput.kernels.records.message_objects import MessageEncoder, encode_message, encode_messages

MAX_BODY = 100
NOW = 1_700_000_000_001
PLACE = {"queue_id": 7, "queue_offset": 1 << 40, "commit_log_offset": 1 << 50}
HOSTS = [encode_host("10.0.0.1:10911"), encode_host("[2001:db8::1]:10911")]
UNTOUCHED = 0xAA


class Encoded:
    """One call of `encode_message`: what it answered, and what it left in the memory."""

    def __init__(self, message: object, room: int = 100_000, host: bytes = HOSTS[0]) -> None:
        encoder = MessageEncoder(host, MAX_BODY)
        self.memory: npt.NDArray[np.uint8] = np.full(room + 64, UNTOUCHED, np.uint8)
        address = self.memory.ctypes.data
        self.size: int = encode_message(encoder.address, id(message), address, room, *PLACE.values(), NOW)

    @property
    def data(self) -> bytes:
        return self.memory[: self.size].tobytes()

    @property
    def untouched(self) -> bool:
        return bool((self.memory[max(self.size, 0) :] == UNTOUCHED).all())


def twin(message: Message, host: bytes) -> bytes:
    """The record by `formats`."""
    check_message(message, max_message_size=MAX_BODY)
    born = NOW if message.born_timestamp is None else message.born_timestamp
    return encode_record(
        message, **PLACE, store_timestamp=NOW, store_host=host, born_timestamp=born, born_host=host
    )  # fmt: skip


class Text(str):
    """A text with a type of its own."""


class Number(IntEnum):
    ONE = 1


class OwnMessage(Message):
    """A message with a type of its own."""


_topics = st.text("abz09%|_-", min_size=1, max_size=12) | st.sampled_from(["x" * 127, "%RETRY%" + "g" * 120])
_texts = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=40)
_keys = st.lists(_texts.filter(lambda text: " " not in text), max_size=4)
_names = _texts.filter(
    lambda name: name not in {"TAGS", "KEYS", "UNIQ_KEY", "WAIT", "INNER_NUM", "INNER_BASE", "__CRC32#"}
)
_ints = st.integers(-(1 << 31), (1 << 31) - 1)
_longs = st.integers(-(1 << 63), (1 << 63) - 1)
plain_fields: dict[str, Any] = {
    "topic": _topics,
    "body": st.binary(max_size=MAX_BODY),
    "tags": st.none() | _texts,
    "keys": _keys | _keys.map(tuple),
    "properties": st.none() | st.dictionaries(_names, _texts, max_size=5),
    "flag": _ints,
    "unique_key": st.none() | _texts,
    "sys_flag": _ints.map(lambda flag: flag & ~0xC4) | _ints.map(lambda flag: flag & ~0xC4 | 0x8),
    "born_timestamp": st.none() | _longs,
    "reconsume_times": _ints,
    "prepared_transaction_offset": _longs,
}
#: Values that are not plain, some of them illegal, by field.
ODD: dict[str, list[Any]] = {
    "topic": ["", "x" * 128, Text("topic"), None, b"topic", 1],
    "body": [b"x" * (MAX_BODY + 1), bytearray(b"x"), memoryview(b"x"), "text", None, 1],
    "tags": ["", "a\x01b", "\x02", "\ud800", Text("tag"), 1, b"tag"],
    "keys": ["text", None, [""], ["a b"], ["a\x01"], ["\ud800"], [1], [None], {"a"}, (Text("key"),), iter(["a"])],
    "properties": [{"a": ""}, {"": "a"}, {"TAGS": "x"}, {"KEYS": "x"}, {"UNIQ_KEY": "x"}, {"INNER_NUM": "1"},
                   {"INNER_BASE": "1"}, {"__CRC32#": "1"}, {"a": "\x01"}, {"a\x02": "b"}, {"a": 1}, {1: "a"}, "text",
                   [("a", "b")], {"a": "x" * 32_765}, {"a": "\ud800"}],
    "flag": [1 << 31, -(1 << 31) - 1, 1 << 70, 1.0, None, "1", True, Number.ONE],
    "unique_key": ["", "\x01", "x" * 32_758, 1, Text("key")],
    "sys_flag": [4, 0xC, 0x40, 0x80, 1 << 31, None],
    "born_timestamp": [1 << 63, 1.5, "now"],
    "born_host": ["10.0.0.1:1", "nowhere", 1],
    "reconsume_times": [1 << 31, 1.0],
    "prepared_transaction_offset": [1 << 63, None],
    "wait_store_msg_ok": [False, 1],
}  # fmt: skip


@given(message=st.builds(Message, **plain_fields), host=st.sampled_from(HOSTS))
def test_a_plain_message_becomes_the_record_of_its_twin(message: Message, host: bytes) -> None:
    expected = twin(message, host)
    encoded = Encoded(message, len(expected), host)
    assert encoded.data == expected
    assert encoded.untouched
    refused = Encoded(message, len(expected) - 1, host)
    assert refused.size < 0
    assert refused.untouched


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in ODD.items() for value in values])
def test_a_message_that_is_not_plain_is_left_alone(field: str, value: object) -> None:
    message = Message(**{"topic": "topic", "body": b"body", field: value})  # type: ignore[arg-type]
    encoded = Encoded(message)
    assert encoded.size == 0
    assert encoded.untouched


@given(st.builds(Message, **{
    name: values | st.sampled_from(ODD.get(name, [None])) for name, values in plain_fields.items()
}))  # fmt: skip
def test_whatever_a_message_holds_it_is_the_twins_record_or_left_alone(message: Message) -> None:
    encoded = Encoded(message)
    assert encoded.untouched
    if encoded.size > 0:
        assert encoded.data == twin(message, HOSTS[0])


@pytest.mark.parametrize("thing", [None, 1, "text", object(), OwnMessage("topic", b"")])
def test_what_is_no_message_is_left_alone(thing: object) -> None:
    assert Encoded(thing).size == 0


@pytest.mark.parametrize("field", list(plain_fields))
def test_a_message_without_one_of_its_fields_is_left_alone(field: str) -> None:
    message = Message("topic", b"body")
    delattr(message, field)
    assert Encoded(message).size == 0


def test_a_text_that_utf8_cannot_hold_leaves_no_error_behind() -> None:
    assert Encoded(Message("topic", b"", tags="\ud800")).size == 0
    assert int("1") == 1  # an error that was left set would be raised by the next call into C


def _some(
    messages: tuple[object, ...],
    begin: int = 0,
    capacity: int = 10_000,
    *,
    topics: list[object] | None = None,
    queue_ids: list[int] | None = None,
) -> tuple[int, list[bytes]]:
    """What `encode_messages` answers, and the records that it wrote."""
    encoder, out = MessageEncoder(HOSTS[0], MAX_BODY), np.full(capacity + 64, UNTOUCHED, np.uint8)
    positions = np.zeros(len(messages) - begin + 1, np.int32)
    topics = [getattr(message, "topic", None) for message in messages] if topics is None else topics
    ids = np.array([7] * len(messages) if queue_ids is None else queue_ids, np.int32)
    end = encode_messages(
        encoder.address, id(messages), id(topics), ids, begin, NOW, out.ctypes.data, capacity, positions
    )  # fmt: skip
    bounds = positions[: end - begin + 1].tolist()
    assert (out[bounds[-1] :] == UNTOUCHED).all()
    return end, [out[a:b].tobytes() for a, b in pairwise(bounds)]


def test_several_messages_lie_one_behind_the_other_without_their_places() -> None:
    topics, ids = [f"topic-{i % 3}" for i in range(20)], [i % 7 << 28 for i in range(20)]
    messages = tuple(Message(topics[i], b"x" * i, keys=[f"k{i}"], born_timestamp=i) for i in range(20))
    end, records = _some(messages, 3, queue_ids=ids)
    assert end == 20
    for message, queue_id, record in zip(messages[3:], ids[3:], records, strict=True):
        expected = bytearray(twin(message, HOSTS[0]))
        expected[QUEUE_ID : QUEUE_ID + 4] = queue_id.to_bytes(4, "big")
        expected[QUEUE_OFFSET : QUEUE_OFFSET + 16] = bytes(16)
        assert record == bytes(expected)[:56] + record[56:64] + bytes(expected)[64:]


def test_a_record_has_the_topic_that_its_queue_was_looked_up_by() -> None:
    messages = tuple(Message("changed meanwhile", b"x", born_timestamp=i) for i in range(3))
    end, records = _some(messages, topics=["a", "b", "a"])
    assert end == 3
    assert [decode_record(record).topic for record in records] == ["a", "b", "a"]


STOPS: dict[str, Callable[[], object]] = {
    "not plain": lambda: Message("topic", b"", born_host="10.0.0.1:1"),
    "no message": lambda: None,
    "no room": lambda: Message("topic", b"", tags="x" * 10_000),
    "no topic": lambda: Message("", b""),
    "a topic that is too long": lambda: Message("x" * 128, b""),
    "a topic that is no text": lambda: Message(b"topic", b""),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS)
@pytest.mark.parametrize("at", [0, 1, 4])
def test_encoding_stops_in_front_of_the_first_message_that_it_leaves_alone(stop: Callable[[], object], at: int) -> None:
    messages = [Message("topic", b"body") for _ in range(5)]
    messages[at] = stop()  # type: ignore[call-overload]
    end, records = _some(tuple(messages))
    assert (end, len(records)) == (at, at)
