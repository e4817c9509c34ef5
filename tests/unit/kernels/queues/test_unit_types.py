"""Units and entries in NumPy have the names and values that formats gives them."""

from __future__ import annotations

import numpy as np
import pytest

from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE, BatchUnit, encode_batch_unit
from reput.formats.consume_queue import UNIT_SIZE, Unit, encode_unit
from reput.formats.consume_queue_ext import MIN_UNIT_SIZE, ExtHead, encode_ext_unit
from reput.formats.index_file import ENTRY_SIZE, IndexEntry, encode_entry
from reput.kernels.queues.unit_types import BATCH_UNIT_TYPE, EXT_HEAD_TYPE, INDEX_ENTRY_TYPE, UNIT_TYPE

UNIT = Unit(1 << 40, 100, -7)
BATCH_UNIT = BatchUnit(1 << 40, 100, -7, 1_700_000_000_000, 1 << 41, 3, -1, 9)
ENTRY = IndexEntry(5, 1 << 40, 60, 2)


@pytest.mark.parametrize(
    ("kind", "size", "value", "data"),
    [
        (UNIT_TYPE, UNIT_SIZE, UNIT, encode_unit(*UNIT)),
        (BATCH_UNIT_TYPE, BATCH_UNIT_SIZE, BATCH_UNIT, encode_batch_unit(BATCH_UNIT)),
        (EXT_HEAD_TYPE, MIN_UNIT_SIZE, ExtHead(20, -7, 1 << 41, 0), encode_ext_unit(-7, 1 << 41)),
        (INDEX_ENTRY_TYPE, ENTRY_SIZE, ENTRY, encode_entry(ENTRY)),
    ],
    ids=["unit", "batch unit", "ext unit", "index entry"],
)
def test_bytes_are_the_same_values_in_numpy(kind, size, value, data):
    assert kind.itemsize == size == len(data)
    found = np.frombuffer(data, kind)[0]
    assert {name: found[name] for name in kind.names} == value._asdict()
