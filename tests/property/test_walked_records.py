"""What a client decodes of a pull in one walk, beside the decoding of each record and of all properties."""

from __future__ import annotations

from collections.abc import Iterator
from struct import pack
from typing import TypeAlias

from hypothesis import example, given, settings
from hypothesis import strategies as st

from reput.client.instance.message_client_ext import decode_messages
from reput.errors import CorruptRecordError
from reput.formats.hosts import encode_host
from reput.formats.message import Message
from reput.formats.message_ext import MessageExt
from reput.formats.properties import decode_properties, property_values
from reput.formats.record import encode_record
from reput.formats.record_layout import unpack_record, walk_records
from reput.remoting.queue_tables import QueueKey
from tests.support.examples import examples

Walked: TypeAlias = tuple[int, int, int, int, bytes, bytes]
HOSTS = st.sampled_from(["127.0.0.1:10911"] * 3 + ["[::1]:10911"])
#: Texts that are nearly properties.
PARTS = st.sampled_from([b"TAGS", b"KEYS", b"T", b"\x01", b"\x02", b"a", b" ", b"\xff", b"\xc3", b"\xa4"])
TOPICS = st.sampled_from(["orders", "t" * 127])
TEXTS = st.text(st.characters(exclude_characters="\x01\x02 ", exclude_categories=["Cs"]), min_size=1, max_size=5)


@st.composite
def records(draw: st.DrawFn) -> bytes:
    properties = draw(st.dictionaries(TEXTS.map("p{}".format), TEXTS, max_size=2))
    tags, keys = draw(st.none() | TEXTS), draw(st.lists(TEXTS, max_size=2))
    message = Message(draw(TOPICS), draw(st.binary(max_size=20)), tags, keys, properties)
    return encode_record(
        message, queue_id=0, queue_offset=draw(st.integers(0, 1 << 40)), commit_log_offset=0, store_timestamp=1,
        store_host=encode_host(draw(HOSTS)), born_timestamp=1, born_host=encode_host(draw(HOSTS)),
    )  # fmt: skip


@given(st.lists(records(), max_size=5))
def test_a_walk_finds_what_the_records_hold(found: list[bytes]) -> None:
    body = b"".join(found)
    messages = [MessageExt(one) for one in found]
    walked = list(walk_records(body))
    assert [one[1:5] for one in walked] == [(m.queue_offset, m.sys_flag, m.body_crc, m.body) for m in messages]
    for (position, *_, properties), one in zip(walked, found, strict=True):
        assert body[position : position + len(one)] == one
        assert one.endswith(properties)
        assert len(properties) == -1 * (unpack_record(one, 0)[1][4] - len(one))
    decoded = decode_messages(body, QueueKey("orders", "a", 0), None)
    assert [(m.body, m.tags, m.keys, m.properties, m.queue_offset) for m in decoded] == [
        (m.body, m.tags, m.keys, m.properties, m.queue_offset) for m in messages
    ]


def unpacked(body: bytes) -> Iterator[Walked]:
    """What `walk_records` yields, record by record."""
    position = 0
    while position < len(body):
        head, bounds = unpack_record(body, position)
        yield position, head[5], head[7], head[2], body[bounds[0] : bounds[1]], body[bounds[4] : bounds[5]]
        position += head[0]


def until_damage(found: Iterator[Walked]) -> tuple[list[Walked], str]:
    """All that is found, and the error that ends it."""
    good = []
    try:
        for one in found:
            good.append(one)
    except CorruptRecordError as error:
        return good, str(error)
    return good, ""


@settings(max_examples=examples(500))
@given(st.data(), st.lists(records(), min_size=1, max_size=3))
def test_a_walk_over_damage_ends_where_records_are_damaged(data: st.DataObject, found: list[bytes]) -> None:
    number = data.draw(st.integers(0, len(found) - 1))
    _, (_, body_end, _, topic_end, properties, _) = unpack_record(found[number], 0)
    lengths = [*range(8), *range(36, 40), *range(84, 88), body_end, *range(topic_end, properties)]
    where = sum(map(len, found[:number])) + data.draw(st.sampled_from(lengths))
    body = bytearray(b"".join(found))
    body[where] = data.draw(st.sampled_from([0, 1, 2, 127, 128, 255]) | st.integers(0, 255))
    damaged = bytes(body[: data.draw(st.just(len(body)) | st.integers(0, len(body)))])
    assert until_damage(walk_records(damaged)) == until_damage(unpacked(damaged))


def test_lengths_below_zero_that_add_up_are_damage() -> None:
    head = encode_record(
        Message("t", b""), queue_id=0, queue_offset=0, commit_log_offset=0, store_timestamp=1,
        store_host=encode_host("127.0.0.1:1"), born_timestamp=1, born_host=encode_host("127.0.0.1:1"),
    )[:84]  # fmt: skip
    for size, body_size, tail in (
        (291, 0, bytes([200]) + b"t" * 200 + bytes(2)),  # a topic of -56 bytes
        (96, 0, bytes([10]) + b"t" * 10 + pack(">h", -5)),
        (83, -8, bytes(20)),
    ):
        record = pack(">i", size) + head[4:] + pack(">i", body_size) + tail
        found = until_damage(walk_records(record))
        assert found == until_damage(unpacked(record))
        assert found[1]


@given(st.lists(st.lists(PARTS, max_size=12).map(b"".join), max_size=4))
@example([b"XTAGS\x01a\x02", b"TAGS\x01a\x02TAGS\x01\x02", b"a\x01TAGS\x01b\x02", b"TAGS\x01a"])
def test_one_property_of_texts_is_that_of_all_their_properties(texts: list[bytes]) -> None:
    for name in ("TAGS", "KEYS", "T"):
        assert property_values(texts, name) == [decode_properties(text).get(name) for text in texts]
