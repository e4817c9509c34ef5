"""Every kernel gives what its plain Python twin gives."""

from __future__ import annotations

import random
import zlib
from collections import defaultdict
from itertools import accumulate, pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reput.formats.consume_queue import FILLER, UNIT_SIZE, Unit, encode_unit
from reput.formats.index_file import encode_header, entry_position, file_size
from reput.formats.java import index_hash, string_hash
from reput.formats.properties import DELAY_LEVELS_MS
from reput.kernels.machine.crc32 import crc32_slices
from reput.kernels.machine.java_hash import java_hash_slices
from reput.kernels.queues.consume_queue import (
    PULL_RESULT_COUNT,
    Selected,
    SelectLimits,
    group_units,
    select_run,
    select_units,
)
from reput.kernels.queues.index_file import put_keys
from reput.kernels.queues.index_search import (
    IndexFields,
    LogFields,
    TopicFields,
    find_entries,
    find_key,
    scratch_row,
    split_index_keys,
    topic_hash,
    verify_keys,
)
from reput.kernels.records.columns import NARROW, WIDE, RecordColumns, ScanStop
from reput.kernels.records.content_hash import IGNORABLE, hash_contents, ignored_mask
from reput.kernels.records.property_slices import find_property_slices
from reput.kernels.records.record_batch import SCHEMA, record_batch
from reput.kernels.records.record_encode import EncodeFault
from reput.kernels.records.record_scan import RecordScanner, ScanLevel, read_records_at
from reput.kernels.records.record_search import find_record
from reput.kernels.records.tags import keep_matching_tags
from tests.oracles import consume_queue as queue_twin
from tests.oracles import content_hash as content_twin
from tests.oracles import index_file as index_twin
from tests.oracles import record_batch as batch_twin
from tests.oracles import record_encode as encode_twin
from tests.oracles import record_scan as scan_twin
from tests.oracles.encoded_rows import BORN_HOSTS, STORE_HOSTS, EncodedRows
from tests.oracles.record_bytes import (
    BASE_OFFSETS,
    PROPERTIES,
    RECORDS,
    Record,
    blank,
    logs,
    numbers,
    pack_log,
)
from tests.support.asked_memory import map_of
from tests.support.examples import examples

HEADER = [*WIDE[:5], *NARROW[:8], "status"]
SLICES = ["body", "topic", "properties", "tags", "keys", "unique_key"]
COLUMNS = {
    ScanLevel.HEADER: [*HEADER, *SLICES[:3]],
    ScanLevel.QUEUES: [*HEADER, *SLICES[:3], "queue"],
    ScanLevel.PROPERTIES: [*HEADER, *SLICES, "queue", "tags_code"],
    ScanLevel.KEYS: [*HEADER, *SLICES, "queue", "tags_code"],
}
#: Used again and again, as in a store: what one scan leaves behind must not show in the next.
SCANNERS = {level: RecordScanner(64, level=level) for level in ScanLevel}

#: As live dispatch and recovery of each RocketMQ version ask for: (delay levels, whether tags are keys).
RULES = {
    (delays, tags): RecordScanner(64, delays_ms=delays, index_tags=tags)
    for delays in ((), DELAY_LEVELS_MS)
    for tags in (False, True)
}

levels = st.sampled_from(list(ScanLevel))


def as_array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8).copy()


def shown(columns: RecordColumns, names: list[str]) -> list[dict]:
    """The rows as the twin shows them: slices as bytes."""
    data = columns.buffer.tobytes()
    rows = []
    for row in range(columns.rows):
        values = {}
        for name in names:
            if name in SLICES:
                start = int(columns[f"{name}_position"][row])
                values[name] = data[start : start + int(columns[f"{name}_size"][row])]
            else:
                values[name] = int(columns[name][row])
        rows.append(values)
    return rows


def chosen(rows: list[dict], names: list[str]) -> list[dict]:
    return [{name: row[name] for name in names} for row in rows]


@given(logs(), levels, st.booleans(), st.booleans())
@settings(max_examples=examples(150))
def test_a_scan_is_the_plain_walk_over_records(log, level, check_crc, require_property_crc):
    data, base_offset = log
    checks = {"check_crc": check_crc, "require_property_crc": require_property_crc}
    columns = SCANNERS[level].scan(as_array(data), base_offset, **checks)
    expected = scan_twin.scan(data, base_offset, **checks)
    assert (columns.rows, columns.consumed, int(columns.stop)) == (len(expected.rows), expected.consumed, expected.stop)
    assert columns.next_offset == base_offset + expected.consumed
    assert shown(columns, COLUMNS[level]) == chosen(expected.rows, COLUMNS[level])
    assert columns.queues() == (expected.queues if level >= ScanLevel.QUEUES else [])
    keys = list(zip(columns.key_rows.tolist(), columns.key_hashes.tolist(), strict=True))
    assert keys == (expected.key_hashes if level >= ScanLevel.KEYS else [])
    for bits, found in ((1, columns.first_fault()), (16, columns.first_fault(16)), (17, columns.first_fault(17))):
        faults = [row for row, values in enumerate(expected.rows) if values["status"] & bits]
        assert found == (faults[0] if faults else len(expected.rows))


