"""Records of messages that are to wait for a time -> columns: what the timers ask of each, without Python objects."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from reput.formats.properties import REAL_QID, REAL_TOPIC, TIMER_DEL_UNIQKEY, TIMER_OUT_MS
from reput.formats.record_layout import MIN_RECORD_SIZE
from reput.kernels.machine.jit import inlined, kernel
from reput.kernels.machine.memory import equal_bytes, load_u8
from reput.kernels.records.columns import (
    N_POSITION,
    N_PROPERTIES_POSITION,
    N_PROPERTIES_SIZE,
    N_SIZE,
    N_TOPIC_POSITION,
    N_TOPIC_SIZE,
    NARROW,
    W_BORN_TIMESTAMP,
    W_COMMIT_LOG_OFFSET,
    W_QUEUE_OFFSET,
    W_STORE_TIMESTAMP,
    WIDE,
)
from reput.kernels.records.property_names import NAME_END, PAIR_END
from reput.kernels.records.record_header import READ, read_record

_NAMES = (TIMER_OUT_MS, REAL_TOPIC, REAL_QID, TIMER_DEL_UNIQKEY)
_OUT_SIZE, _TOPIC_SIZE, _QID_SIZE, _DEL_SIZE = map(len, _NAMES)
_TOPIC_AT, _QID_AT = _OUT_SIZE, _OUT_SIZE + _TOPIC_SIZE
_DEL_AT = _QID_AT + _QID_SIZE
_TEXT = np.frombuffer("".join(_NAMES).encode(), np.uint8)
_MOST_OUT_DIGITS, _MOST_QID_DIGITS = 18, 10
#: Rows of what a call finds: int64 each.
_OUT, _DELETES, _NUMBER, _REAL, _REAL_SIZE = range(5)
_FOUND = 5


@njit
def _number(p, size, most):  # type: ignore[no-untyped-def]
    """The value of `size` digits; -1 if there is none, or something else, or more than `most`."""
    if size < 1 or size > most:
        return np.int64(-1)
    value = np.int64(0)
    for i in range(size):
        digit = np.int64(load_u8(p + i)) - 0x30
        if digit < 0 or digit > 9:
            return np.int64(-1)
        value = value * 10 + digit
    return value


@njit
def _find(names, pair, text_end):  # type: ignore[no-untyped-def]
    """(TIMER_OUT_MS or -1, whether it deletes another message, address and size of REAL_TOPIC) of properties.

    TIMER_OUT_MS counts only beside REAL_TOPIC and REAL_QID. As `formats.properties.decode_properties` reads them.
    """
    out, queue_id, deletes = np.int64(-1), np.int64(-1), np.int64(0)
    real, real_size = pair, np.int64(0)
    while pair < text_end:
        end, separator = pair, np.int64(0)
        while end < text_end:
            byte = load_u8(end)
            if byte == PAIR_END:
                break
            if byte == NAME_END and separator == 0:
                separator = end
            end += 1
        if pair < separator < end - 1:
            size, value, value_size = separator - pair, separator + 1, end - separator - 1
            if size == _OUT_SIZE and equal_bytes(pair, names, size):
                out = _number(value, value_size, _MOST_OUT_DIGITS)
            elif size == _TOPIC_SIZE and equal_bytes(pair, names + _TOPIC_AT, size):
                real, real_size = value, value_size
            elif size == _QID_SIZE and equal_bytes(pair, names + _QID_AT, size):
                queue_id = _number(value, value_size, _MOST_QID_DIGITS)
            elif size == _DEL_SIZE and equal_bytes(pair, names + _DEL_AT, size):
                deletes = np.int64(1)
        pair = end + 1
    if queue_id < 0 or real_size == 0:
        out = np.int64(-1)
    return out, deletes, real, real_size


@inlined
def _same_topic(base, found, row):  # type: ignore[no-untyped-def]
    """The number of a row's real topic among the topics of the rows before it; -1 for a new one."""
    number = np.int64(-1)
    for i in range(row - 1, -1, -1):
        size = found[_REAL_SIZE, i]
        if (
            found[_OUT, i] >= 0
            and size == found[_REAL_SIZE, row]
            and equal_bytes(base + found[_REAL, i], base + found[_REAL, row], size)
        ):
            number = found[_NUMBER, i]
            break
    return number


