import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.errors import CorruptIndexFileError
from reput.formats.index_file import (
    DEFAULT_HASH_SLOT_NUM,
    DEFAULT_INDEX_NUM,
    ENTRY_FIELDS,
    ENTRY_SIZE,
    HEADER_FIELDS,
    HEADER_POSITIONS,
    HEADER_SIZE,
    KEY_HASH,
    PHY_OFFSET,
    SLOT_SIZE,
    SLOT_VALUE,
    TIME_DIFF,
    IndexEntry,
    IndexHeader,
    decode_entry,
    decode_header,
    encode_entry,
    encode_header,
    entry_position,
    file_size,
    key_hash,
    slot_position,
)
from reput.formats.record import decode_record

VECTORS = json.loads((Path(__file__).parents[2] / "golden" / "vectors.json").read_text(encoding="utf-8"))
INDEX = VECTORS["index"]
ROLLOVER = VECTORS["indexRollover"]
RECORDS = {
    vector["physicalOffset"]: decode_record(bytes.fromhex(vector["recordHex"]))
    for vector in VECTORS["commitLog"]["records"]
}
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


def test_the_header_of_rocketmq_counts_its_entries_and_slots():
    header = decode_header(bytes.fromhex(INDEX["headerHex"]))
    assert header.entry_count == len(INDEX["entries"])
    assert header.hash_slot_count == len(INDEX["slots"])
    first, last = (RECORDS[decode_entry(bytes.fromhex(INDEX["entries"][i]["entryHex"])).phy_offset] for i in (0, -1))
    assert (header.begin_timestamp, header.begin_phy_offset) == (first.store_timestamp, first.commit_log_offset)
    assert (header.end_timestamp, header.end_phy_offset) == (last.store_timestamp, last.commit_log_offset)
    assert encode_header(header).hex() == INDEX["headerHex"]


@pytest.mark.parametrize("vector", INDEX["entries"], ids=lambda vector: str(vector["indexNo"]))
def test_entries_of_rocketmq_follow_from_their_keys_and_records(vector):
    entry = decode_entry(bytes.fromhex(vector["entryHex"]))
    topic, key = vector["key"].split("#", 1)
    message = RECORDS[entry.phy_offset]
    assert message.topic == topic
    assert key in (message.unique_key, *message.keys)
    assert entry.key_hash == key_hash(topic, key)
    assert entry.key_hash % INDEX["hashSlotNum"] == vector["slot"]
    begin = decode_header(bytes.fromhex(INDEX["headerHex"])).begin_timestamp
    assert entry.time_diff == (message.store_timestamp - begin) // 1000
    earlier = INDEX["entries"][: vector["indexNo"] - 1]
    before = [other["indexNo"] for other in earlier if other["slot"] == vector["slot"]]
    assert entry.slot_value == (before[-1] if before else 0)
    assert encode_entry(entry).hex() == vector["entryHex"]
    assert entry_position(INDEX["hashSlotNum"], vector["indexNo"]) == vector["entryFileOffset"]


def test_keys_of_a_message_are_its_unique_key_then_its_keys():
    for vector in VECTORS["commitLog"]["records"]:
        message = RECORDS[vector["physicalOffset"]]
        keys = [*([message.unique_key] if message.unique_key else []), *message.keys]
        if vector["name"] != "tx_rollback_sysflag_12":
            assert [f"{message.topic}#{key}" for key in keys] == vector["indexKeys"]


def test_slots_of_rocketmq_hold_their_newest_entry():
    newest = {str(vector["slot"]): vector["indexNo"] for vector in INDEX["entries"]}
    assert newest == INDEX["slots"]


def test_default_file_size_is_rocketmq_s():
    assert (INDEX["hashSlotNum"], INDEX["indexNum"]) == (DEFAULT_HASH_SLOT_NUM, DEFAULT_INDEX_NUM)
    assert file_size(DEFAULT_HASH_SLOT_NUM, DEFAULT_INDEX_NUM) == INDEX["fileSize"]


def test_files_that_follow_each_other_are_put_together_from_their_parts():
    """Puts the keys of the vector by the rules of docs/formats/index-file.md and compares the whole files."""
    slots, entries = ROLLOVER["hashSlotNum"], ROLLOVER["indexNum"]
    hash_ = key_hash(*ROLLOVER["key"].split("#"))
    puts = list(zip(ROLLOVER["phyOffsets"], ROLLOVER["storeTimestamps"], strict=True))
    end_timestamp = end_phy_offset = 0
    files = []
    for start in range(0, len(puts), entries - 1):
        data = bytearray(file_size(slots, entries))
        begin = end_timestamp
        some = puts[start : start + entries - 1]
        for number, (offset, timestamp) in enumerate(some, start=1):
            diff = (timestamp - begin) // 1000 if begin > 0 else 0
            position = entry_position(slots, number)
            data[position : position + ENTRY_SIZE] = encode_entry(IndexEntry(hash_, offset, diff, number - 1))
            if number == 1:
                begin, begin_phy_offset = timestamp, offset
            end_timestamp, end_phy_offset = timestamp, offset
        struct.pack_into(">i", data, slot_position(hash_ % slots), len(some))
        header = IndexHeader(begin, end_timestamp, begin_phy_offset, end_phy_offset, 1, len(some) + 1)
        data[:HEADER_SIZE] = encode_header(header)
        assert decode_header(data) == header
        files.append(data.hex())
    assert files == ROLLOVER["filesHex"]


HEADERS = st.builds(IndexHeader, INT64, INT64, INT64, INT64, INT32, INT32)
ENTRIES = st.builds(IndexEntry, INT32, INT64, INT32, INT32)


@given(HEADERS, ENTRIES)
def test_any_header_and_entry_come_back(header, entry):
    assert decode_header(encode_header(header)) == header
    assert decode_entry(b"123" + encode_entry(entry), 3) == entry


@pytest.mark.parametrize(("index_count", "entry_count"), [(0, 0), (1, 0), (2, 1), (-5, 0)])
def test_a_file_has_one_entry_less_than_its_next_number(index_count, entry_count):
    assert IndexHeader(index_count=index_count).entry_count == entry_count


def test_torn_headers_and_entries_are_refused():
    with pytest.raises(CorruptIndexFileError, match="a header takes 40 bytes, 39 are there"):
        decode_header(bytes(39))
    with pytest.raises(CorruptIndexFileError, match="an entry takes 20 bytes, 19 are left"):
        decode_entry(bytes(39), 20)


def test_positions_and_sizes_follow_from_the_fields():
    assert list(HEADER_POSITIONS.values()) == [0, 8, 16, 24, 32, 36]
    assert (KEY_HASH, PHY_OFFSET, TIME_DIFF, SLOT_VALUE) == (0, 4, 12, 16)
    assert sum(field.size for field in HEADER_FIELDS) == HEADER_SIZE == 40
    assert sum(field.size for field in ENTRY_FIELDS) == ENTRY_SIZE == 20
    assert slot_position(1) - slot_position(0) == SLOT_SIZE == 4