@given(logs(), st.sampled_from(list(RULES)))
def test_a_scan_by_the_rules_of_any_version_is_the_plain_walk_by_them(log, rules):
    data, base_offset = log
    columns = RULES[rules].scan(as_array(data), base_offset)
    expected = scan_twin.scan(data, base_offset, delays_ms=rules[0], index_tags=rules[1])
    assert columns["tags_code"].tolist() == [row["tags_code"] for row in expected.rows]
    assert list(zip(columns.key_rows.tolist(), columns.key_hashes.tolist(), strict=True)) == expected.key_hashes


@given(logs(), st.integers(1, 3))
def test_scans_that_go_on_where_the_last_one_stopped_are_one_scan(log, max_rows):
    data, base_offset = log
    names = [*COLUMNS[ScanLevel.KEYS][:-2], "tags_code"]
    expected = scan_twin.scan(data, base_offset)
    scanner = RecordScanner(max_rows)
    rows, keys, queues, position, stop = [], [], [], 0, ScanStop.FULL
    while stop == ScanStop.FULL:
        columns = scanner.scan(as_array(data[position:]), base_offset + position, check_crc=True)
        keys += [(len(rows) + row, hashed) for row, hashed in zip(columns.key_rows, columns.key_hashes, strict=True)]
        for row, values in enumerate(shown(columns, names)):
            queues.append(columns.queues()[columns["queue"][row]])
            rows.append(values | {"position": values["position"] + position})
        position += columns.consumed
        stop = columns.stop
    assert (rows, keys) == (chosen(expected.rows, names), expected.key_hashes)
    assert (position, int(stop)) == (expected.consumed, expected.stop)
    assert queues == [expected.queues[row["queue"]] for row in expected.rows]


@given(logs(), st.lists(st.tuples(st.integers(0, 9), st.sampled_from([0, 0, 0, 1, -1])), max_size=12))
def test_records_are_read_at_given_positions_up_to_the_first_that_is_none(log, wanted):
    data, base_offset = log
    starts = [row["position"] for row in scan_twin.scan(data, base_offset).rows]
    positions = [starts[i] + shift if i < len(starts) else len(data) - i + 5 + shift for i, shift in wanted]
    offsets = [base_offset + p if p % 3 else -1 for p in positions]
    expected = []
    for position, offset in zip(positions, offsets, strict=True):
        is_inside = 0 <= position <= len(data)
        row = scan_twin.read_record(data, position, None if offset < 0 else offset) if is_inside else 0
        if isinstance(row, int):
            break
        expected.append(scan_twin.add_properties(row) | {"status": 0})
    columns = read_records_at(as_array(data), np.array(positions, np.int64), np.array(offsets, np.int64))
    names = [*HEADER, *SLICES, "tags_code"]
    assert shown(columns, names) == chosen(expected, names)


BODIES = st.lists(RECORDS, max_size=2).map(lambda records: b"".join(record.pack() for record in records))


@given(
    st.lists(st.tuples(RECORDS, BODIES), min_size=1, max_size=5),
    BASE_OFFSETS,
    st.sampled_from(["end", "torn", "blank", "zeros"]),
    st.data(),
)
def test_the_next_record_is_found_from_anywhere_though_bodies_hold_raw_records(rows, base_offset, ending, data):
    # Each raw record in a body says that it lies elsewhere, as one that was copied from another log does.
    base_offset += 1 << 20
    records = [Record(**{**record.__dict__, "body": record.body + body}) for record, body in rows]
    log = pack_log(records, base_offset)
    starts = [row["position"] for row in scan_twin.scan(log, base_offset).rows]
    log += {"end": b"", "torn": records[0].pack()[:50], "blank": blank(38) + bytes(30), "zeros": bytes(80)}[ending]
    position = data.draw(st.integers(0, len(log)))
    found = find_record(as_array(log), base_offset, position)
    assert found == min((start for start in starts if start >= position), default=-1)


@given(logs(), st.integers(1, 3), st.data())
def test_a_record_counts_as_found_only_if_it_proves_itself(log, records, data):
    content, base_offset = log
    position = data.draw(st.integers(0, len(content)))
    expected = scan_twin.find_record(content, base_offset, position, records)
    assert find_record(as_array(content), base_offset, position, records=records) == expected


