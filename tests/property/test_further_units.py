"""Further queues of a record and consume queue extensions: the kernels give what their plain Python twins give."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from reput.formats.consume_queue import UNIT_SIZE, Unit, decode_unit, encode_unit
from reput.formats.consume_queue_ext import END_MARK
from reput.kernels.queues.consume_queue import group_units
from reput.kernels.queues.consume_queue_ext import (
    bit_maps_of,
    encode_ext_units,
    last_ext_address,
    place_ext_units,
    resolve_tags_codes,
)
from reput.kernels.queues.multi_dispatch import add_multi_dispatch_rows
from reput.kernels.records.record_scan import RecordScanner, ScanLevel
from tests.oracles.consume_queue_ext import Extension
from tests.oracles.multi_dispatch import further_queues
from tests.oracles.record_bytes import Record, numbers, pack_log
from tests.support.asked_memory import map_of

SCANNER = RecordScanner(64, level=ScanLevel.PROPERTIES)

_NAMES = st.sampled_from(
    [b"%LMQ%a", b"%LMQ%b", b"%LMQ%", b"plain", b"", b".", b"..", b"../x", b"a\0b", b"%LMQ%" + b"x" * 250,
     b"%LMQ%" + b"x" * 251, "队列".encode(), b"\xff"]
)  # fmt: skip
_OFFSETS = st.sampled_from([b"", b"0", b"+1", b"-1", b"x", b"99999999999999999999", b"007"]) | st.integers(0, 9).map(
    lambda number: str(number).encode()
)
_LISTS = st.integers(0, 4).flatmap(
    lambda size: st.tuples(
        *(st.lists(part, min_size=size, max_size=size).map(b",".join) for part in (_NAMES, _OFFSETS))
    )
)
_OTHERS = st.sampled_from([b"", b"TAGS\x01a\x02", b"INNER_MULTI_DISPATCH\x02", b"INNER_MULTI_DISPATCHX\x01z\x02"])


@st.composite
def further_records(draw: st.DrawFn) -> Record:
    """A record that may name further queues, rightly or not."""
    names, offsets = draw(_LISTS)
    if draw(st.integers(0, 9)) == 0:
        offsets += draw(st.sampled_from([b",", b",3"]))
    pairs = [b"INNER_MULTI_DISPATCH\x01" + names + b"\x02", b"INNER_MULTI_QUEUE_OFFSET\x01" + offsets + b"\x02"]
    pairs += [draw(_OTHERS), draw(_OTHERS)]
    text = b"".join(draw(st.permutations(pairs)))
    topics = st.sampled_from(
        [b"t", b"%LMQ%a", b"%RETRY%g", b"rmq_sys_x", b"SCHEDULE_TOPIC_XXXX", b"SCHEDULE_TOPIC_XXXY"]
    )
    return Record(
        topic=draw(topics),
        queue_id=draw(st.integers(0, 2)),
        queue_offset=draw(st.integers(0, 3)),
        sys_flag=draw(st.sampled_from([0, 0, 0, 4, 8, 12, 0x80])),
        properties=text if draw(st.booleans()) else text.removesuffix(b"\x02"),
    )


@given(st.lists(further_records(), max_size=8), st.sampled_from([0, 300, 1 << 40]), st.booleans(), st.booleans())
def test_each_record_is_followed_by_a_row_for_each_queue_that_it_names(records, base_offset, enable_lmq, any_topic):
    columns = SCANNER.scan(np.frombuffer(pack_log(records, base_offset) or b"\0", np.uint8), base_offset)
    assert columns.rows == len(records)
    found, sources = add_multi_dispatch_rows(columns, enable_lmq=enable_lmq, any_topic=any_topic)
    expected = []
    for row, record in enumerate(records):
        offset = int(columns["commit_log_offset"][row])
        own = record.topic, record.queue_id
        expected.append((*own, record.queue_offset, offset, row))
        further = further_queues(
            *own, offset, record.sys_flag, record.properties, enable_lmq=enable_lmq, any_topic=any_topic
        )
        expected += [(*one, offset, -1) for one in further]
    queues = found.queues()
    assert len(set(queues)) == len(queues)
    numbers_of = found["queue"].tolist(), found["queue_offset"].tolist(), found["commit_log_offset"].tolist()
    rows = list(range(len(records))) if sources is None else sources.tolist()
    assert [(*queues[k], *rest) for k, *rest in zip(*numbers_of, rows, strict=True)] == expected


_BIT_MAPS = (
    st.none() | st.binary(max_size=30) | st.sampled_from([b"", bytes(32_747), bytes(32_748), bytes(44), bytes(45)])
)


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 2), _BIT_MAPS, numbers(32)), max_size=12), max_size=3),
    st.sampled_from([68, 100, 64, 40_000]),
    st.booleans(),
)
def test_ext_units_and_addresses_are_those_that_rocketmq_writes_one_by_one(batches, file_size, as_one):
    """Whatever the batches, each queue's extension and units are what putting one message after the other gives."""
    twins, expected = [Extension(file_size) for _ in range(3)], [[], [], []]
    written = [bytearray(), bytearray(), bytearray()]
    ends, units = [0, 0, 0], [b"", b"", b""]
    for batch in [list(chain(*batches))] if as_one else batches:
        counts = [len(queue) for queue in expected]
        records = []
        for queue, bit_map, timestamp in batch:
            records.append(
                Record(
                    queue_id=queue, queue_offset=len(expected[queue]), store_timestamp=timestamp,
                    properties=b"TAGS\x01" + bytes([97 + queue]),
                )
            )  # fmt: skip
            address = twins[queue].put(97 + queue, timestamp, bit_map or b"")
            expected[queue].append(address)
        columns = SCANNER.scan(np.frombuffer(pack_log(records, 0) or b"\0", np.uint8), 0)
        # Sliced, so that the bit maps do not begin where their buffers do.
        maps = pa.array([b"before", *(bit_map for _, bit_map, _ in batch)], pa.binary()).slice(1)
        order = [queue_id for _, queue_id in columns.queues()]
        runs = group_units(columns, np.array([counts[queue] for queue in order], np.int64), with_rows=True)
        ext = encode_ext_units(runs, columns, None, bit_maps_of(lambda _, maps=maps: maps, columns), file_size)
        for k, queue in enumerate(order):
            start, count = int(runs.starts[k]), int(runs.counts[k])
            data = ext.data[ext.starts[k] : ext.starts[k + 1]].tobytes()
            writes, ends[queue] = place_ext_units(
                ext.sizes_of(runs, k), ends[queue], file_size, runs.units.ctypes.data + start
            )
            for begin, size, offset in writes:
                content = END_MARK if begin < 0 else data[begin : begin + size]
                written[queue] = written[queue].ljust(offset, b"\0") + content
                assert offset // file_size == (offset + size - 1) // file_size
            units[queue] += runs.units[start : start + count * UNIT_SIZE].tobytes()
    for queue in range(3):
        assert bytes(written[queue]) == bytes(twins[queue].data)
        codes = [decode_unit(units[queue], p).tags_code for p in range(0, len(units[queue]), UNIT_SIZE)]
        assert codes == expected[queue]
        addresses = [code for code in codes if code < -(2**31)]
        buffer = np.frombuffer(units[queue] + b"\0", np.uint8)
        assert last_ext_address(buffer.ctypes.data, len(codes)) == (addresses[-1] if addresses else 0)


