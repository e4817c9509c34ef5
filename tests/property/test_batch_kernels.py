"""The kernels of batch consume queues give what their plain Python twins give."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE, BatchUnit, encode_batch_unit
from reput.kernels.queues.batch_consume_queue import (
    NO_BATCH_QUEUE,
    find_batch_unit,
    group_batch_units,
    select_batch_units,
)
from reput.kernels.queues.consume_queue import PULL_RESULT_COUNT, Selected, SelectLimits
from reput.kernels.records.columns import NARROW, WIDE, RecordColumns, ScanStop
from tests.oracles import batch_consume_queue as twin
from tests.oracles.consume_queue import Limits
from tests.oracles.record_bytes import numbers
from tests.support.examples import examples

COUNTS = ["1", "7", "32767", "32768", "0", "-1", "+3", "", "x", "3 ", "９", "007", "9" * 30]
BASES = ["0", "12", str(2**63 - 1), str(2**63 - 32768), str(2**63), "-1", "", "1x", "9" * 19]
PAIRS = st.one_of(
    st.tuples(st.just("INNER_NUM"), st.sampled_from(COUNTS)),
    st.tuples(st.just("INNER_BASE"), st.sampled_from(BASES)),
    st.tuples(st.sampled_from(["INNER_NU", "INNER_NUMX", "INNER_BAS", "INNER_BASEX", "TAGS", "a"]), st.just("5")),
)
PROPERTIES = st.one_of(
    st.tuples(st.lists(PAIRS, max_size=5), st.sampled_from([b"", b"\x02"])).map(
        lambda drawn: b"\x02".join(f"{name}\x01{value}".encode() for name, value in drawn[0]) + drawn[1]
    ),
    st.tuples(st.integers(0, 2**40), st.integers(1, 32767)).map(
        lambda drawn: b"TAGS\x01a\x02INNER_NUM\x01%d\x02INNER_BASE\x01%d\x02" % (drawn[1], drawn[0])
    ),
    st.binary(max_size=30),
)
PLACES = st.builds(
    twin.BatchPlace,
    queue=st.integers(0, 3),
    queue_offset=st.integers(0, 99) | numbers(64),
    sys_flag=st.sampled_from([0, 0xC0, 8, 4, 12]) | numbers(32),
    properties=PROPERTIES,
    commit_log_offset=st.integers(0, 50),
    size=numbers(32),
    tags_code=numbers(64),
    store_timestamp=numbers(64),
)


def columns_of(places: list[twin.BatchPlace]) -> RecordColumns:
    """Columns of records of which the properties alone are in the buffer."""
    wide, narrow = np.zeros((len(WIDE), 40), np.int64), np.zeros((len(NARROW), 40), np.int32)
    none = np.empty(0, np.int32)
    texts = [place.properties for place in places]
    columns = RecordColumns(
        np.frombuffer(b"".join(texts) + b"!", np.uint8), 0, 0, ScanStop.FULL, wide[:, : len(places)],
        narrow[:, : len(places)], np.zeros(4, np.int32), none, none,
    )  # fmt: skip
    columns["properties_position"][:] = list(accumulate(map(len, texts), initial=0))[:-1]
    columns["properties_size"][:] = [len(text) for text in texts]
    for name, field in (("queue", "queue"), ("queue_offset", "queue_offset"), ("sys_flag", "sys_flag"),
                        ("commit_log_offset", "commit_log_offset"), ("store_size", "size"),
                        ("tags_code", "tags_code"), ("store_timestamp", "store_timestamp")):  # fmt: skip
        columns[name][:] = [getattr(place, field) for place in places]
    return columns


@given(st.lists(PLACES, max_size=30), st.lists(st.sampled_from([-2, 20, NO_BATCH_QUEUE]), min_size=4, max_size=4))
@settings(max_examples=examples(400))
def test_units_of_batch_queues_are_grouped_without_repeats(places, last_offsets):
    runs = group_batch_units(columns_of(places), np.array(last_offsets, np.int64))
    units, bounds = runs.units.tobytes(), zip(runs.starts.tolist(), runs.counts.tolist(), strict=True)
    found = [units[start : start + count * BATCH_UNIT_SIZE] for start, count in bounds]
    assert found == twin.group_batch_units(places, last_offsets)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=40), st.integers(0, 50), st.integers(-5, 400))
def test_the_unit_with_a_queue_offset_is_found(counts, first, asked):
    bases = list(accumulate(counts, initial=first))[:-1]
    units = [BatchUnit(i, 1, 0, 0, base, count) for i, (base, count) in enumerate(zip(bases, counts, strict=True))]
    data = np.frombuffer(b"".join(map(encode_batch_unit, units)), np.uint8)
    assert find_batch_unit(data.ctypes.data, len(units), asked) == twin.find_batch_unit(units, asked)


FILE_SIZE = 1000
TAGS = [0, 7, -7, 7 + (1 << 32), -(2**31)]
SOUND = st.tuples(
    st.integers(0, 5000), st.integers(80, 120), st.sampled_from(TAGS), st.just(0), st.integers(0, 60), st.integers(1, 9)
)
HOSTILE = st.tuples(
    numbers(64), numbers(32), numbers(64), numbers(64), st.integers(-(2**62), 2**62), st.integers(-(2**15), 2**15 - 1)
)
UNITS = st.lists((SOUND | HOSTILE).map(lambda fields: BatchUnit(*fields)), max_size=40)
LIMITS = st.builds(
    Limits,
    max_count=st.integers(0, 40),
    max_size=st.sampled_from([100, 350, 1 << 27]),
    memory_begin=st.sampled_from([0, 2500, 1 << 40]),
    memory_count=st.integers(1, 12),
    memory_size=st.sampled_from([1, 300, 2000]),
    disk_count=st.integers(1, 4),
    disk_size=st.sampled_from([1, 200, 1000]),
)


@given(
    UNITS, st.integers(0, 80), st.integers(0, 3000), st.integers(0, 6000), LIMITS, st.lists(st.sampled_from([7, -7]))
)
@settings(max_examples=examples(400))
def test_the_records_of_a_pull_are_chosen(units, end_offset, log_begin, log_end, limits, tags):
    expected = twin.select_batch_units(units, end_offset, log_begin, log_end, FILE_SIZE, tags, limits)
    data = np.frombuffer(b"".join(map(encode_batch_unit, units)) + b"!", np.uint8)
    hashes, room = np.array(tags, np.int32), max(limits.memory_count, limits.disk_count)
    out = np.full(PULL_RESULT_COUNT + 2 * (room + 1), -99, np.int64)
    pull_limits = np.array(
        SelectLimits(FILE_SIZE, log_end - limits.memory_begin, limits.memory_count, limits.memory_size,
                   limits.disk_count, limits.disk_size), np.int64,
    )  # fmt: skip
    select_batch_units(
        data.ctypes.data, len(units), end_offset, log_begin, log_end, hashes.ctypes.data, len(tags),
        limits.max_count, limits.max_size, pull_limits.ctypes.data, out.ctypes.data,
    )  # fmt: skip
    taken, following, status, size, last, first = out[:PULL_RESULT_COUNT].tolist()
    out = out[PULL_RESULT_COUNT:].reshape(-1, 2)
    assert [tuple(pair) for pair in out[:taken].tolist()] == expected.messages
    assert out[taken:].tolist() == [[-99, -99]] * (room + 1 - taken)
    assert (following, Selected(status).name, size) == (expected.examined, expected.status, expected.size)
    assert (last, first) == (expected.last, expected.messages[0][0] if expected.messages else 0)
