"""Hashes of records by content: they tell whether two stores have the same message, without comparing its bytes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from reput.formats.hosts import HOST_V4_SIZE, HOST_V6_SIZE
from reput.formats.property_crc import PROPERTY_CRC_SIZE
from reput.formats.record_layout import BORN_HOST, SysFlag
from reput.kernels.machine.jit import kernel
from reput.kernels.machine.memory import find_byte_mask, load_u8, load_u64_native, trailing_zeros
from reput.kernels.records.columns import (
    N_BODY_CRC,
    N_BODY_POSITION,
    N_BODY_SIZE,
    N_FLAG,
    N_MAGIC_CODE,
    N_POSITION,
    N_PROPERTIES_POSITION,
    N_PROPERTIES_SIZE,
    N_QUEUE_ID,
    N_RECONSUME_TIMES,
    N_SIZE,
    N_SYS_FLAG,
    N_TOPIC_POSITION,
    N_TOPIC_SIZE,
    W_BORN_TIMESTAMP,
    W_COMMIT_LOG_OFFSET,
    W_PREPARED,
    W_QUEUE_OFFSET,
    W_STORE_TIMESTAMP,
    RecordColumns,
)
from reput.kernels.records.property_crc import carries_property_crc
from reput.kernels.records.property_names import NAME_END, PAIR_END

#: Parts of a record that may be left out of its hash, by names of columns. `property_crc` is the pair `__CRC32#` at the
#: end of the properties, which depends on the record's location. With a host goes its bit of `sys_flag`, for IPv6.
IGNORABLE = (
    "commit_log_offset", "prepared_transaction_offset", "property_crc", "store_timestamp", "store_host",
    "born_timestamp", "born_host", "reconsume_times", "flag", "magic_code", "properties",
)  # fmt: skip
_OFFSET, _PREPARED, _PROPERTY_CRC, _STORED, _STORE_HOST, *_REST = (1 << i for i in range(len(IGNORABLE)))
_BORN, _BORN_HOST, _RECONSUMED, _FLAG, _MAGIC, _PROPERTIES = _REST
_V4, _V6, _BORN_V6, _STORE_V6 = HOST_V4_SIZE, HOST_V6_SIZE, SysFlag.BORN_HOST_V6, SysFlag.STORE_HOST_V6
_BORN_HOST_POSITION, _CRC_SIZE, _TIMESTAMP_SIZE = BORN_HOST, PROPERTY_CRC_SIZE, 8
_PAIR_END, _NAME_END, _PAIRS_SEED = np.uint8(PAIR_END), np.uint8(NAME_END), np.uint64(0x2545F4914F6CDD1D)
#: Slots for the names of one record: as many as its properties may have bytes, 16 bits with a sign.
_SLOTS = 1 << 15


@njit
def _mix(state, word):  # type: ignore[no-untyped-def]
    state = (state ^ word) * np.uint64(0x9FB21C651E98DF25)
    return state ^ (state >> np.uint64(32))


@njit
def _mix_bytes(state, address, size):  # type: ignore[no-untyped-def]
    """Hash in four lanes, which need not wait for each other's multiplications, and with the size of the bytes."""
    a, b, c, d = state, state ^ np.uint64(1), state ^ np.uint64(2), state ^ np.uint64(3)
    i = 0
    while i + 32 <= size:
        a, b = _mix(a, load_u64_native(address + i)), _mix(b, load_u64_native(address + i + 8))
        c, d = _mix(c, load_u64_native(address + i + 16)), _mix(d, load_u64_native(address + i + 24))
        i += 32
    state = _mix(_mix(_mix(a, b), c), d)
    while i + 8 <= size:
        state = _mix(state, load_u64_native(address + i))
        i += 8
    word = np.uint64(0)
    while i < size:
        word = (word << np.uint64(8)) | np.uint64(load_u8(address + i))
        i += 1
    return _mix(_mix(state, word), np.uint64(size))


@njit
def _mix_short(state, address, size, buffer_end):  # type: ignore[no-untyped-def]
    """Hash as `_mix_bytes`, in one lane: a name or a value has few bytes."""
    i = 0
    while i + 8 <= size:
        state = _mix(state, load_u64_native(address + i))
        i += 8
    word = np.uint64(0)
    if address + i + 8 <= buffer_end:  # no loop over bytes, whose end no processor foresees
        word = load_u64_native(address + i) & ((np.uint64(1) << np.uint64(8 * (size - i))) - np.uint64(1))
    else:
        for k in range(size - i):
            word |= np.uint64(load_u8(address + i + k)) << np.uint64(8 * k)
    return _mix(_mix(state, word), np.uint64(size))


