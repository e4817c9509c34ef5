import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.errors import CorruptConsumeQueueError
from reput.formats import batch_consume_queue as bcq
from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE, BatchUnit, decode_batch_unit, encode_batch_unit

VECTOR = json.loads((Path(__file__).parents[2] / "golden" / "vectors.json").read_text(encoding="utf-8"))


def test_the_units_of_rocketmq_are_read_and_written():
    data = bytes.fromhex(VECTOR["batchConsumeQueue"]["unitsHex"])
    units = [decode_batch_unit(data, position) for position in range(0, len(data), BATCH_UNIT_SIZE)]
    assert [(unit.base_offset, unit.message_count, unit.next_offset) for unit in units] == [
        (0, 3, 3), (3, 3, 6), (6, 1, 7),
    ]  # fmt: skip
    assert b"".join(encode_batch_unit(unit) for unit in units) == data
    assert VECTOR["batchConsumeQueue"]["fileSize"] == bcq.DEFAULT_FILE_SIZE == 300_000 * BATCH_UNIT_SIZE


@given(st.binary(min_size=BATCH_UNIT_SIZE, max_size=BATCH_UNIT_SIZE))
def test_any_unit_comes_back(data):
    assert encode_batch_unit(decode_batch_unit(b"123" + data, 3)) == data


def test_a_torn_unit_is_refused():
    with pytest.raises(CorruptConsumeQueueError, match="a unit takes 46 bytes, 45 are left"):
        decode_batch_unit(bytes(91), 46)


@pytest.mark.parametrize(
    ("unit", "in_use"),
    [
        (BatchUnit(0, 1, 0, 0, 0, 1), True),
        (BatchUnit(-1, 1, 0, 0, 0, 1), False),
        (BatchUnit(0, 0, 0, 0, 0, 1), False),
        (BatchUnit(0, 1, 0, 0, -1, 1), False),
        (BatchUnit(0, 1, 0, 0, 0, 0), False),
        (BatchUnit(0, 1, 0, 0, 0, -5), False),
    ],
)
def test_a_unit_is_in_use_as_rocketmq_sees_it(unit, in_use):
    assert unit.is_in_use is in_use


def test_positions_follow_from_the_fields():
    assert (bcq.PHYSICAL_OFFSET, bcq.SIZE, bcq.TAGS_CODE, bcq.STORE_TIMESTAMP) == (0, 8, 12, 20)
    assert (bcq.BASE_OFFSET, bcq.MESSAGE_COUNT, bcq.COMPACTED_OFFSET, bcq.RESERVED) == (28, 36, 38, 42)
    assert sum(field.size for field in bcq.FIELDS) == BATCH_UNIT_SIZE == 46
