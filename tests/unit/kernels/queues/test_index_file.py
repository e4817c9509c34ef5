import json
from pathlib import Path

import numpy as np
import pytest

from reput.formats.index_file import IndexEntry, IndexHeader, encode_entry, encode_header, entry_position, file_size
from reput.formats.index_file import key_hash as hash_of_key
from reput.kernels.queues.index_file import IndexKeys, IndexTable, index_keys, put_keys
from reput.kernels.queues.index_search import (
    IndexFields,
    LogFields,
    TopicFields,
    find_entries,
    find_key,
    scratch_row,
    topic_hash,
    verify_keys,
)
from reput.kernels.records.record_scan import RecordScanner
from tests.oracles import index_file as twin
from tests.oracles.record_bytes import Record, pack_log
from tests.support.asked_memory import map_of

VECTORS = json.loads((Path(__file__).parents[3] / "golden" / "vectors.json").read_text(encoding="utf-8"))
ROLLOVER = VECTORS["indexRollover"]
SLOTS, CAPACITY = ROLLOVER["hashSlotNum"], ROLLOVER["indexNum"]
FILES = [bytes.fromhex(text) for text in ROLLOVER["filesHex"]]
FOREVER = (-(2**62), 2**62)


def put_entries(data, header, hashes, offsets, timestamps, begin=0, *, slots=SLOTS, capacity=CAPACITY):
    columns = np.array(hashes, np.int32), np.array(offsets, np.int64), np.array(timestamps, np.int64)
    address, file = data.ctypes.data, map_of(data)
    taken = put_keys(
        file.ctypes.data, address + 40, address + entry_position(slots, 0), slots, capacity, header, *columns, begin
    )
    data[:40] = np.frombuffer(encode_header(IndexHeader._make(header.tolist())), np.uint8)
    return taken


def find(data, hashes, window=FOREVER, *, wanted=64, slots=SLOTS, room=100):
    """Pairs (key number, offset); None where there is no room."""
    header = twin.header_of(data)
    buffer, keys, offsets = np.frombuffer(data, np.uint8), np.empty(room, np.int32), np.empty(room, np.int64)
    left, file = np.full(len(hashes), wanted, np.int32), map_of(buffer)
    found = find_entries(
        file.ctypes.data, slots, header.index_count, header.begin_timestamp, *window, np.array(hashes, np.int32),
        left, room, keys, offsets,
    )  # fmt: skip
    return None if found < 0 else list(zip(keys[:found].tolist(), offsets[:found].tolist(), strict=True))


def test_files_that_roll_over_are_rocketmqs_byte_for_byte():
    offsets, timestamps = ROLLOVER["phyOffsets"], ROLLOVER["storeTimestamps"]
    topic, _, key = ROLLOVER["key"].partition("#")
    hashes = [hash_of_key(topic, key)] * len(offsets)
    begin, files, header = 0, [], np.array(IndexHeader(), np.int64)
    while begin < len(offsets):
        data = np.zeros(file_size(SLOTS, CAPACITY), np.uint8)
        begin = put_entries(data, header, hashes, offsets, timestamps, begin)
        files.append(data.tobytes())
        end = IndexHeader._make(header.tolist())
        header = np.array([end.end_timestamp] * 2 + [end.end_phy_offset] * 2 + [0, 0], np.int64)
    assert files == FILES


@pytest.mark.parametrize("query", ROLLOVER["queries"], ids=lambda query: f"{query['begin'] % 1000000}")
def test_windows_of_time_hit_what_rocketmq_hits(query):
    topic, _, key = ROLLOVER["key"].partition("#")
    window = query["begin"], query["end"]
    hits = [hit for data in FILES for hit in find(data, [hash_of_key(topic, key)], window)]
    assert len(hits) == query["hits"]


