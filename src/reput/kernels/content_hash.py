"""Hashes of records by content: they tell whether two stores have the same message, without comparing its bytes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from reput.formats.hosts import HOST_V4_SIZE, HOST_V6_SIZE
from reput.formats.property_crc import PROPERTY_CRC_SIZE
from reput.formats.record_layout import BORN_HOST, SysFlag
from reput.kernels._jit import kernel
from reput.kernels.columns import (
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
from reput.kernels.memory import load_u8, load_u64_native
from reput.kernels.property_crc import carries_property_crc

#: Parts of a record that may be left out of its hash, by names of columns; `property_crc` is the pair `__CRC32#` at the
#: end of the properties, which depends on the record's location.
IGNORABLE = (
    "commit_log_offset", "prepared_transaction_offset", "property_crc", "store_timestamp", "store_host",
    "born_timestamp", "born_host", "reconsume_times", "flag", "magic_code",
)  # fmt: skip
(_OFFSET, _PREPARED, _PROPERTY_CRC, _STORED, _STORE_HOST, _BORN, _BORN_HOST, _RECONSUMED, _FLAG, _MAGIC) = (
    1 << i for i in range(len(IGNORABLE))
)
_V4, _V6, _BORN_V6, _STORE_V6 = HOST_V4_SIZE, HOST_V6_SIZE, SysFlag.BORN_HOST_V6, SysFlag.STORE_HOST_V6
_BORN_HOST_POSITION, _CRC_SIZE, _TIMESTAMP_SIZE = BORN_HOST, PROPERTY_CRC_SIZE, 8


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


@kernel("void(int64, int64[:, :], int32[:, :], int64, uint64[::1])")
def _hash(base, wide, narrow, ignored, hashes):  # type: ignore[no-untyped-def]
    for row in range(hashes.size):
        p, sys_flag = base + narrow[N_POSITION, row], narrow[N_SYS_FLAG, row]
        state = _mix(np.uint64(0x2545F4914F6CDD1D), np.uint64(wide[W_QUEUE_OFFSET, row]))
        state = _mix(
            state, np.uint64(np.uint32(narrow[N_QUEUE_ID, row])) << np.uint64(32) | np.uint64(np.uint32(sys_flag))
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
        size = np.int64(narrow[N_PROPERTIES_SIZE, row])
        if ignored & _PROPERTY_CRC and carries_property_crc(p, np.int64(narrow[N_SIZE, row]), size):
            size -= _CRC_SIZE
        hashes[row] = _mix_bytes(state, base + narrow[N_PROPERTIES_POSITION, row], size)


def ignored_mask(names: tuple[str, ...]) -> int:
    """The value of `hash_contents`'s `ignored` for names of `IGNORABLE`."""
    return sum(1 << IGNORABLE.index(name) for name in set(names))


def hash_contents(columns: RecordColumns, ignored: int = 0) -> npt.NDArray[np.uint64]:
    """uint64[rows], a hash of each record: of everything except ignored parts and the sizes, which follow from it.

    Equal hashes mean equal contents, except for a chance of one in 2**64.

    Args:
        columns: of any level.
        ignored: see `ignored_mask`.
    """
    hashes = np.empty(columns.rows, np.uint64)
    _hash(columns.buffer.ctypes.data, columns.wide, columns.narrow, ignored, hashes)
    return hashes
