"""Lists that a kernel makes of records, and messages that use them, equal what each record says by itself."""

from __future__ import annotations

import copy
import sys

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from reput.formats.message_ext import MessageExt
from reput.kernels.records.message_lists import body_list, keys_list, tags_list
from reput.kernels.records.record_scan import read_records_at
from reput.store.reads.pulled_message import PulledFields, PulledMessage
from tests.oracles.record_bytes import BASE_OFFSETS, RECORDS, Record, pack_log

FIELDS = ["body", "tags", "keys", "properties", "unique_key"]


@given(records=st.lists(RECORDS, max_size=8), base_offset=BASE_OFFSETS, read=st.permutations(FIELDS))
def test_messages_of_a_pull_equal_those_that_stand_alone(
    records: list[Record], base_offset: int, read: list[str]
) -> None:
    data = pack_log(records, base_offset)
    sizes = [len(record.pack()) for record in records]
    positions = np.cumsum([0, *sizes[:-1]], dtype=np.int64)[: len(records)]
    columns = read_records_at(np.frombuffer(data, np.uint8), positions, positions + base_offset)
    fields = PulledFields(columns)
    pulled = [PulledMessage(data, int(positions[row]), fields, row) for row in range(columns.rows)]
    alone = [MessageExt(data, int(position)) for position in positions]
    assert columns.rows == len(records)
    for name in read:
        assert [getattr(one, name) for one in pulled] == [getattr(one, name) for one in alone]
    assert pulled == alone
    assert list(map(repr, pulled)) == list(map(repr, alone))
    assert copy.copy(pulled) == alone


def test_lists_hold_one_reference_to_each_object() -> None:
    data = Record(body=b"body", properties=b"TAGS\x01paid \xff\x02KEYS\x01 first  second \x02").pack()
    columns = read_records_at(np.frombuffer(data, np.uint8), np.zeros(1, np.int64), np.zeros(1, np.int64))
    bodies, tags, keys = (make(columns, columns.buffer.ctypes.data) for make in (body_list, tags_list, keys_list))
    assert (bodies, tags, keys) == ([b"body"], ["paid \ufffd"], [("first", "second")])
    alone = [object()]
    counts = [sys.getrefcount(made) for made in (bodies[0], tags[0], keys[0], *keys[0], alone[0])]
    assert len(set(counts)) == 1  # all as the last one, which nothing but its list holds