def test_seconds_are_cut_to_their_range():
    data, header = np.zeros(file_size(2, 8), np.uint8), np.array(IndexHeader(), np.int64)
    times = [10_000, 11_999, 9_000, 2**63 - 1, -(2**63)]
    assert put_entries(data, header, [0] * 5, range(5), times, slots=2, capacity=8) == 5
    entries = [twin.decode_entry(data.tobytes(), entry_position(2, i)) for i in range(1, 6)]
    assert [entry.time_diff for entry in entries] == [0, 1, 0, 0x7FFFFFFF, 0]


def test_without_a_begin_time_the_seconds_are_0():
    for begin in (0, -5):
        data, header = np.zeros(file_size(2, 8), np.uint8), np.array(IndexHeader(begin_timestamp=begin), np.int64)
        put_entries(data, header, [0], [9], [10**6], slots=2, capacity=8)
        assert twin.decode_entry(data.tobytes(), entry_position(2, 1)) == IndexEntry(0, 9, 0, 0)
        assert header.tolist() == [10**6, 10**6, 9, 9, 1, 2]


def test_a_full_file_takes_nothing():
    data, header = np.frombuffer(FILES[0], np.uint8).copy(), np.array(twin.header_of(FILES[0]), np.int64)
    assert put_entries(data, header, [1], [1], [1]) == 0
    assert data.tobytes() == FILES[0]


def chain(*entries, first=1, index_count=None):
    """A file of one slot whose entries 1, 2, ... are (time_diff, slot_value); each offset is 100 times its number."""
    data = bytearray(file_size(1, len(entries) + 1))
    count = len(entries) + 1 if index_count is None else index_count
    data[:40] = encode_header(IndexHeader(0, 0, 0, 0, 1, count))
    data[40:44] = first.to_bytes(4, "big", signed=True)
    for i, (time_diff, slot_value) in enumerate(entries, 1):
        place = entry_position(1, i)
        data[place : place + 20] = encode_entry(IndexEntry(7, 100 * i, time_diff, slot_value))
    return bytes(data)


CHAINS = {
    "whole": (chain((0, 0), (0, 1), (0, 2), first=3), [300, 200, 100]),
    "empty": (chain((0, 0), first=0), []),
    "negative slot": (chain((0, 0), first=-1), []),
    "slot behind the last entry": (chain((0, 0), first=2), []),
    "slot far outside": (chain((0, 0), first=0x7FFFFFFF), []),
    "entry that leads to itself": (chain((0, 0), (0, 2), first=2), [200]),
    "entries that lead to each other": (chain((0, 2), (0, 1), first=2), [200, 100]),
    "entry that leads forward": (chain((0, 2), (0, 0), first=1), [100]),
    "entry that leads far outside": (chain((0, 0x7FFFFFFF), first=1), [100]),
    "entry that leads to a negative number": (chain((0, -(2**31)), first=1), [100]),
    "negative seconds": (chain((0, 0), (-1, 1), (0, 2), first=3), [300]),
    "no entries": (chain((0, 0), first=1, index_count=1), []),
}


@pytest.mark.parametrize(("data", "offsets"), CHAINS.values(), ids=CHAINS)
def test_a_chain_is_followed_to_older_entries_only(data, offsets):
    assert find(data, [7], slots=1) == [(0, offset) for offset in offsets]


def test_a_key_gives_no_more_than_it_still_wants():
    data = chain((0, 0), (0, 1), (0, 2), first=3)
    assert find(data, [7, 7], slots=1, wanted=2) == [(0, 300), (0, 200), (1, 300), (1, 200)]
    assert find(data, [7], slots=1, wanted=0) == []
    assert find(data, [8], slots=1) == []
    assert find(data, [7], slots=1, room=3) == [(0, 300), (0, 200), (0, 100)]
    assert find(data, [7], slots=1, room=2) is None


def test_a_window_of_time_includes_both_ends_and_ends_the_walk_below():
    data = chain((1, 0), (5, 1), (3, 2), (4, 3), first=4)
    assert find(data, [7], (3000, 4000), slots=1) == [(0, 400), (0, 300)]
    assert find(data, [7], (4000, 9000), slots=1) == [(0, 400)]  # entry 2 fits, but entry 3 is too old already
    assert find(data, [7], (4001, 9000), slots=1) == []