HOSTILE_TEXT = st.lists(
    st.text(max_size=8).map(lambda text: text.encode("utf-8", "surrogatepass"))
    | st.binary(max_size=6)
    | st.sampled_from(
        [b"\xe2\x82", b"\xf0\x9f\x9a", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xe0\x80", b"x" * 15]
    )
).map(b"".join)


@given(st.lists(HOSTILE_TEXT, max_size=8), st.text(max_size=20))
@settings(max_examples=examples(300))
def test_hashes_are_javas_of_the_text_with_what_is_no_utf8_replaced(texts, before):
    state = string_hash(before)
    hashes = np.empty(len(texts), np.int32)
    sizes = np.array([len(text) for text in texts], np.int64)
    buffer = as_array(b"".join(texts) or b"\0")
    java_hash_slices(np.uint32(state & 0xFFFFFFFF), buffer.ctypes.data, np.cumsum(sizes) - sizes, sizes, hashes)
    assert hashes.tolist() == [string_hash(before + text.decode("utf-8", "replace")) for text in texts]


QUERIED = st.lists(st.text(max_size=70) | st.sampled_from(["", "a", "k1", "a\x02b"]), max_size=9)


@given(st.binary(max_size=40), QUERIED)
def test_keys_of_a_query_are_hashed_as_the_index_does(topic, keys):
    data = "\x02".join(keys).encode()
    hashes, offsets = np.empty(len(keys), np.int32), np.empty(len(keys) + 1, np.int32)
    table = np.zeros(2 << len(keys).bit_length(), np.int32)
    # Behind the text lies what a read beyond it would take for a separator.
    count = split_index_keys(topic_hash(topic), as_array(data + b"\x02").ctypes.data, len(data), offsets, hashes, table)
    if not keys or any("\x02" in key for key in keys):
        assert count == -1
        return
    assert count == (len(keys) if len({*keys}) == len(keys) else -2)
    text = topic.decode("utf-8", "replace")
    assert hashes.tolist() == [index_hash(f"{text}#{key}") for key in keys]
    assert [data[a : b - 1].decode() for a, b in pairwise(offsets.tolist())] == keys


@pytest.mark.parametrize("by_tables", [False, True])
@given(data=st.binary(min_size=1, max_size=2000), cuts=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 2000))))
def test_crc32_is_that_of_zlib(by_tables, data, cuts):
    slices = [(min(a, len(data)), min(b, len(data) - min(a, len(data)))) for a, b in cuts]
    positions, sizes = (np.array([pair[i] for pair in slices], np.int64) for i in (0, 1))
    sums, buffer = np.empty(len(slices), np.uint32), as_array(data)
    crc32_slices(buffer.ctypes.data, positions, sizes, sums, by_tables)
    assert sums.tolist() == [zlib.crc32(data[p : p + n]) for p, n in slices]


PLACES = st.builds(
    queue_twin.Place,
    queue=st.integers(0, 3),
    queue_offset=st.integers(-1, 6) | numbers(64),
    sys_flag=st.sampled_from([0, 0, 0, 8, 4, 12]) | numbers(32),
    unit=st.builds(Unit, numbers(64), numbers(32), numbers(64)),
)


def columns_of(places: list[queue_twin.Place], queues: int) -> RecordColumns:
    """Columns with the rows of places in memory for more, as a scanner gives them."""
    wide, narrow = np.zeros((len(WIDE), 40), np.int64), np.zeros((len(NARROW), 40), np.int32)
    none = np.empty(0, np.int32)
    columns = RecordColumns(
        none.view(np.uint8), 0, 0, ScanStop.FULL, wide[:, : len(places)], narrow[:, : len(places)],
        np.zeros(queues, np.int32), none, none,
    )  # fmt: skip
    for row, place in enumerate(places):
        columns["queue"][row], columns["queue_offset"][row] = place.queue, place.queue_offset
        columns["sys_flag"][row] = place.sys_flag
        columns["commit_log_offset"][row], columns["store_size"][row], columns["tags_code"][row] = place.unit
    return columns


@given(st.lists(PLACES, max_size=30), st.lists(st.integers(0, 3), min_size=4, max_size=4), st.booleans(), st.data())
@settings(max_examples=examples(300))
def test_units_are_grouped_by_queue_without_repeats_up_to_a_gap(places, next_offsets, in_order, data):
    if in_order:  # most of a log goes on where the queue ended
        following = list(next_offsets)
        for i, place in enumerate(places):
            if data.draw(st.integers(0, 9)) and place.sys_flag & 0xC in (0, 8):
                places[i] = queue_twin.Place(place.queue, following[place.queue], place.sys_flag, place.unit)
                following[place.queue] += 1
    begin = data.draw(st.integers(0, len(places)))
    expected, stop = queue_twin.group_units(places, next_offsets, begin)
    given_offsets = np.array(next_offsets, np.int64)
    runs = group_units(columns_of(places, 4), given_offsets, begin)
    units = runs.units.tobytes()
    found = [units[s : s + n * UNIT_SIZE] for s, n in zip(runs.starts.tolist(), runs.counts.tolist(), strict=True)]
    assert (found, runs.stop_row) == (expected, stop)
    assert given_offsets.tolist() == next_offsets


