"""Keys -> the records that have them, by the slots and entries of one index file (`index_file`).

An entry has the hash of a key alone. So a record that an entry leads to is found once it proves itself and has the key.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from reput.formats.index_file import ENTRY_SIZE, HEADER_SIZE, PHY_OFFSET, SLOT_SIZE, SLOT_VALUE, TIME_DIFF, TOPIC_END
from reput.formats.record_layout import BLANK_SIZE, BODY_LENGTH
from reput.kernels.machine.java_hash import index_hash, java_hash
from reput.kernels.machine.jit import inlined, kernel
from reput.kernels.machine.mapped_pages import is_readable, is_record_readable
from reput.kernels.machine.memory import (
    equal_bytes,
    find_byte_mask,
    load_i32,
    load_i64,
    load_i64_native,
    load_u8,
    prefetch,
    store_i64_native,
    trailing_zeros,
)
from reput.kernels.records.columns import (
    N_KEYS_POSITION,
    N_KEYS_SIZE,
    N_PROPERTIES_POSITION,
    N_PROPERTIES_SIZE,
    N_TOPIC_POSITION,
    N_TOPIC_SIZE,
    N_UNIQUE_KEY_POSITION,
    N_UNIQUE_KEY_SIZE,
    NARROW,
    WIDE,
)
from reput.kernels.records.property_names import KEY_END
from reput.kernels.records.record_header import READ, read_record
from reput.kernels.records.record_properties import find_tags_and_keys

_HEADER, _SLOT, _ENTRY = HEADER_SIZE, SLOT_SIZE, ENTRY_SIZE
_HEADS_AHEAD, _TEXTS_AHEAD = 32, 16
#: Separates the keys of a query; no key contains it, since it separates properties.
KEY_SEPARATOR = np.uint8(2)
_WIDE_COUNT, _NARROW_COUNT = len(WIDE), len(NARROW)


@kernel("int64(uint32, int64, int64, int32[::1], int32[::1], int32[::1])")
def split_index_keys(topic_hash, text, size, offsets, hashes, table):  # type: ignore[no-untyped-def]
    """Split a text of keys at the byte 0x02, which no message's key contains, and hash them, continued from `topic#`.

    Args:
        text: Address of `size` bytes.
        offsets: int32[n + 1], takes the begins of the n keys; the last one is the text's end + 1.
        hashes: int32[n], takes the index hashes.
        table: int32[a power of two above n], zeros, to find equal keys.

    Returns:
        n; -1 if there are not exactly n keys (not all are split then); -2 if two keys are equal.
    """
    count, begin, block, are_different = 0, np.int64(0), np.int64(0), True
    slots = table.size - 1
    while block <= size:
        mask = find_byte_mask(text + block, text + size, text + size, KEY_SEPARATOR)
        if size < block + 64:
            mask |= np.uint64(1) << np.uint64(size - block)  # the text's end ends a key, too
        while mask:
            end = block + trailing_zeros(mask)
            mask &= mask - np.uint64(1)
            if count == hashes.size:
                return -1
            hashed = index_hash(topic_hash, text + begin, end - begin)
            offsets[count], offsets[count + 1], hashes[count] = begin, end + 1, hashed
            slot = hashed & slots
            while table[slot]:
                other = table[slot] - 1
                start, other_size = np.int64(offsets[other]), np.int64(offsets[other + 1]) - offsets[other] - 1
                if other_size == end - begin and equal_bytes(text + start, text + begin, other_size):
                    are_different = False
                    break
                slot = (slot + 1) & slots
            count += 1
            table[slot] = count
            begin = end + 1
        block += 64
    if count < hashes.size:
        return -1
    return count if are_different else -2


def topic_hash(topic: bytes) -> np.uint32:
    """Hash of `topic#`, which the hash of each key continues."""
    text = np.frombuffer(topic + TOPIC_END.encode(), np.uint8)
    return np.uint32(_hash_text(text.ctypes.data, text.size))


@kernel("uint32(int64, int64)")
def _hash_text(text, size):  # type: ignore[no-untyped-def]
    return java_hash(np.uint32(0), text, size)


@kernel("int64(int64, int64, int64, int64, int64, int64, int32[::1], int32[::1], int64, int32[::1], int64[::1])")
def find_entries(  # type: ignore[no-untyped-def]
    map_fields, slots, count, file_begin, begin, end, hashes, wanted, max_count, out_keys, out_offsets
):
    """Walk the chains of many keys in one file (`IndexFile.selectPhyOffset`), newest entries first.

    Args:
        map_fields: Address of the map's `MapFields`; entries below number `count` are valid.
        file_begin: The header's beginTimestamp; `begin` and `end` bound the entries' times (ms, both included).
        hashes: int32[keys]; `wanted`: int32[keys], how many offsets each key still needs; lowered here.
        max_count: Room in `out_keys` (int32) and `out_offsets` (int64).

    Returns:
        The number of pairs (key number, commit log offset), or -1 if there is no room for all; -2 - position if a
        page of the map cannot be read.
    """
    file = load_i64_native(map_fields)
    entries = file + _HEADER + slots * _SLOT
    found = 0
    ahead = 32
    for key in range(hashes.size):
        if key + ahead < hashes.size:
            prefetch(file + _HEADER + (np.int64(hashes[key + ahead]) % slots) * _SLOT)
        if key + ahead // 2 < hashes.size:
            slot = _HEADER + (np.int64(hashes[key + ahead // 2]) % slots) * _SLOT
            number = np.int64(load_i32(file + slot)) if is_readable(map_fields, slot, slot + _SLOT) else np.int64(0)
            if 0 < number < count:
                prefetch(entries + number * _ENTRY)
        slot = _HEADER + (np.int64(hashes[key]) % slots) * _SLOT
        if not is_readable(map_fields, slot, slot + _SLOT):
            return -2 - slot
        number = np.int64(load_i32(file + slot))
        while 0 < number < count and wanted[key] > 0:
            entry = entries + number * _ENTRY
            if not is_readable(map_fields, entry - file, entry - file + _ENTRY):
                return file - entry - 2
            seconds = np.int64(load_i32(entry + TIME_DIFF))
            if seconds < 0:
                break
            timestamp = file_begin + seconds * 1000
            if load_i32(entry) == hashes[key] and begin <= timestamp <= end:
                if found >= max_count:
                    return -1
                out_keys[found], out_offsets[found] = key, load_i64(entry + PHY_OFFSET)
                found += 1
                wanted[key] -= 1
            previous = np.int64(load_i32(entry + SLOT_VALUE))
            if previous >= number or timestamp < begin:
                break
            number = previous
    return found


@njit
def _equals_one_key(keys, size, key, key_size):  # type: ignore[no-untyped-def]
    """Whether one of the blank-separated elements of KEYS is the key."""
    begin = 0
    while begin < size:
        end = begin
        while end < size and load_u8(keys + end) != KEY_END:
            end += 1
        if end - begin == key_size and equal_bytes(keys + begin, key, key_size):
            return True
        begin = end + 1
    return False


@njit
def _log_place(log_files, file_count, log_begin, log_end, file_size, offset):  # type: ignore[no-untyped-def]
    """The map of a commit log offset (`MapFields`), the position in it, and how many bytes are there; 0 outside."""
    if offset < log_begin or offset >= log_end:
        return np.int64(0), np.int64(0), np.int64(0)
    index = offset // file_size - log_begin // file_size
    if index >= file_count:
        return np.int64(0), np.int64(0), np.int64(0)
    file = load_i64_native(log_files + 8 * index)
    if file == 0:
        return np.int64(0), np.int64(0), np.int64(0)
    position = offset % file_size
    return file, position, min(file_size - position, log_end - offset)


@inlined
def _carries_key(record, limit, offset, topic, topic_size, key, key_size, wide, narrow):  # type: ignore[no-untyped-def]
    """Whether a record proves itself, and has the topic, and the key as UNIQ_KEY or as one of KEYS."""
    if key_size == 0 or read_record(record, record, limit, offset, wide, narrow, 0) != READ:
        return False
    name, name_size = record + narrow[N_TOPIC_POSITION, 0], np.int64(narrow[N_TOPIC_SIZE, 0])
    if name_size != topic_size or not equal_bytes(name, topic, topic_size):
        return False
    text, text_size = record + narrow[N_PROPERTIES_POSITION, 0], np.int64(narrow[N_PROPERTIES_SIZE, 0])
    find_tags_and_keys(record, text, text_size, limit, narrow, 0)
    unique, unique_size = record + narrow[N_UNIQUE_KEY_POSITION, 0], np.int64(narrow[N_UNIQUE_KEY_SIZE, 0])
    if unique_size == key_size and equal_bytes(unique, key, key_size):
        return True
    several, several_size = record + narrow[N_KEYS_POSITION, 0], np.int64(narrow[N_KEYS_SIZE, 0])
    return _equals_one_key(several, several_size, key, key_size)


@kernel(
    "int64(int64[::1], int64, int64, int64, int64, int64, int64, int32[::1], int32[::1], int64[::1], int64[::1], "
    "int64[::1], int64[::1], uint8[::1], int64[:, ::1], int32[:, ::1])"
)
def verify_keys(  # type: ignore[no-untyped-def]
    log_files, log_begin, log_end, file_size, topic, topic_size, keys, key_offsets, candidates, offsets, maps,
    positions, sizes, verified, wide, narrow,
):  # fmt: skip
    """Mark (uint8, 1) the candidates whose record has the topic, and the key as UNIQ_KEY or as one of KEYS.

    The index finds records by hash, so also records with other keys; RocketMQ leaves the comparison of the text to the
    client (`MQAdminImpl.queryMessage`).

    Args:
        log_files: int64[files], addresses of the `MapFields` of the commit log files; 0 for a missing file.
        log_begin: Offset of the first file's first byte; `log_end` is the offset after the last byte that can be read.
        candidates: int32[n], key numbers; `offsets`: int64[n], their commit log offsets.
        keys: Address of the keys' text; `key_offsets` int32[keys + 1] are their begins, with one byte after each key.
        maps, positions, sizes: int64[n], scratch: where each candidate lies, and how many bytes are there.
        wide, narrow: One-row scratch columns.

    Returns:
        -1; or the number of a candidate whose pages cannot be read.
    """
    for i in range(candidates.size):
        maps[i], positions[i], sizes[i] = _log_place(
            np.int64(log_files.ctypes.data), log_files.size, log_begin, log_end, file_size, offsets[i]
        )
    for i in range(candidates.size):
        if i + _HEADS_AHEAD < candidates.size:
            j = i + _HEADS_AHEAD
            address = load_i64_native(maps[j]) + positions[j] if maps[j] else np.int64(0)
            prefetch(address)
            prefetch(address + 64)
            prefetch(address + BODY_LENGTH + 3)
        j = i + _TEXTS_AHEAD
        is_ahead = j < candidates.size and sizes[j] > BLANK_SIZE
        if is_ahead and is_readable(maps[j], positions[j], positions[j] + BLANK_SIZE):
            address = load_i64_native(maps[j]) + positions[j]
            size = np.int64(load_i32(address))
            for line in range(max(size - 128, np.int64(128)), size + 65, 64):  # up to the last block that is searched
                prefetch(address + line)
        begin = np.int64(key_offsets[candidates[i]])
        key, key_size = keys + begin, np.int64(key_offsets[candidates[i] + 1]) - begin - 1
        verified[i] = False
        if sizes[i] > 0:
            if not is_record_readable(maps[i], positions[i], sizes[i]):
                return i
            record = load_i64_native(maps[i]) + positions[i]
            verified[i] = _carries_key(
                record, record + sizes[i], offsets[i], topic, topic_size, key, key_size, wide, narrow
            )
    return -1


class IndexFields(NamedTuple):
    """An index file as `find_key` reads it: native int64, in this order."""

    #: Address of the map's `MapFields`.
    map_fields: int
    slots: int
    #: Entries below this number are valid.
    end_number: int
    #: The header's beginTimestamp.
    begin_timestamp: int


class LogFields(NamedTuple):
    """The log as `find_key` reads it: native int64, in this order."""

    #: Address of the addresses (int64) of the files' `MapFields`, 0 for a missing file; and the number of files.
    maps: int
    file_count: int
    begin_offset: int
    file_size: int


class TopicFields(NamedTuple):
    """A topic as `find_key` reads it: native int64, in this order."""

    #: The topic's `topic_hash`; address and size of its text.
    hash: int
    address: int
    size: int


@kernel("int64(" + ", ".join(["int64"] * 11) + ")", allocates=True, short=True)
def find_key(  # type: ignore[no-untyped-def]
    topic_fields, key, key_size, index_fields, log_fields, log_end, begin, end, out, found, max_found
):
    """`find_entries` and `verify_keys` for one key in one file, in one call with few numbers.

    Args:
        topic_fields, index_fields, log_fields: Addresses of `TopicFields`, `IndexFields`, `LogFields`.
        key: Address of the key's text, `key_size` bytes.
        out: Address of native int64 offsets with room for `max_found`; the first `found` are there already.

    The other arguments are as of the two functions. Returns the new number of offsets; -1 if a page of a map
    cannot be read: the two functions tell which one.
    """
    topic, topic_size = load_i64_native(topic_fields + 8), load_i64_native(topic_fields + 16)
    index_map, slots = load_i64_native(index_fields), load_i64_native(index_fields + 8)
    file = load_i64_native(index_map)
    count, file_begin = load_i64_native(index_fields + 16), load_i64_native(index_fields + 24)
    entries = file + _HEADER + slots * _SLOT
    hashed = index_hash(np.uint32(load_i64_native(topic_fields)), key, key_size)
    wide, narrow = np.empty((_WIDE_COUNT, 1), np.int64), np.empty((_NARROW_COUNT, 1), np.int32)
    slot = _HEADER + (np.int64(hashed) % slots) * _SLOT
    if not is_readable(index_map, slot, slot + _SLOT):
        return -1
    number = np.int64(load_i32(file + slot))
    while 0 < number < count and found < max_found:
        entry = entries + number * _ENTRY
        if not is_readable(index_map, entry - file, entry - file + _ENTRY):
            return -1
        seconds = np.int64(load_i32(entry + TIME_DIFF))
        if seconds < 0:
            break
        timestamp = file_begin + seconds * 1000
        offset = load_i64(entry + PHY_OFFSET)
        if load_i32(entry) == hashed and begin <= timestamp <= end:
            log_map, position, left = _log_place(
                load_i64_native(log_fields), load_i64_native(log_fields + 8), load_i64_native(log_fields + 16), log_end,
                load_i64_native(log_fields + 24), offset,
            )  # fmt: skip
            if left and not is_record_readable(log_map, position, left):
                return -1
            record = load_i64_native(log_map) + position if left else np.int64(0)
            if left and _carries_key(record, record + left, offset, topic, topic_size, key, key_size, wide, narrow):
                store_i64_native(out + 8 * found, offset)
                found += 1
        previous = np.int64(load_i32(entry + SLOT_VALUE))
        if previous >= number or timestamp < begin:
            break
        number = previous
    return found


def scratch_row() -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """One-row scratch columns for `verify_keys`."""
    return np.empty((len(WIDE), 1), np.int64), np.empty((len(NARROW), 1), np.int32)