@njit
def _mix_pairs(state, text, size, buffer_end, stamp, seen):  # type: ignore[no-untyped-def]
    """Hash properties as a map: the sum of the hashes of their pairs, so their order does not count.

    The pairs are as in `kernels.records.record_properties`. `seen` is a hash table of the names that came: stamp,
    hash of the name, and hash of the pair, which a later pair of the name replaces. Slots of other stamps are free.
    """
    last_slot = 15
    while last_slot < size:  # a pair has four bytes or more, so a quarter is used at the most
        last_slot = 2 * last_slot + 1
    total, text_end, pair, block = np.uint64(0), text + size, text, text
    while block < text_end:
        mask = find_byte_mask(block, text_end, buffer_end, _PAIR_END)
        last = block + 64 >= text_end
        while mask or last:
            end = text_end
            if mask:
                end = min(block + trailing_zeros(mask), text_end)
                mask &= mask - np.uint64(1)
            name_end = pair
            while name_end < end and load_u8(name_end) != _NAME_END:
                name_end += 1
            if pair < name_end < end - 1:
                name = _mix_short(_PAIRS_SEED, pair, name_end - pair, buffer_end)
                mixed = _mix_short(name, name_end + 1, end - name_end - 1, buffer_end)
                slot = np.int64(name) & last_slot
                while seen[slot, 0] == stamp and seen[slot, 1] != name:
                    slot = (slot + 1) & last_slot
                total += mixed
                if seen[slot, 0] == stamp:
                    total -= seen[slot, 2]
                seen[slot, 0], seen[slot, 1], seen[slot, 2] = stamp, name, mixed
            pair = end + 1
            if end >= text_end:
                break
        block += 64
    return _mix(state, total)


@kernel("void(int64, int64, int64[:, :], int32[:, :], int64, boolean, uint64[::1], uint64[:, ::1])")
def _hash(base, size, wide, narrow, ignored, as_map, hashes, seen):  # type: ignore[no-untyped-def]
    for row in range(hashes.size):
        p, sys_flag = base + narrow[N_POSITION, row], narrow[N_SYS_FLAG, row]
        state = _mix(np.uint64(0x2545F4914F6CDD1D), np.uint64(wide[W_QUEUE_OFFSET, row]))
        flags = sys_flag & ~((_BORN_V6 if ignored & _BORN_HOST else 0) | (_STORE_V6 if ignored & _STORE_HOST else 0))
        state = _mix(
            state, np.uint64(np.uint32(narrow[N_QUEUE_ID, row])) << np.uint64(32) | np.uint64(np.uint32(flags))
        )
        state = _mix(state, np.uint64(np.uint32(narrow[N_BODY_CRC, row])))
        if not ignored & _OFFSET:
            state = _mix(state, np.uint64(wide[W_COMMIT_LOG_OFFSET, row]))
        if not ignored & _PREPARED:
            state = _mix(state, np.uint64(wide[W_PREPARED, row]))
        if not ignored & _STORED:
            state = _mix(state, np.uint64(wide[W_STORE_TIMESTAMP, row]))
        if not ignored & _BORN:
            state = _mix(state, np.uint64(wide[W_BORN_TIMESTAMP, row]))
        if not ignored & _RECONSUMED:
            state = _mix(state, np.uint64(np.uint32(narrow[N_RECONSUME_TIMES, row])))
        if not ignored & _FLAG:
            state = _mix(state, np.uint64(np.uint32(narrow[N_FLAG, row])))
        if not ignored & _MAGIC:
            state = _mix(state, np.uint64(np.uint32(narrow[N_MAGIC_CODE, row])))
        born_host = p + _BORN_HOST_POSITION
        born_size = _V6 if sys_flag & _BORN_V6 else _V4
        if not ignored & _BORN_HOST:
            state = _mix_bytes(state, born_host, np.int64(born_size))
        if not ignored & _STORE_HOST:
            store_size = _V6 if sys_flag & _STORE_V6 else _V4
            state = _mix_bytes(state, born_host + born_size + _TIMESTAMP_SIZE, np.int64(store_size))
        state = _mix_bytes(state, base + narrow[N_BODY_POSITION, row], np.int64(narrow[N_BODY_SIZE, row]))
        state = _mix_bytes(state, base + narrow[N_TOPIC_POSITION, row], np.int64(narrow[N_TOPIC_SIZE, row]))
        if not ignored & _PROPERTIES:
            text, text_size = base + narrow[N_PROPERTIES_POSITION, row], np.int64(narrow[N_PROPERTIES_SIZE, row])
            if ignored & _PROPERTY_CRC and carries_property_crc(p, np.int64(narrow[N_SIZE, row]), text_size):
                text_size -= _CRC_SIZE
            if as_map:
                state = _mix_pairs(state, text, text_size, base + size, np.uint64(row + 1), seen)
            else:
                state = _mix_bytes(state, text, text_size)
        hashes[row] = state


def ignored_mask(names: tuple[str, ...]) -> int:
    """The value of `hash_contents`'s `ignored` for names of `IGNORABLE`."""
    return sum(1 << IGNORABLE.index(name) for name in set(names))


def hash_contents(
    columns: RecordColumns, ignored: int = 0, *, properties_as_map: bool = False
) -> npt.NDArray[np.uint64]:
    """uint64[rows], a hash of each record: of everything except ignored parts and the sizes, which follow from it.

    Equal hashes mean equal contents, except for a chance of one in 2**64.

    Args:
        columns: of any level.
        ignored: see `ignored_mask`.
        properties_as_map: Properties count as RocketMQ reads them, as a map; else their bytes count.
    """
    hashes = np.empty(columns.rows, np.uint64)
    seen = np.zeros((_SLOTS if properties_as_map else 0, 3), np.uint64)
    _hash(
        columns.buffer.ctypes.data, columns.buffer.size, columns.wide, columns.narrow, ignored, properties_as_map,
        hashes, seen,
    )  # fmt: skip
    return hashes