FILE_SIZE = 1000
UNITS = st.lists(
    st.builds(Unit, st.integers(0, 5000), st.integers(80, 120), st.sampled_from([0, 7, -7, 7 + (1 << 32), -(2**31)]))
    | st.just(FILLER)
    | st.builds(Unit, numbers(64), numbers(32), numbers(64)),
    max_size=40,
)
LIMITS = st.builds(
    queue_twin.Limits,
    max_count=st.integers(0, 12),
    max_size=st.sampled_from([100, 350, 1 << 27]),
    memory_begin=st.sampled_from([0, 2500, 1 << 40]),
    memory_count=st.integers(1, 12),
    memory_size=st.sampled_from([1, 300, 2000]),
    disk_count=st.integers(1, 4),
    disk_size=st.sampled_from([1, 200, 1000]),
)


@given(
    UNITS,
    st.booleans(),
    st.sampled_from([0, 1000, 2500]),
    st.sampled_from([3500, 5000, 2**62]),
    LIMITS,
    st.lists(st.sampled_from([0, 7, -7, -(2**31), 5]), max_size=3, unique=True),
)
@settings(max_examples=examples(250))
def test_one_pull_takes_what_rocketmq_takes(units, in_order, log_begin, log_end, limits, tags):
    if in_order:
        units = sorted(units)
    expected = queue_twin.select_units(units, log_begin, log_end, FILE_SIZE, tags, limits)
    bytes_of_units = as_array(b"".join(encode_unit(*unit) for unit in units) or b"\0")
    hashes, room = np.array(tags, np.int32), max(limits.max_count, 1)
    answer = np.full(PULL_RESULT_COUNT + 2 * (room + 1), -99, np.int64)
    block = np.array(
        SelectLimits(
            FILE_SIZE, log_end - limits.memory_begin, limits.memory_count, limits.memory_size, limits.disk_count,
            limits.disk_size,
        ),
        np.int64,
    )  # fmt: skip
    select_units(
        bytes_of_units.ctypes.data, len(units), log_begin, log_end, hashes.ctypes.data, len(tags), limits.max_count,
        limits.max_size, block.ctypes.data, answer.ctypes.data,
    )  # fmt: skip
    taken, examined, status, size, last, first = answer[:PULL_RESULT_COUNT].tolist()
    out = answer[PULL_RESULT_COUNT:].reshape(-1, 2)
    assert [tuple(pair) for pair in out[:taken].tolist()] == expected.messages
    assert out[taken:].tolist() == [[-99, -99]] * (room + 1 - taken)
    assert (examined, Selected(status).name, size) == (expected.examined, expected.status, expected.size)
    assert last == expected.last
    assert first == (expected.messages[0][0] if expected.messages else 0)


@given(UNITS, st.booleans(), st.sampled_from([0, 1000]), st.sampled_from([3500, 5000, 2**62]), LIMITS)
@example([Unit(5000, 80, 0)], False, 0, 3500, queue_twin.Limits(0, 100, 1 << 40, 1, 1, 1, 1))  # all counts as on disk
@settings(max_examples=examples(250))
def test_a_pull_of_units_as_they_lie_is_the_same_pull(units, in_order, log_begin, log_end, limits):
    units = (sorted(units) if in_order else units) or [FILLER]
    expected = queue_twin.select_units(units, log_begin, log_end, FILE_SIZE, (), limits)
    bytes_of_units = as_array(b"".join(encode_unit(*unit) for unit in units))
    memory_size = log_end - limits.memory_begin
    block = np.array(
        SelectLimits(
            FILE_SIZE, memory_size, limits.memory_count, limits.memory_size, limits.disk_count, limits.disk_size
        ),
        np.int64,
    )
    taken, size, first, is_behind = select_run(
        bytes_of_units.ctypes.data, len(units), 0, log_begin, log_end, limits.max_count, limits.max_size,
        block.ctypes.data,
    )  # fmt: skip
    if taken:  # else `select_units` is asked
        assert [(unit.commit_log_offset, unit.size) for unit in units[:taken]] == expected.messages
        assert (taken, size, first) == (expected.examined, expected.size, expected.messages[0][0])
        assert is_behind == (log_end - expected.last > memory_size)


SLOTS, CAPACITY = 5, 12
PUTS = st.lists(
    st.tuples(
        st.integers(0, 2**31 - 1) | st.integers(0, 12), st.integers(0, 2**40), st.integers(0, 10**7) | numbers(64)
    ),
    max_size=20,
)


