import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.errors import CorruptConsumeQueueError
from reput.formats.consume_queue import UNIT_SIZE, decode_unit
from reput.formats.consume_queue_ext import (
    BIT_MAP,
    BIT_MAP_SIZE,
    DEFAULT_FILE_SIZE,
    END_MARK,
    FIELDS,
    MAX_ADDRESS,
    MIN_UNIT_SIZE,
    SIZE,
    STORE_TIMESTAMP,
    TAGS_CODE,
    decode_address,
    decode_ext_unit,
    encode_address,
    encode_ext_unit,
    is_ext_address,
)
from reput.formats.java import string_hash

VECTOR = json.loads((Path(__file__).parents[2] / "golden" / "vectors.json").read_text("utf-8"))["consumeQueueExt"]
FILE_SIZE = VECTOR["mappedFileSizeConsumeQueueExt"]


def test_the_units_of_rocketmq_point_to_its_ext_units():
    files = [bytes.fromhex(content) for content in VECTOR["filesHex"]]
    queue = bytes.fromhex(VECTOR["cqHex"])
    for number in range(5):
        tags_code = decode_unit(queue, number * UNIT_SIZE).tags_code
        assert is_ext_address(tags_code)
        offset = decode_address(tags_code)
        assert encode_address(offset) == tags_code
        file, position = files[offset // FILE_SIZE], offset % FILE_SIZE
        unit = decode_ext_unit(file, position)
        assert unit.tags_code == string_hash("create")
        assert unit.store_timestamp == 1_700_000_000_000 + number
        assert unit.bit_map == (bytes.fromhex("8001020304050607") if number % 2 else b"")
        assert encode_ext_unit(*unit) == file[position : position + unit.size]
    assert files[0][96:98] == END_MARK


@pytest.mark.parametrize("tags_code", [0, -(2**31), 2**31 - 1, 2**63 - 1, 1_700_000_000_000])
def test_hashes_and_times_are_no_addresses(tags_code):
    assert not is_ext_address(tags_code)


def test_addresses_reach_up_to_where_hashes_begin():
    assert is_ext_address(MAX_ADDRESS)
    assert not is_ext_address(MAX_ADDRESS + 1)
    assert decode_address(MAX_ADDRESS) == 2**63 - 2**31 - 1


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.binary(max_size=300))
def test_any_unit_comes_back(tags_code, timestamp, bit_map):
    unit = decode_ext_unit(b"123" + encode_ext_unit(tags_code, timestamp, bit_map) + b"4", 3)
    assert unit == (tags_code, timestamp, bit_map)


@pytest.mark.parametrize("data", [b"", b"\0", bytes(30), END_MARK, b"\xff\xff" + bytes(40)])
def test_where_nothing_is_written_there_is_no_unit(data):
    assert decode_ext_unit(data) is None


DAMAGE = {
    "torn": lambda unit: unit[:-1],
    "smaller than its head": lambda unit: b"\0\x13" + unit[2:],
    "another bit map size": lambda unit: unit[:18] + b"\0\1" + unit[20:],
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_torn_unit_or_one_that_contradicts_itself_is_refused(damage):
    with pytest.raises(CorruptConsumeQueueError, match="an ext unit of"):
        decode_ext_unit(damage(encode_ext_unit(1, 2, b"abc")))


def test_positions_and_sizes_follow_from_the_fields():
    assert (SIZE, TAGS_CODE, STORE_TIMESTAMP, BIT_MAP_SIZE, BIT_MAP) == (0, 2, 10, 18, 20)
    assert sum(field.size for field in FIELDS[:-1]) == MIN_UNIT_SIZE == 20
    assert DEFAULT_FILE_SIZE == 48 << 20
