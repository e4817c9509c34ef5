"""Check of one record at an address, and its header as a row of columns."""

from __future__ import annotations

import numpy as np

from reput.formats.hosts import HOST_GROWTH
from reput.formats.record_layout import (
    BLANK_SIZE,
    BODY_CRC,
    BODY_LENGTH,
    BORN_TIMESTAMP,
    FLAG,
    MAGIC_CODE,
    MIN_RECORD_SIZE,
    PHYSICAL_OFFSET,
    PREPARED_TRANSACTION_OFFSET,
    QUEUE_ID,
    QUEUE_OFFSET,
    RECONSUME_TIMES,
    STORE_TIMESTAMP,
    SYS_FLAG,
    MagicCode,
    SysFlag,
)
from reput.kernels.machine.jit import inlined
from reput.kernels.machine.memory import load_i16, load_i32, load_i64, load_u8
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
    N_STATUS,
    N_SYS_FLAG,
    N_TOPIC_POSITION,
    N_TOPIC_SIZE,
    W_BORN_TIMESTAMP,
    W_COMMIT_LOG_OFFSET,
    W_PREPARED,
    W_QUEUE_OFFSET,
    W_STORE_TIMESTAMP,
    ScanStop,
)

_V1, _V2, _BLANK = int(MagicCode.MESSAGE_V1), int(MagicCode.MESSAGE_V2), int(MagicCode.BLANK)
_BORN_V6, _STORE_V6 = SysFlag.BORN_HOST_V6, SysFlag.STORE_HOST_V6
_END, _STOP_BLANK, _BAD_MAGIC, _BAD_SIZE, _MISMATCH, *_ = (int(stop) for stop in ScanStop)
#: Result of `read_record` for a record that proves itself; any other result is a `ScanStop`.
READ = -1


@inlined
def read_record(base, position, end, offset, wide, narrow, row):  # type: ignore[no-untyped-def]
    """Check the record at an address and write its header columns; returns READ or a stop.

    `offset` is the commit log offset that the record must have, or negative if any offset will do.
    """
    p = position
    if end - p < BLANK_SIZE:
        return _END
    magic = load_i32(p + MAGIC_CODE)
    if magic == _BLANK:
        return _STOP_BLANK
    if magic != _V1 and magic != _V2:
        return _BAD_MAGIC
    size = np.int64(load_i32(p))
    if size < MIN_RECORD_SIZE:
        return _BAD_SIZE
    if end - p < size:
        return _END
    sys_flag = load_i32(p + SYS_FLAG)
    born_growth = HOST_GROWTH if sys_flag & _BORN_V6 else 0
    growth = born_growth + (HOST_GROWTH if sys_flag & _STORE_V6 else 0)
    length_size = 2 if magic == _V2 else 1
    if size < MIN_RECORD_SIZE + growth + length_size - 1:
        return _BAD_SIZE
    record_end = p + size
    body_size = np.int64(load_i32(p + BODY_LENGTH + growth))
    body = p + BODY_LENGTH + growth + 4
    if body_size < 0 or body_size > size:
        return _BAD_SIZE
    topic = body + body_size + length_size
    if topic + 2 > record_end:
        return _BAD_SIZE
    topic_size = np.int64(load_i16(topic - 2)) if magic == _V2 else np.int64(np.int8(load_u8(topic - 1)))
    properties = topic + topic_size + 2
    if topic_size < 0 or properties > record_end:
        return _BAD_SIZE
    properties_size = np.int64(load_i16(properties - 2))
    if properties_size < 0 or properties + properties_size != record_end:
        return _BAD_SIZE
    stored_offset = load_i64(p + PHYSICAL_OFFSET)
    if offset >= 0 and stored_offset != offset:
        return _MISMATCH
    narrow[N_POSITION, row] = p - base
    narrow[N_SIZE, row] = size
    narrow[N_MAGIC_CODE, row] = magic
    narrow[N_BODY_CRC, row] = load_i32(p + BODY_CRC)
    narrow[N_QUEUE_ID, row] = load_i32(p + QUEUE_ID)
    narrow[N_FLAG, row] = load_i32(p + FLAG)
    narrow[N_SYS_FLAG, row] = sys_flag
    narrow[N_RECONSUME_TIMES, row] = load_i32(p + RECONSUME_TIMES + growth)
    narrow[N_BODY_POSITION, row] = body - base
    narrow[N_BODY_SIZE, row] = body_size
    narrow[N_TOPIC_POSITION, row] = topic - base
    narrow[N_TOPIC_SIZE, row] = topic_size
    narrow[N_PROPERTIES_POSITION, row] = properties - base
    narrow[N_PROPERTIES_SIZE, row] = properties_size
    narrow[N_STATUS, row] = 0
    wide[W_COMMIT_LOG_OFFSET, row] = stored_offset
    wide[W_QUEUE_OFFSET, row] = load_i64(p + QUEUE_OFFSET)
    wide[W_BORN_TIMESTAMP, row] = load_i64(p + BORN_TIMESTAMP)
    wide[W_STORE_TIMESTAMP, row] = load_i64(p + STORE_TIMESTAMP + born_growth)
    wide[W_PREPARED, row] = load_i64(p + PREPARED_TRANSACTION_OFFSET + growth)
    return READ


@inlined
def stop_at(stop, position, file_end):  # type: ignore[no-untyped-def]
    """The stop; BAD_SIZE if a blank record does not end where its file does, as then it is none."""
    return _BAD_SIZE if stop == _STOP_BLANK and load_i32(position) != file_end - position else stop