def put_entries(file: np.ndarray, header: np.ndarray, puts: list[tuple[int, int, int]], begin: int) -> int:
    hashes, offsets, times = ([row[i] for row in puts] for i in range(3))
    index_map = map_of(file)
    taken = put_keys(
        index_map.ctypes.data, file.ctypes.data + 40, file.ctypes.data + entry_position(SLOTS, 0), SLOTS, CAPACITY,
        header, np.array(hashes, np.int32), np.array(offsets, np.int64), np.array(times, np.int64), begin,
    )  # fmt: skip
    file[:40] = as_array(encode_header(index_twin.IndexHeader._make(header.tolist())))
    return int(taken)


@given(PUTS, st.integers(1, 5), st.lists(st.tuples(st.integers(0, 4), numbers(32)), max_size=2))
@settings(max_examples=examples(300))
def test_index_files_are_filled_byte_for_byte_in_any_number_of_puts(puts, step, damage):
    file = index_twin.IndexFile(SLOTS, CAPACITY)
    for slot, value in damage:
        file.data[40 + 4 * slot : 44 + 4 * slot] = value.to_bytes(4, "big", signed=True)
    data, header = as_array(bytes(file.data)), np.array(file.header, np.int64)
    begin = 0
    while begin < len(puts):
        taken = put_entries(data, header, puts[: begin + step], begin)
        done = [file.put_key(*row) for row in puts[begin : begin + step]]
        assert taken - begin == sum(done)
        assert tuple(header.tolist()) == file.header
        assert data.tobytes() == bytes(file.data)
        if not all(done):  # the rest goes into the next file, whose header begins with the end of this one
            assert header[5] == CAPACITY
            file = index_twin.IndexFile(SLOTS, CAPACITY, previous=file)
            data, header = as_array(bytes(file.data)), np.array(file.header, np.int64)
        begin = taken


#: Numbers written anywhere behind the header: (position, int32).
DAMAGE = st.lists(
    st.tuples(st.integers(40, file_size(SLOTS, CAPACITY) - 4), numbers(32) | st.integers(0, 13)), max_size=4
)


@given(
    PUTS,
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 4)), max_size=40),
    st.integers(0, 10**7),
    st.integers(0, 10**7),
    DAMAGE,
)
@settings(max_examples=examples(300))
def test_keys_are_looked_up_as_rocketmq_does_even_in_damaged_files(puts, wanted, begin, end, damage):
    file = index_twin.IndexFile(SLOTS, CAPACITY)
    for row in puts:
        file.put_key(*row)
    for position, value in damage:
        file.data[position : position + 4] = value.to_bytes(4, "big", signed=True)
    data, header = as_array(bytes(file.data)), file.header
    index_map = map_of(data)
    hashes, counts = (np.array([pair[i] for pair in wanted], np.int32) for i in (0, 1))
    expected = [(key, offset) for key, (hashed, count) in enumerate(wanted)
                for offset in file.select_phy_offset(hashed, count, begin, end)]  # fmt: skip
    left = counts.copy()
    for room in (len(expected), max(len(expected) - 1, 0)):
        left[:] = counts
        keys, offsets = np.empty(room, np.int32), np.empty(room, np.int64)
        found = find_entries(
            index_map.ctypes.data, SLOTS, header.index_count, header.begin_timestamp, begin, end, hashes, left, room,
            keys, offsets,
        )  # fmt: skip
        if room < len(expected):
            assert found == -1
        else:
            assert list(zip(keys[:found].tolist(), offsets[:found].tolist(), strict=True)) == expected
            assert [a - b for a, b in zip(counts, left, strict=True)] == [
                sum(key == i for key, _ in expected) for i in range(len(wanted))
            ]


LOG_FILE = 2048
KEYS_TEXT = st.lists(st.sampled_from([b"k", b"k1", b"kk", b"1k", b"\xff"]), max_size=3).map(b" ".join)
KEYED_RECORDS = st.builds(
    lambda topic, unique, keys, fill: Record(
        topic=topic, body=bytes(fill), properties=b"UNIQ_KEY\x01" + unique + b"\x02KEYS\x01" + keys + b"\x02"
    ),
    st.sampled_from([b"t", b"tt"]),
    st.sampled_from([b"", b"k", b"k1", b"k k1"]),
    KEYS_TEXT,
    st.integers(0, 600),
)


