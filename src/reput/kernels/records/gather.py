"""Slices of a scanned buffer -> Arrow's offsets and data; split of keys and properties into slices.

Copies use memcpy, eight times faster than a loop over bytes. Positions come from a scan, which proved them.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from reput.formats.hosts import HOST_V4_SIZE, HOST_V6_SIZE
from reput.formats.record_layout import BORN_HOST, SysFlag
from reput.kernels.machine.java_hash import decode_utf8
from reput.kernels.machine.jit import kernel
from reput.kernels.machine.memory import (
    copy,
    copy_short,
    equal_bytes,
    find_byte_mask,
    load_i32,
    load_u8,
    load_u64_native,
    trailing_zeros,
)
from reput.kernels.records.property_names import (
    KEY_END,
    KEYS_WORD,
    NAME_END,
    PAIR_END,
    TAGS_SIZE,
    TAGS_WORD,
    UNIQ_KEY_SIZE,
    UNIQ_REST,
    UNIQ_WORD,
)

_BORN_V6, _STORE_V6 = SysFlag.BORN_HOST_V6, SysFlag.STORE_HOST_V6
_NAME_VALUE_SEPARATOR, _SEPARATOR = np.uint8(NAME_END), np.uint8(PAIR_END)
_HIGH_BITS = np.uint64(0x8080808080808080)


@kernel("int64(int32[::1])")
def total_size(sizes):  # type: ignore[no-untyped-def]
    """The sum; NumPy's takes 2 us more to start."""
    total = np.int64(0)
    for i in range(sizes.size):
        total += sizes[i]
    return total


@kernel("boolean(int64[::1], int64, int64, int64[::1])")
def microseconds(milliseconds, first, end, out):  # type: ignore[no-untyped-def]
    """A thousand times each number; False if a number is not in [first, end)."""
    are_inside = True
    for i in range(milliseconds.size):
        are_inside &= first <= milliseconds[i] < end
        out[i] = milliseconds[i] * 1000
    return are_inside


@kernel("int64(int64, int32[::1], int32[::1], int32[::1], uint8[::1], boolean)")
def gather(buffer, positions, sizes, offsets, data, are_short):  # type: ignore[no-untyped-def]
    """Copy slices one after the other into `data`; int32[n + 1] `offsets` takes their begins and the last end.

    Returns the number of empty slices.
    """
    at, out, empty = np.int64(0), np.int64(data.ctypes.data), 0
    for i in range(positions.size):
        size = np.int64(sizes[i])
        offsets[i] = at
        empty += size == 0
        if are_short:
            copy_short(out + at, buffer + np.int64(positions[i]), size)
        else:
            copy(out + at, buffer + np.int64(positions[i]), size)
        at += size
    offsets[positions.size] = at
    return empty


@njit
def _is_utf8(text, size):  # type: ignore[no-untyped-def]
    i = 0
    while i < size:
        point, length = decode_utf8(text + i, size - i)
        # A broken sequence decodes to U+FFFD, whose valid UTF-8 is EF BF BD.
        if point == 0xFFFD and not (length == 3 and load_u8(text + i) == 0xEF and load_u8(text + i + 1) == 0xBF):
            return False
        i += length
    return True


@kernel("int64(uint8[::1], int32[::1], int64)")
def next_invalid_text(texts, offsets, begin):  # type: ignore[no-untyped-def]
    """Number of the first slice from `begin` on that is no UTF-8; the number of slices if there is none."""
    count, data = offsets.size - 1, np.int64(texts.ctypes.data)
    if begin == 0:
        seen, i, size = np.uint64(0), 0, np.int64(offsets[count])
        while i + 8 <= size:
            seen |= load_u64_native(data + i)
            i += 8
        while i < size:
            seen |= np.uint64(load_u8(data + i))
            i += 1
        if not seen & _HIGH_BITS:
            return count
    for i in range(begin, count):
        start = np.int64(offsets[i])
        if not _is_utf8(data + start, np.int64(offsets[i + 1]) - start):
            return i
    return count


