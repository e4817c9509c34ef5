import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.errors import CorruptConsumeQueueError
from reput.formats.consume_queue import (
    DEFAULT_FILE_SIZE,
    FIELDS,
    FILLER,
    PHYSICAL_OFFSET,
    SIZE,
    TAGS_CODE,
    UNIT_SIZE,
    decode_unit,
    encode_unit,
)
from reput.formats.properties import tags_code
from reput.formats.record import decode_record
from reput.formats.record_layout import SysFlag

VECTORS = json.loads((Path(__file__).parents[2] / "golden" / "vectors.json").read_text(encoding="utf-8"))
RECORDS = VECTORS["commitLog"]["records"]
DELAY_LEVEL_3_MS = 10_000


def units_of(hex_bytes):
    data = bytes.fromhex(hex_bytes)
    return [decode_unit(data, position) for position in range(0, len(data), UNIT_SIZE)]


@pytest.mark.parametrize("vector", RECORDS, ids=lambda vector: vector["name"])
def test_units_of_rocketmq_follow_from_their_records(vector):
    message = decode_record(bytes.fromhex(vector["recordHex"]))
    if message.sys_flag & SysFlag.TRANSACTION_MASK in (SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK):
        assert vector["consumeQueueEntryHex"] is None
        return
    delayed = message.topic == "SCHEDULE_TOPIC_XXXX"
    code = message.store_timestamp + DELAY_LEVEL_3_MS if delayed else tags_code(message.tags)
    unit = encode_unit(message.commit_log_offset, message.store_size, code)
    assert unit.hex() == vector["consumeQueueEntryHex"]


@pytest.mark.parametrize("queue", VECTORS["consumeQueues"])
def test_queues_of_rocketmq_list_the_records_of_their_messages(queue):
    topic, queue_id = queue.rsplit("/", 1)
    stored = [
        (vector["physicalOffset"], vector["totalSize"])
        for vector in RECORDS
        if (vector["topic"], vector["queueId"]) == (topic, int(queue_id)) and vector["consumeQueueEntryHex"]
    ]
    assert [unit[:2] for unit in units_of(VECTORS["consumeQueues"][queue])] == stored


def test_filler_stands_before_the_first_unit_of_a_queue_that_does_not_begin_at_0():
    vector = VECTORS["fillPreBlank"]
    units = units_of(vector["fileHex"])
    assert len(units) * UNIT_SIZE == vector["mappedFileSizeConsumeQueue"]
    assert units[: vector["firstQueueOffset"]] == [FILLER] * vector["firstQueueOffset"]
    assert FILLER not in units[vector["firstQueueOffset"] :]
    assert encode_unit(*FILLER).hex() == vector["fileHex"][: 2 * UNIT_SIZE]


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1))
def test_any_unit_comes_back(offset, size, code):
    assert decode_unit(b"123" + encode_unit(offset, size, code), 3) == (offset, size, code)


def test_a_torn_unit_is_refused():
    with pytest.raises(CorruptConsumeQueueError, match="a unit takes 20 bytes, 19 are left"):
        decode_unit(bytes(39), 20)


def test_positions_and_sizes_follow_from_the_fields():
    assert (PHYSICAL_OFFSET, SIZE, TAGS_CODE) == (0, 8, 12)
    assert sum(field.size for field in FIELDS) == UNIT_SIZE == 20
    assert DEFAULT_FILE_SIZE == 300_000 * UNIT_SIZE