class KeyedLog:
    """Commit log files with keyed records: readable bytes by first offset, and mapped; `missing` is not there."""

    def __init__(self, records: list[Record], first_file: int, missing: int) -> None:
        self.begin = self.end = first_file * LOG_FILE
        self.places = []
        log: dict[int, bytes] = {}
        for record in records:
            if self.end % LOG_FILE + len(record.pack()) + 8 > LOG_FILE:
                self.end += LOG_FILE - self.end % LOG_FILE
            start = self.end - self.end % LOG_FILE
            log[start] = log.get(start, b"").ljust(self.end - start, b"\0") + pack_log([record], self.end)
            self.places.append(self.end)
            self.end += len(record.pack())
        whole = {
            start: content.ljust(LOG_FILE, b"\0") for start, content in log.items() if start // LOG_FILE != missing
        }
        self.readable = {start: content[: self.end - start] for start, content in whole.items()}
        self._files = {start: as_array(content) for start, content in whole.items()}
        self._maps = {start: map_of(data) for start, data in self._files.items()}
        addresses = [
            self._maps[start].ctypes.data if start in self._maps else 0
            for start in range(self.begin, self.end, LOG_FILE)
        ]
        self.addresses = np.array(addresses, np.int64)

    def has_key(self, offset: int, topic: bytes, key: bytes) -> bool:
        return index_twin.verify_key(self.readable, LOG_FILE, offset, topic, key)


KEYED_LOGS = st.builds(
    KeyedLog, st.lists(KEYED_RECORDS, min_size=1, max_size=16), st.integers(0, 2), st.integers(-1, 3)
)
QUERIED_KEYS = [b"k", b"k1", b"k k1", b"", b"kk", b"\xff"]


@given(KEYED_LOGS, st.data())
def test_candidates_are_verified_by_topic_and_key(log, data):
    somewhere = st.sampled_from(log.places) | st.integers(-10, log.end + 10) | numbers(64)
    candidates = data.draw(st.lists(st.tuples(st.integers(0, len(QUERIED_KEYS) - 1), somewhere), max_size=40))
    key_numbers = np.array([key for key, _ in candidates], np.int32)
    offsets = np.array([place for _, place in candidates], np.int64)
    verified = np.full(len(candidates), 9, np.uint8)
    text, topic = as_array(b"\x02".join(QUERIED_KEYS)), as_array(b"t")
    key_offsets = np.array([0, *accumulate(len(key) + 1 for key in QUERIED_KEYS)], np.int32)
    verify_keys(
        log.addresses, log.begin, log.end, LOG_FILE, topic.ctypes.data, 1, text.ctypes.data, key_offsets,
        key_numbers, offsets, *np.empty((3, offsets.size), np.int64), verified, *scratch_row(),
    )  # fmt: skip
    assert verified.tolist() == [log.has_key(place, b"t", QUERIED_KEYS[key]) for key, place in candidates]


@given(
    KEYED_LOGS, st.sampled_from(QUERIED_KEYS), st.integers(0, 6), st.integers(0, 9000), st.integers(0, 9000), st.data()
)
@settings(max_examples=examples(200))
def test_one_key_is_found_with_the_records_that_carry_it(log, key, max_count, begin, end, data):
    hashed = index_hash(f"t#{key.decode('utf-8', 'replace')}")
    file = index_twin.IndexFile(SLOTS, CAPACITY)
    entry = st.tuples(
        st.sampled_from([hashed, hashed, 5]), st.sampled_from(log.places) | numbers(64), st.integers(1, 9000)
    )
    for row in data.draw(st.lists(entry, max_size=CAPACITY)):
        file.put_key(*row)
    for position, value in data.draw(DAMAGE):
        file.data[position : position + 4] = value.to_bytes(4, "big", signed=True)
    expected = file.select_phy_offset(hashed, max_count, begin, end, lambda offset: log.has_key(offset, b"t", key))
    topic, text, index, header = as_array(b"t"), as_array(key or b"!"), as_array(bytes(file.data)), file.header
    index_map = map_of(index)
    blocks = [
        np.array(place, np.int64)
        for place in (
            TopicFields(int(topic_hash(b"t")), topic.ctypes.data, 1),
            IndexFields(index_map.ctypes.data, SLOTS, header.index_count, header.begin_timestamp),
            LogFields(log.addresses.ctypes.data, log.addresses.size, log.begin, LOG_FILE),
        )
    ]
    topic_block, index_block, log_block = (block.ctypes.data for block in blocks)
    out = np.full(max_count + 2, -99, np.int64)
    found = find_key(
        topic_block, text.ctypes.data, len(key), index_block, log_block, log.end, begin, end, out.ctypes.data, 1,
        max_count + 1,
    )  # fmt: skip
    assert out.tolist() == [-99, *expected, *[-99] * (max_count + 1 - len(expected))]
    assert found == len(expected) + 1


