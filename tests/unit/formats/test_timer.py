"""Timer wheel, timer log and timercheck: RocketMQ's bytes, read and written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.errors import CorruptStoreError
from reput.formats.java import string_hash
from reput.formats.metadata import TimerMetrics, decode_metadata, encode_metadata
from reput.formats.timer_checkpoint import TimerCheckpoint, decode_timer_checkpoint, encode_timer_checkpoint
from reput.formats.timer_log import (
    BLANK_SIZE,
    UNIT_SIZE,
    Magic,
    TimerUnit,
    decode_timer_unit,
    encode_timer_blank,
    encode_timer_unit,
    has_room_for_unit,
    units_of_file,
)
from reput.formats.timer_wheel import SLOT_SIZE, WHEEL_SIZE, Slot, decode_slot, encode_slot, slot_index

GOLDEN = Path(__file__).parents[2] / "golden"
BROKER = json.loads((GOLDEN / "timers-5.3.3.json").read_text())
VECTOR = json.loads((GOLDEN / "vectors.json").read_text(encoding="utf-8")).get("timer")
LOG = bytes.fromhex(BROKER["timerLogHex"])
INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)


def test_units_of_rocketmq_are_read_and_written() -> None:
    units = [decode_timer_unit(LOG, position) for position in range(0, len(LOG), UNIT_SIZE)]
    assert b"".join(map(encode_timer_unit, units)) == LOG
    assert [unit.magic for unit in units[4:]] == [
        Magic.DEFAULT, Magic.DEFAULT | Magic.ROLL, Magic.DEFAULT | Magic.ROLL, Magic.DEFAULT,
        Magic.DEFAULT | Magic.DELETE,
    ]  # fmt: skip
    assert units[1] == TimerUnit(0, 1, 1795578957000, 80000, 287, 294, string_hash("orders"))
    assert units[1].time == 1795579037000


def test_slots_of_rocketmq_are_read_and_written_and_lead_to_their_units() -> None:
    for number, text in BROKER["slots"].items():
        slot = decode_slot(bytes.fromhex(text))
        assert encode_slot(slot).hex() == text
        assert slot_index(slot.time * 1000, 1000) == int(number)
        unit = decode_timer_unit(LOG, slot.last_pos)
        assert unit.time == slot.time * 1000
    assert VECTOR["wheelFileSize"] == WHEEL_SIZE


def test_a_file_of_rocketmq_ends_with_a_blank_where_no_unit_fits() -> None:
    first = bytes.fromhex(VECTOR["filesHex"][0])
    size = VECTOR["timerLogFileSize"]
    end = units_of_file(size) * UNIT_SIZE
    assert first[end : end + BLANK_SIZE] == encode_timer_blank(size - end)
    assert has_room_for_unit(size, end - UNIT_SIZE)
    assert not has_room_for_unit(size, end)
    with pytest.raises(CorruptStoreError, match="expected a unit"):
        decode_timer_unit(first + bytes(8), end)


def test_the_checkpoint_of_rocketmq_is_read_and_written() -> None:
    data = bytes.fromhex(BROKER["timerCheckHex"])
    checkpoint = decode_timer_checkpoint(data)
    assert encode_timer_checkpoint(checkpoint) == data[:56]
    assert (checkpoint.last_timer_log_flush_pos, checkpoint.last_timer_queue_offset) == (len(LOG), 9)


@pytest.mark.parametrize("size", range(57))
def test_a_torn_checkpoint_is_an_earlier_bound(size: int) -> None:
    whole = TimerCheckpoint(1700000012000, 520, 10, 11, 0, 1700000012001, 4)
    torn = decode_timer_checkpoint(encode_timer_checkpoint(whole)[:size])
    assert all(0 <= found <= stored for found, stored in zip(torn, whole, strict=True))


def test_the_counts_of_rocketmq_are_read_and_written() -> None:
    metrics = decode_metadata(TimerMetrics, BROKER["timerMetrics"].encode())
    assert {topic: one.count for topic, one in metrics.timing_count.items()} == {"bills": 3, "orders": 3}
    assert json.loads(encode_metadata(metrics)) == json.loads(BROKER["timerMetrics"])


@given(st.builds(TimerUnit, INT64, st.integers(0, 15), INT64, INT32, INT64, INT32, INT32))
def test_any_unit_comes_back(unit: TimerUnit) -> None:
    assert decode_timer_unit(encode_timer_unit(unit)) == unit


@given(st.builds(Slot, INT64, INT64, INT64, INT32))
def test_any_slot_comes_back(slot: Slot) -> None:
    assert decode_slot(encode_slot(slot)) == slot


@pytest.mark.parametrize(
    ("decode", "size"), [(decode_timer_unit, UNIT_SIZE), (decode_slot, SLOT_SIZE)], ids=["unit", "slot"]
)
def test_too_few_bytes_are_refused(decode: Any, size: int) -> None:
    with pytest.raises(CorruptStoreError, match=f"takes {size} bytes, {size - 1} are left"):
        decode(bytes(size - 1))