def test_many_keys_are_found_each_in_its_own_chain():
    data, header = np.zeros(file_size(100, 301), np.uint8), np.array(IndexHeader(), np.int64)
    hashes = [i * 37 for i in range(100)] * 3
    assert put_entries(data, header, hashes, range(300), [1000] * 300, slots=100, capacity=301) == 300
    found = find(data.tobytes(), hashes[:100], slots=100, room=300)
    assert found == [(key, key + shift) for key in range(100) for shift in (200, 100, 0)]


def test_keys_of_a_scan_come_with_the_place_and_time_of_their_record():
    records = [
        Record(store_timestamp=5, properties=b"KEYS\x01a b\x02"),
        Record(store_timestamp=6),
        Record(store_timestamp=7, properties=b"UNIQ_KEY\x01u\x02KEYS\x01 a\x02"),
    ]
    data = pack_log(records, 1000)
    columns = RecordScanner(10).scan(np.frombuffer(data, np.uint8), 1000)
    keys = index_keys(columns)
    third = int(columns["commit_log_offset"][2])
    assert keys.hashes.tolist() == [hash_of_key("topic", key) for key in ("a", "b", "u", "a")]
    assert keys.offsets.tolist() == [1000, 1000, third, third]
    assert keys.timestamps.tolist() == [5, 5, 7, 7]


def verify(log_files, log_end, file_size, key, offsets, *, topic=b"topic", log_begin=0):
    buffers = [None if data is None else np.frombuffer(data.ljust(file_size, b"\0"), np.uint8) for data in log_files]
    maps = [None if buffer is None else map_of(buffer) for buffer in buffers]
    addresses = np.array([0 if one is None else one.ctypes.data for one in maps], np.int64)
    name, text = np.frombuffer(topic, np.uint8), np.frombuffer(key + b"\0", np.uint8)
    marks = np.full(len(offsets), 9, np.uint8)
    verify_keys(
        addresses, log_begin, log_end, file_size, name.ctypes.data, name.size, text.ctypes.data,
        np.array([0, len(key) + 1], np.int32), np.zeros(len(offsets), np.int32), np.array(offsets, np.int64),
        *np.empty((3, len(offsets)), np.int64), marks, *scratch_row(),
    )  # fmt: skip
    return marks.tolist()


KEYS = {
    (b"KEYS\x01k1 k2\x02", b"k1"): 1,
    (b"KEYS\x01k1 k2\x02", b"k2"): 1,
    (b"KEYS\x01 k1  k2 \x02", b"k2"): 1,
    (b"KEYS\x01k1 k2\x02", b"k"): 0,
    (b"KEYS\x01k1 k2\x02", b"1"): 0,
    (b"KEYS\x01k1 k2\x02", b"k1 k2"): 0,
    (b"KEYS\x01k1 k2\x02", b"k3"): 0,
    (b"KEYS\x01k1 k2\x02", b""): 0,
    (b"", b""): 0,
    (b"UNIQ_KEY\x01a b\x02", b"a b"): 1,
    (b"UNIQ_KEY\x01k\x02", b"k"): 1,
    (b"UNIQ_KEY\x01k\x02KEYS\x01j\x02", b"j"): 1,
    (b"TAGS\x01k\x02", b"k"): 0,
}


@pytest.mark.parametrize(("case", "expected"), KEYS.items())
def test_the_text_of_a_key_decides(case, expected):
    properties, key = case
    log = pack_log([Record(properties=properties)], 0)
    assert verify([log], len(log), 1000, key, [0]) == [expected]
    assert verify([log], len(log), 1000, key, [0], topic=b"topiC") == [0]
    assert verify([log], len(log), 1000, key, [0], topic=b"topic2") == [0]


@pytest.mark.parametrize("name", [b"UNIQ_KEY", b"KEYS"])
def test_every_byte_of_a_key_and_of_a_topic_counts(name):
    for size in range(1, 34):
        text = bytes(range(65, 65 + size))
        log = pack_log([Record(topic=text, properties=name + b"\x01" + text + b"\x02")], 0)
        assert verify([log], len(log), 1000, text, [0], topic=text) == [1]
        for i in range(size):
            other = text[:i] + b"!" + text[i + 1 :]
            assert verify([log], len(log), 1000, other, [0], topic=text) == [0]
            assert verify([log], len(log), 1000, text, [0], topic=other) == [0]