@given(logs(), st.lists(st.integers(-3, 9), max_size=12), st.lists(st.binary(max_size=2) | st.just(b"a"), max_size=3))
def test_tags_are_compared_by_their_text(log, wanted, texts):
    data, base_offset = log
    rows = scan_twin.scan(data, base_offset).rows
    pairs = [
        (rows[i]["commit_log_offset"], rows[i]["store_size"]) if 0 <= i < len(rows) else (base_offset + i, 91)
        for i in wanted
    ]
    texts += [rows[0]["tags"]] if rows else []
    expected = []
    for offset, size in pairs:
        row = scan_twin.read_record(data, offset - base_offset, offset) if offset >= base_offset else 0
        if not isinstance(row, int) and scan_twin.add_properties(row)["tags"] in texts:
            expected.append((offset, size))
    table, text, buffer = np.array(pairs, np.int64).reshape(-1, 2), as_array(b"".join(texts) or b"\0"), as_array(data)
    kept = keep_matching_tags(
        buffer.ctypes.data, len(data), base_offset, table.ctypes.data, len(pairs), text.ctypes.data,
        np.array([0, *accumulate(map(len, texts))], np.int32), *scratch_row(),
    )  # fmt: skip
    assert [tuple(pair) for pair in table[:kept].tolist()] == expected


@given(logs(), st.lists(st.integers(-3, 9), max_size=12), st.lists(st.sampled_from(["a", "TAGS", "KEYS"]), unique=True))
def test_property_slices_are_the_values_of_the_properties(log, wanted, names):
    data, base_offset = log
    rows = scan_twin.scan(data, base_offset).rows
    pairs = [
        (rows[i]["commit_log_offset"], rows[i]["store_size"]) if 0 <= i < len(rows) else (base_offset + i, 91)
        for i in wanted
    ]
    expected = []
    for offset, _ in pairs:
        row = scan_twin.read_record(data, offset - base_offset, offset) if offset >= base_offset else 0
        text = b"" if isinstance(row, int) else row["properties"]
        parts = [pair.partition(b"\x01") for pair in text.split(b"\x02")]
        found = {name: value for name, _, value in parts if name and value}
        expected.append([found.get(name.encode(), b"") for name in names])
    table, buffer = np.array(pairs, np.int64).reshape(-1, 2), as_array(data)
    slices = np.full((len(names), len(pairs), 2), -1, np.int64)
    joined = as_array("".join(names).encode() or b"\0")
    find_property_slices(
        buffer.ctypes.data, len(data), base_offset, table.ctypes.data, len(pairs), joined.ctypes.data,
        np.array([0, *accumulate(map(len, names))], np.int32), slices.ctypes.data, len(pairs), *scratch_row(),
    )  # fmt: skip
    values = [
        [data[address - buffer.ctypes.data :][:size] for address, size in slices[:, i].tolist()]
        for i in range(len(pairs))
    ]
    assert values == expected


@given(logs(), st.sets(st.sampled_from(IGNORABLE)), st.booleans())
@settings(max_examples=examples(100))
def test_a_content_hash_is_made_of_all_fields_but_those_that_are_ignored(log, ignored, as_map):
    data, base_offset = log
    columns = SCANNERS[ScanLevel.HEADER].scan(as_array(data), base_offset)
    rows = scan_twin.scan(data, base_offset).rows
    expected = [content_twin.hash_row(row, ignored, properties_as_map=as_map) for row in rows]
    assert hash_contents(columns, ignored_mask(tuple(ignored)), properties_as_map=as_map).tolist() == expected


def hash_of(properties: bytes, *, as_map: bool) -> int:
    """The hash of a record with this text of properties."""
    data = pack_log([Record(properties=properties)], 0)
    return int(hash_contents(SCANNERS[ScanLevel.HEADER].scan(as_array(data), 0), properties_as_map=as_map)[0])


@given(PROPERTIES, PROPERTIES, st.randoms(use_true_random=False))
@settings(max_examples=examples(200))
@example(b"".join(b"n%d\x01v\x02" % (number % 3000) for number in range(4000)), b"a\x01b", random.Random(1))
def test_properties_have_one_hash_as_a_map_however_they_are_written(text, other, chance):
    def as_map(text):
        parts = [pair.partition(b"\x01") for pair in text.split(b"\x02")]
        return {name: value for name, _, value in parts if name and value}

    pairs = [b"\x01".join(pair) for pair in as_map(text).items()]
    chance.shuffle(pairs)
    hashed = hash_of(text, as_map=True)
    assert hash_of(b"\x02".join(pairs), as_map=True) == hashed
    assert (hash_of(other, as_map=True) == hashed) is (as_map(other) == as_map(text))
    assert (hash_of(other, as_map=False) == hash_of(text, as_map=False)) is (other == text)


