import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.formats.checkpoint import (
    CHECKPOINT_SIZE,
    FIELDS,
    USED_SIZE,
    Checkpoint,
    decode_checkpoint,
    encode_checkpoint,
    min_timestamp,
    min_timestamp_index,
)

VECTORS = json.loads((Path(__file__).parents[2] / "golden" / "vectors.json").read_text(encoding="utf-8"))
INT64 = st.integers(-(2**63), 2**63 - 1)


def test_the_checkpoint_of_rocketmq_is_read_and_written():
    hex_bytes = VECTORS["checkpointAfterShutdownHex"]
    checkpoint = decode_checkpoint(bytes.fromhex(hex_bytes))
    assert checkpoint == (1700000012000, 1700000012000, 0, 0, 0, 0)
    assert encode_checkpoint(checkpoint).hex() == hex_bytes.ljust(2 * CHECKPOINT_SIZE, "0")


@given(st.builds(Checkpoint, INT64, INT64, INT64, INT64, INT64, INT64))
def test_any_checkpoint_comes_back(checkpoint):
    page = encode_checkpoint(checkpoint)
    assert len(page) == CHECKPOINT_SIZE == 4096
    assert decode_checkpoint(page) == checkpoint


def test_a_checkpoint_of_rocketmq_4_has_24_bytes_in_use():
    page = encode_checkpoint(Checkpoint(1, 2, 3, 4, 5, 6))
    assert decode_checkpoint(page[:24] + bytes(4072)) == Checkpoint(1, 2, 3)


@pytest.mark.parametrize("size", range(49))
def test_a_torn_checkpoint_is_an_earlier_bound(size):
    whole = Checkpoint(1700000012000, 1700000012001, 1700000012002, 4, 5, 6)
    torn = decode_checkpoint(encode_checkpoint(whole)[:size])
    assert all(0 <= found <= stored for found, stored in zip(torn, whole, strict=True))


@pytest.mark.parametrize(
    ("checkpoint", "of_log_and_queues", "of_index"),
    [
        (Checkpoint(0, 0, 0), 0, 0),
        (Checkpoint(2999, 5000, 9000), 0, 0),
        (Checkpoint(10_000, 8000, 9000), 5000, 5000),
        (Checkpoint(10_000, 80_000, 6000), 7000, 6000),
        (Checkpoint(-1, -1, 0), 0, 0),
    ],
)
def test_the_bound_is_3_seconds_before_the_lesser_time(checkpoint, of_log_and_queues, of_index):
    assert min_timestamp(checkpoint) == of_log_and_queues
    assert min_timestamp_index(checkpoint) == of_index


def test_six_numbers_are_in_use():
    assert [field.size for field in FIELDS] == [8] * 6
    assert USED_SIZE == 48