def test_offsets_that_lead_to_no_record_are_no_hits():
    record = Record(properties=b"KEYS\x01k\x02")
    log, size = pack_log([record], 1000), len(record.pack())
    # Files at 0 (missing), 1000 and 2000 (not mapped yet); the log ends in the middle of the last one.
    files, offsets = [None, log, None], [1000, 0, 500, 999, 1001, 1500, 2000, 2100, 3000, -1, -(2**63), 2**63 - 1]
    assert verify(files, 2500, 1000, b"k", offsets) == [1] + [0] * 11
    assert verify(files[:2], 2500, 1000, b"k", offsets) == [1] + [0] * 11
    assert verify([log], 1000 + size, 1000, b"k", [1000, 0], log_begin=1000) == [1, 0]
    assert verify([log], 1000 + size - 1, 1000, b"k", [1000], log_begin=1000) == [0]


def find_one(hashes, max_found, window=FOREVER):
    """`find_key` of topic#k in a file of one slot whose entries, one second apart, lead to records with that key."""
    log = pack_log([Record(properties=b"KEYS\x01k\x02")] * len(hashes), 0)
    places = range(0, len(log), len(log) // len(hashes))
    index, header = np.zeros(file_size(1, len(hashes) + 1), np.uint8), np.array(IndexHeader(), np.int64)
    put_entries(
        index, header, hashes, places, [1000 * i for i in range(1, len(hashes) + 1)], slots=1, capacity=len(hashes) + 1
    )
    text, files = np.frombuffer(b"topic#k", np.uint8), np.frombuffer(log, np.uint8)
    maps = map_of(files), map_of(index)
    addresses, out = np.array([maps[0].ctypes.data], np.int64), np.full(len(hashes) + 1, -1, np.int64)
    topic = np.array(TopicFields(int(topic_hash(b"topic")), text.ctypes.data, 5), np.int64)
    file = np.array(IndexFields(maps[1].ctypes.data, 1, len(hashes) + 1, 1000), np.int64)
    place = np.array(LogFields(addresses.ctypes.data, 1, 0, 1 << 20), np.int64)
    found = find_key(
        topic.ctypes.data, text.ctypes.data + 6, 1, file.ctypes.data, place.ctypes.data, len(log), *window,
        out.ctypes.data, 0, max_found,
    )  # fmt: skip
    assert (out[found:] == -1).all()
    return [list(places).index(place) for place in out[:found].tolist()]


def test_one_key_is_found_newest_first_and_no_more_often_than_asked_for():
    hashed = hash_of_key("topic", "k")
    assert find_one([hashed] * 4, 9) == [3, 2, 1, 0]
    for count in range(4):
        assert find_one([hashed] * 4, count) == [3, 2, 1, 0][:count]
    assert find_one([hashed] * 4, 9, (2000, 3000)) == [2, 1]


def test_an_entry_of_another_hash_is_no_hit_even_if_its_record_carries_the_key():
    hashed = hash_of_key("topic", "k")
    assert find_one([hashed, hashed + 1, hashed], 9) == [2, 0]


def test_keys_that_are_taken_back_leave_header_and_slots_as_they_were():
    table = IndexTable(3, 20, 5, 6)
    numbers = np.arange(8)
    keys = IndexKeys(numbers.astype(np.int32), numbers + 100, numbers * 1000)
    first, _ = table.put(keys, 4)
    header, slots = table.header.copy(), table.slot_table.copy()
    taken, entries = table.put(keys, 0)
    assert (first, taken, table.count) == (8, 8, 13)
    assert not np.array_equal(table.slot_table, slots)
    table.take_back(header, entries)
    assert table.header.tolist() == header.tolist()
    assert np.array_equal(table.slot_table, slots)
