"""Key and value of a unit in a RocksDB, and the names of its files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.formats.consume_queue import encode_unit
from reput.formats.java import INT32_MAX, INT64_MAX
from reput.formats.rocksdb import (
    UnitKey,
    decode_key,
    encode_key,
    encode_value,
    is_data_file,
    is_rocksdb_file,
    queue_prefix,
    unit_of,
)

#: As RocketMQ 5.5.1 wrote it: topic `t`, queue 1, queue offset 2.
KEY = bytes.fromhex("00000001 01 74 01 00000001 01 0000000000000002")


def test_a_key_is_the_bytes_that_rocketmq_writes() -> None:
    assert encode_key(b"t", 1, 2) == KEY
    assert decode_key(KEY) == UnitKey(b"t", 1, 2)


@given(
    topic=st.binary(min_size=1, max_size=255),
    queue_id=st.integers(0, INT32_MAX),
    queue_offset=st.integers(0, INT64_MAX),
)
def test_a_key_is_decoded_as_it_was_encoded(topic: bytes, queue_id: int, queue_offset: int) -> None:
    key = encode_key(topic, queue_id, queue_offset)
    assert decode_key(key) == (topic, queue_id, queue_offset)
    assert key.startswith(queue_prefix(topic, queue_id))


@given(key=st.binary(max_size=300))
def test_other_bytes_are_no_key(key: bytes) -> None:
    decoded = decode_key(key)
    assert decoded is None or encode_key(*decoded) == key


@pytest.mark.parametrize(
    "key",
    [
        b"",
        KEY[:-1],
        KEY + b"\0",
        b"\0\0\0\2" + KEY[4:],
        b"\x7f\xff\xff\xff" + KEY[4:],
        b"\xff\xff\xff\xff" + KEY[4:],
        KEY[:4] + b"\2" + KEY[5:],
        KEY[:6] + b"\0" + KEY[7:],
        KEY[:11] + b"\2" + KEY[12:],
        encode_key(b"", 0, 0),
        encode_key(b"t" * 256, 0, 0),
        encode_key(b"t", -1, 0),
        encode_key(b"t", 0, -1),
    ],
)
def test_a_length_or_a_number_in_a_key_is_not_believed_where_it_cannot_be(key: bytes) -> None:
    assert decode_key(key) is None


def test_keys_of_a_queue_are_in_the_order_of_queue_offsets_and_of_no_other_queue() -> None:
    keys = [encode_key(b"t", 1, offset) for offset in (0, 1, 255, 256, INT64_MAX)]
    assert sorted(keys) == keys
    others = [encode_key(b"t", 0, INT64_MAX), encode_key(b"t", 2, 0), encode_key(b"tt", 1, 5), encode_key(b"s", 1, 5)]
    assert all(not keys[0] <= key <= keys[-1] for key in others)


def test_a_value_begins_with_the_unit() -> None:
    value = encode_value(1000, 200, -5, 1_700_000_000_000)
    assert unit_of(value) == encode_unit(1000, 200, -5)
    assert unit_of(value[:-1]) is unit_of(value + b"\0") is None


@pytest.mark.parametrize(
    "name",
    "CURRENT IDENTITY LOCK LOG LOG.old.1764510000000000 MANIFEST-000005 OPTIONS-000007 OPTIONS-000007.dbtmp 000012.sst "
    "000004.log 000009.blob store_consumequeue_LOG".split(),
)
def test_a_name_of_rocksdbs_is_one(name: str) -> None:
    assert is_rocksdb_file(name)


@pytest.mark.parametrize(
    "name", ["order", "current", "CURRENT2", "12", "00000000000000000000", "a.sst", ".log", "LOG.old"]
)
def test_a_name_of_another_file_is_none(name: str) -> None:
    assert not is_rocksdb_file(name)


def test_what_holds_keys_or_names_their_files_is_data() -> None:
    names = "CURRENT IDENTITY LOCK LOG MANIFEST-000005 OPTIONS-000007 000012.sst 000004.log".split()
    assert [name for name in names if is_data_file(name)] == ["CURRENT", "MANIFEST-000005", "000012.sst", "000004.log"]