@given(logs(), st.permutations(SCHEMA.names), st.integers(0, len(SCHEMA.names)))
@settings(max_examples=examples(100))
def test_arrow_rows_are_the_records_decoded_one_by_one(log, names, count):
    data, base_offset = log
    names = names[:count]
    expected = scan_twin.scan(data, base_offset).rows
    columns = SCANNERS[ScanLevel.PROPERTIES].scan(as_array(data), base_offset, check_crc=True)
    batch = record_batch(columns, names, store="store")
    batch.validate(full=True)
    assert batch.schema == pa.schema([SCHEMA.field(name) for name in names])
    times = [name for name in names if name.endswith("_timestamp")]
    found = [{} for _ in expected]
    for name in names:
        array = batch.column(name).cast(pa.int64()) if name in times else batch.column(name)
        values = array.to_pylist()
        if name == "properties":
            scanned = [list(scan_twin.pairs(row["properties"])) for row in expected]
            own = {b"TAGS", b"KEYS", b"UNIQ_KEY"}
            assert [len(value) for value in values] == [len({n for n, _ in row} - own) for row in scanned]
            values = [dict(value) for value in values]
        for row, value in zip(found, values, strict=True):
            row[name] = value
    assert found == [batch_twin.show(data, row, names, "store") for row in expected]


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), max_size=40)
LINE = TEXTS.filter(lambda text: " " not in text and text)
NAMES = TEXTS.filter(lambda text: text and text not in ("TAGS", "KEYS", "UNIQ_KEY", "WAIT", "INNER_NUM", "INNER_BASE"))
ENCODE_ROWS = st.lists(
    st.builds(
        encode_twin.EncodeRow,
        topic=st.sampled_from(["t", "order-topic", "%RETRY%" + "g" * 130, "订单"]),
        queue_id=st.integers(0, 3),
        body=st.binary(max_size=300),
        tags=TEXTS,
        keys=st.lists(LINE, max_size=3),
        unique_key=TEXTS,
        properties=st.dictionaries(NAMES, TEXTS.filter(bool), max_size=3).map(lambda pairs: list(pairs.items())),
        flag=numbers(32),
        sys_flag=st.sampled_from([0, 4, 8, 12]) | numbers(32),
        born_timestamp=numbers(64),
        born_host=BORN_HOSTS,
        reconsume_times=numbers(32),
        prepared_transaction_offset=numbers(64),
    ),
    max_size=6,
)


@given(ENCODE_ROWS, STORE_HOSTS, st.integers(0, 1 << 40), st.integers(0, 1 << 42), st.integers(0, 2000), st.booleans())
@settings(max_examples=examples(100))
def test_rows_are_encoded_byte_for_byte_as_single_messages(
    rows, store_host, base_offset, store_timestamp, capacity, property_crc
):
    first_offsets = {(row.topic, row.queue_id): 5 + row.queue_id for row in rows}
    counters = defaultdict(int, first_offsets)
    expected = encode_twin.encode_rows(rows, counters, base_offset, store_timestamp, store_host, property_crc)
    encoded = EncodedRows(rows, property_crc=property_crc)
    assert encoded.measure(store_host) == -1
    assert encoded.record_sizes() == [b - a for a, b in pairwise(record_starts(expected))]
    data, next_offsets, ends = b"", encoded.queue_offsets(first_offsets), []
    while len(ends) < len(rows):
        begin = len(ends)
        chunk = encoded.encode(begin, store_host, max(capacity, encoded.record_sizes()[begin]), next_offsets,
                            base_offset + len(data), store_timestamp)  # fmt: skip
        ends += chunk.ends
        data += chunk.data
        fitting = [size for size in accumulate(encoded.record_sizes()[begin:]) if size <= capacity]
        assert len(chunk.ends) == max(len(fitting), 1)
    assert data == expected
    columns = SCANNERS[ScanLevel.HEADER].scan(as_array(data), base_offset, check_crc=True, require_property_crc=True)
    assert columns["status"].tolist() == [0 if property_crc else 16] * len(rows)
    assert encoded.offsets_by_queue(next_offsets) == {queue: counters[queue] for queue in first_offsets}


def record_starts(data: bytes) -> list[int]:
    starts = [0]
    while starts[-1] < len(data):
        starts.append(starts[-1] + int.from_bytes(data[starts[-1] : starts[-1] + 4], "big"))
    return starts


ANY_TEXT = st.text(max_size=5) | st.sampled_from(
    ["", " ", "\x01", "\x02", "a b", "TAGS", "KEYS", "UNIQ_KEY", "WAIT", "TAGT"]
)


@given(
    st.lists(
        st.builds(
            encode_twin.EncodeRow,
            body=st.binary(max_size=12),
            tags=ANY_TEXT,
            keys=st.lists(ANY_TEXT, max_size=2),
            unique_key=ANY_TEXT,
            properties=st.lists(st.tuples(ANY_TEXT, ANY_TEXT), max_size=2),
        ),
        max_size=3,
    )
)
@settings(max_examples=examples(300))
def test_the_first_row_that_may_not_be_written_is_named_with_its_fault(rows):
    faults = [(i, encode_twin.fault_of(row, 10)) for i, row in enumerate(rows)]
    expected = next((pair for pair in faults if pair[1] != "NONE"), None)
    found = EncodedRows(rows).measure(bytes(8), max_body_size=10)
    assert (None if found < 0 else (found // 16, EncodeFault(found % 16).name)) == expected