@given(
    st.lists(st.binary(max_size=12), max_size=12),
    st.lists(st.tuples(st.integers(0, 300), st.integers(-3, 3)), max_size=20),
    st.lists(st.tuples(st.integers(0, 299), st.integers(0, 255)), max_size=4),
)
def test_tags_codes_come_from_ext_units_as_long_as_they_lie_in_the_file_and_are_whole(bit_maps, places, damage):
    extension = Extension(100)
    addresses = [extension.put(1000 + i, 0, bit_map) for i, bit_map in enumerate(bit_maps)]
    for position, byte in damage:
        if position < len(extension.data):
            extension.data[position] = byte
    codes = [place - 2**63 if place >= 0 and kind else kind for place, kind in places] + addresses
    units = np.frombuffer(b"".join(encode_unit(*Unit(0, 1, code)) for code in codes) + b"\0", np.uint8).copy()
    file = np.frombuffer((extension.files() or [bytes(100)])[0], np.uint8)
    file_map = map_of(file)
    begin = 0
    while begin < len(codes):
        stop = resolve_tags_codes(units.ctypes.data, begin, len(codes), file_map.ctypes.data, 0)
        for i in range(begin, stop):
            got = decode_unit(units.data, i * UNIT_SIZE).tags_code
            assert got == (codes[i] if codes[i] >= -(2**31) else extension.tags_code(codes[i]))
        if stop < len(codes):
            assert codes[stop] >= 100 - 2**63 or extension.tags_code(codes[stop]) is None
        begin = stop + 1