@kernel("int64(int64, int64, int64, int64, int64, int64[:, ::1], int32[:, ::1], int64[:, ::1])")
def read_timer_records(  # type: ignore[no-untyped-def]
    buffer, size, topic, topic_size, names, wide, narrow, found
):
    """Read successive records from the address `buffer` on, as many as the columns have room for.

    Args:
        buffer: Address of `size` bytes.
        topic: Address of the topic that the records must have, `topic_size` bytes.
        names: Address of the properties' names.
        wide, narrow: The header's columns.
        found: int64[5, rows]: TIMER_OUT_MS, -1 of a record that lacks what a message needs that is to wait; whether it
            deletes another message; the number of its real topic, from 0 in the order of their first rows; position and
            size of that topic.

    Returns:
        The number of records that were read: it ends before one that does not prove itself.
    """
    p, row, topics = buffer, 0, np.int64(0)
    while row < found.shape[1] and read_record(buffer, p, buffer + size, np.int64(-1), wide, narrow, row) == READ:
        text = buffer + narrow[N_PROPERTIES_POSITION, row]
        out, deletes, real, real_size = _find(names, text, text + narrow[N_PROPERTIES_SIZE, row])
        if narrow[N_TOPIC_SIZE, row] != topic_size or not equal_bytes(
            buffer + narrow[N_TOPIC_POSITION, row], topic, topic_size
        ):
            out = np.int64(-1)
        found[_OUT, row], found[_DELETES, row], found[_NUMBER, row] = out, deletes, np.int64(-1)
        found[_REAL, row], found[_REAL_SIZE, row] = real - buffer, real_size
        if out >= 0:
            number = _same_topic(buffer, found, row)
            if number < 0:
                number = topics
                topics += 1
            found[_NUMBER, row] = number
        p += narrow[N_SIZE, row]
        row += 1
    return row


class TimerRecords(NamedTuple):
    """Successive records, a row each; times in ms since 1970 UTC.

    Attributes:
        positions: int32, in the bytes that were read.
        sizes: int32.
        commit_log_offsets, queue_offsets, born_ms, stored_ms: int64.
        out_ms: int64, the time of the message's own slot; -1 if it lacks what a message needs that is to wait.
        deletes: bool, whether it deletes another message.
        topics: int64, where it goes, by the number of the topic; -1 beside an `out_ms` of -1.
        topic_names: By these numbers.
    """

    positions: npt.NDArray[np.int32]
    sizes: npt.NDArray[np.int32]
    commit_log_offsets: npt.NDArray[np.int64]
    queue_offsets: npt.NDArray[np.int64]
    born_ms: npt.NDArray[np.int64]
    stored_ms: npt.NDArray[np.int64]
    out_ms: npt.NDArray[np.int64]
    deletes: npt.NDArray[np.bool_]
    topics: npt.NDArray[np.int64]
    topic_names: list[str]

    @property
    def end(self) -> int:
        """The position after the last record."""
        return int(self.positions[-1] + self.sizes[-1]) if len(self.positions) else 0

    @classmethod
    def of(cls, records: bytes, topic: bytes) -> TimerRecords:
        """The rows of successive records, which are to be of a topic, up to one that does not prove itself."""
        data, name = np.frombuffer(records, np.uint8), np.frombuffer(topic, np.uint8)
        count = len(records) // MIN_RECORD_SIZE
        wide, narrow = np.empty((len(WIDE), count), np.int64), np.empty((len(NARROW), count), np.int32)
        found = np.empty((_FOUND, count), np.int64)
        rows = read_timer_records(
            data.ctypes.data, data.size, name.ctypes.data, name.size, _TEXT.ctypes.data, wide, narrow, found
        )
        wide, narrow, found = wide[:, :rows], narrow[:, :rows], found[:, :rows]
        numbers, firsts = np.unique(found[_NUMBER], return_index=True)
        names = [
            records[begin : begin + length].decode(errors="replace")
            for begin, length in found[_REAL : _REAL_SIZE + 1, firsts[numbers >= 0]].T.tolist()
        ]
        return cls(
            narrow[N_POSITION], narrow[N_SIZE], wide[W_COMMIT_LOG_OFFSET], wide[W_QUEUE_OFFSET],
            wide[W_BORN_TIMESTAMP], wide[W_STORE_TIMESTAMP], found[_OUT], found[_DELETES] != 0, found[_NUMBER], names,
        )  # fmt: skip