@kernel("int64(int64, int32[::1], int32[::1], int32[::1], int32[::1], int32[::1])")
def split_keys(buffer, positions, sizes, lists, key_positions, key_sizes):  # type: ignore[no-untyped-def]
    """Split KEYS at blanks into slices, without empty ones; int32[n + 1] `lists` takes the begin of each row's keys.

    The slices need room for (size + 1) / 2 keys of each row. Returns the number of keys.
    """
    count = 0
    for row in range(positions.size):
        lists[row] = count
        begin = np.int64(positions[row])
        end = begin + np.int64(sizes[row])
        while begin < end:
            i = begin
            while i < end and load_u8(buffer + i) != KEY_END:
                i += 1
            if i > begin:
                key_positions[count], key_sizes[count] = begin, i - begin
                count += 1
            begin = i + 1
    lists[positions.size] = count
    return count


@kernel("int64(int64, int32[:], int32[:], boolean)")
def one_host(buffer, positions, sys_flags, is_store_host):  # type: ignore[no-untyped-def]
    """Position of the first record's host if all records have the same host; else -1."""
    first, first_v6 = np.int64(-1), False
    for i in range(positions.size):
        host = np.int64(positions[i]) + BORN_HOST
        is_v6 = sys_flags[i] & _BORN_V6 != 0
        if is_store_host:
            host += (HOST_V6_SIZE if is_v6 else HOST_V4_SIZE) + 8
            is_v6 = sys_flags[i] & _STORE_V6 != 0
        if i == 0:
            first, first_v6 = host, is_v6
        elif is_v6 != first_v6 or not equal_bytes(
            buffer + host, buffer + first, HOST_V6_SIZE if is_v6 else HOST_V4_SIZE
        ):
            return -1
    return first


@njit
def _has_own_column(name, size):  # type: ignore[no-untyped-def]
    if size == TAGS_SIZE:
        word = load_i32(name)
        return word in (TAGS_WORD, KEYS_WORD)
    return size == UNIQ_KEY_SIZE and load_i32(name) == UNIQ_WORD and load_i32(name + 4) == UNIQ_REST


@njit
def _drop_pair(pairs, pair, count):  # type: ignore[no-untyped-def]
    """Remove a pair, because a later pair has the same name; returns the new count."""
    for i in range(pair, count - 1):
        for part in range(4):
            pairs[part, i] = pairs[part, i + 1]
    return count - 1


@kernel("int64(int64, int64, int32[::1], int32[::1], int32[::1], int32[:, ::1])")
def split_properties(buffer, size, positions, sizes, lists, pairs):  # type: ignore[no-untyped-def]
    """Split properties texts into slices of names and values, without TAGS, KEYS and UNIQ_KEY.

    Of pairs with equal names the last is kept.

    Args:
        buffer: Address of `size` bytes, which contain the texts.
        lists: int32[n + 1], takes the begin of each row's pairs.
        pairs: int32[4, room]: name position, name size, value position, value size; room for size / 4 + 1 a row.

    Returns:
        The number of pairs.
    """
    count = 0
    for row in range(positions.size):
        lists[row] = count
        first = count
        begin = np.int64(positions[row])
        text_end = begin + np.int64(sizes[row])
        block, separator = begin, np.int64(-1)
        while block <= text_end:
            names = find_byte_mask(buffer + block, buffer + text_end, buffer + size, _NAME_VALUE_SEPARATOR)
            mask = names | find_byte_mask(buffer + block, buffer + text_end, buffer + size, _SEPARATOR)
            if text_end < block + 64:  # the text's end ends a pair, too: RocketMQ 4 leaves the last separator out
                end_bit = np.uint64(1) << np.uint64(text_end - block)
                names &= end_bit - np.uint64(1)
                mask = (mask & (end_bit - np.uint64(1))) | end_bit
            while mask:
                place = trailing_zeros(mask)
                bit = np.uint64(1) << np.uint64(place)
                mask ^= bit
                at = block + place
                if names & bit:
                    if separator < 0:  # a value may contain more separators
                        separator = at
                    continue
                name_size = separator - begin
                if name_size > 0 and at - separator > 1 and not _has_own_column(buffer + begin, name_size):
                    for i in range(first, count):
                        if pairs[1, i] == name_size and equal_bytes(buffer + pairs[0, i], buffer + begin, name_size):
                            count = _drop_pair(pairs, i, count)
                            break
                    pairs[0, count], pairs[1, count] = begin, name_size
                    pairs[2, count], pairs[3, count] = separator + 1, at - separator - 1
                    count += 1
                begin, separator = at + 1, np.int64(-1)
            block += 64
    lists[positions.size] = count
    return count
