"""Scanned columns -> Arrow: the table that Spark, export, statistics and `read_log` share.

Only wanted columns are built. Texts are copied as they are; bytes that are no UTF-8 are replaced by U+FFFD, times
outside the years 1 to 9999 are null, and the row's `status` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reput.formats.hosts import HOST_V4_SIZE, HOST_V6_SIZE, decode_host
from reput.formats.record_layout import BORN_HOST, SysFlag
from reput.kernels.records.columns import RecordColumns, RecordStatus
from reput.kernels.records.gather import (
    gather,
    microseconds,
    next_invalid_text,
    one_host,
    split_keys,
    split_properties,
    total_size,
)

_UTC = pa.timestamp("us", "UTC")
# Looked up once: for a pull of 1000 messages the lookup of types and functions takes a noticeable share of the time.
_INT32, _INT64, _STRING, _BINARY = pa.int32(), pa.int64(), pa.string(), pa.binary()
_LIST, _MAP = pa.list_(pa.string()), pa.map_(pa.string(), pa.string())
_ENTRY = pa.struct([_MAP.key_field, _MAP.item_field])
_array = pa.Array.from_buffers
_Number = TypeVar("_Number", bound=np.generic)

#: A row of the log, in Arrow and in Spark.
SCHEMA = pa.schema(
    [
        ("store", pa.string()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("commit_log_offset", pa.int64()),
        ("store_size", pa.int32()),
        ("magic_code", pa.int32()),
        ("flag", pa.int32()),
        ("sys_flag", pa.int32()),
        ("born_timestamp", _UTC),
        ("store_timestamp", _UTC),
        ("born_host", pa.string()),
        ("store_host", pa.string()),
        ("reconsume_times", pa.int32()),
        ("prepared_transaction_offset", pa.int64()),
        ("body_crc", pa.int32()),
        ("tags", pa.string()),
        ("unique_key", pa.string()),
        ("keys", pa.list_(pa.string())),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("body", pa.binary()),
        ("status", pa.string()),
    ]
)
_INT32_FIELDS = frozenset(field.name for field in SCHEMA if field.type == pa.int32())
#: Milliseconds of 0001-01-01 and of 10000-01-01: the range of Python, pandas and Spark.
_FIRST_MS, _END_MS = -62_135_596_800_000, 253_402_300_800_000
#: Columns that need a higher level than `ScanLevel.HEADER`.
PROPERTY_COLUMNS = frozenset({"tags", "unique_key", "keys"})


def _memory(count: int, dtype: type[_Number]) -> tuple[npt.NDArray[_Number], pa.Buffer]:
    """An array to fill, and the buffer that it is.

    The memory is Arrow's, not NumPy's: other libraries drop batches in threads of their own, also while the interpreter
    ends, and no such thread may need the interpreter lock.
    """
    buffer = pa.allocate_buffer(count * np.dtype(dtype).itemsize)
    return np.frombuffer(buffer, dtype), buffer


class _Slices(NamedTuple):
    """Concatenated slices in Arrow's layout, int32[n + 1] and uint8, their buffers, and the number of empty slices."""

    offsets: npt.NDArray[np.int32]
    data: npt.NDArray[np.uint8]
    buffers: tuple[pa.Buffer, pa.Buffer]
    empty: int


def _validity(valid: npt.NDArray[np.bool_]) -> pa.Buffer:
    """Bitmap of Arrow's of the rows that are not null."""
    bits = np.packbits(valid, bitorder="little")
    bitmap, buffer = _memory(bits.size, np.uint8)
    bitmap[:] = bits
    return buffer


class _Builder:
    """Builder of the columns of one scan; collects in `status` what could not be shown."""

    def __init__(self, columns: RecordColumns, store: str) -> None:
        self.columns = columns
        self.rows = columns.rows
        self.address = columns.buffer.ctypes.data  # the lookup costs 1 us
        self.store = store
        self.status = columns["status"]

    def sliced(self, name: str, *, short: bool = True) -> _Slices:
        """The slices at `<name>_position` and `<name>_size`, copied together."""
        return self.slices(self.columns[f"{name}_position"], self.columns[f"{name}_size"], short=short)

    def slices(self, positions: npt.NDArray[np.int32], sizes: npt.NDArray[np.int32], *, short: bool = True) -> _Slices:
        """The slices at any positions and sizes, copied together."""
        positions, sizes = np.ascontiguousarray(positions), np.ascontiguousarray(sizes)
        offsets, offsets_buffer = _memory(sizes.size + 1, np.int32)
        data, data_buffer = _memory(total_size(sizes), np.uint8)
        empty = gather(self.address, positions, sizes, offsets, data, short)
        return _Slices(offsets, data, (offsets_buffer, data_buffer), empty)

    def text(
        self, slices: _Slices, *, lists: npt.NDArray[np.int32] | None = None, empty_is_null: bool = False
    ) -> pa.Array:
        """String array of slices, one for each row; or as many as `lists`, an Arrow list's offsets, gives each row."""
        offsets, data, buffers, empty = slices
        count = offsets.size - 1
        invalid = next_invalid_text(data, offsets, 0)
        if invalid < count:
            return self._replaced_text(offsets, data, invalid, lists, empty_is_null)
        nulls = empty if empty_is_null else 0
        return _array(_STRING, count, [_validity(np.diff(offsets) > 0) if nulls else None, *buffers], nulls)

    def _replaced_text(
        self,
        offsets: npt.NDArray[np.int32],
        data: npt.NDArray[np.uint8],
        invalid: int,
        lists: npt.NDArray[np.int32] | None,
        empty_is_null: bool,
    ) -> pa.Array:
        self._own_status()
        pieces = [data[begin:end].tobytes() for begin, end in pairwise(offsets)]
        while invalid < len(pieces):
            row = invalid if lists is None else np.searchsorted(lists, invalid, "right") - 1
            self.status[row] |= RecordStatus.TEXT_REPLACED
            invalid = next_invalid_text(data, offsets, invalid + 1)
        texts = [None if empty_is_null and not piece else piece.decode("utf-8", "replace") for piece in pieces]
        return pa.array(texts, pa.string())

    def _own_status(self) -> None:
        """Copy the status before it is changed."""
        if self.status.base is not None:
            self.status = self.status.copy()

    def integer(self, name: str) -> pa.Array:
        """A header column as it is, copied, since the scanner reuses its memory."""
        column = self.columns[name]
        values, buffer = _memory(self.rows, column.dtype.type)
        values[:] = column
        return _array(_INT32 if name in _INT32_FIELDS else _INT64, self.rows, [None, buffer], 0)

    def time(self, name: str) -> pa.Array:
        """Milliseconds -> timestamp[us, UTC]."""
        ms = np.ascontiguousarray(self.columns[name])
        us, buffer = _memory(self.rows, np.int64)
        if microseconds(ms, _FIRST_MS, _END_MS, us):
            return _array(_UTC, self.rows, [None, buffer], 0)
        outside = (ms < _FIRST_MS) | (ms >= _END_MS)
        self._own_status()
        self.status[outside] |= RecordStatus.TIME_OUT_OF_RANGE
        us[outside] = 0
        return _array(_UTC, self.rows, [_validity(~outside), buffer], np.count_nonzero(outside))

    def host(self, name: str) -> pa.Array:
        """`address:port`, decoded once for each distinct host."""
        is_store_host = name == "store_host"
        positions, sys_flag = self.columns["position"], self.columns["sys_flag"]
        at = one_host(self.address, positions, sys_flag, is_store_host)
        if at >= 0:  # the usual case
            is_v6 = sys_flag[0] & (SysFlag.STORE_HOST_V6 if is_store_host else SysFlag.BORN_HOST_V6)
            host = self.columns.buffer[at : at + (HOST_V6_SIZE if is_v6 else HOST_V4_SIZE)].tobytes()
            return _constant(decode_host(host), self.rows)
        sizes = np.where(sys_flag & SysFlag.BORN_HOST_V6, HOST_V6_SIZE, HOST_V4_SIZE).astype(np.int32)
        positions = positions + np.int32(BORN_HOST)
        if is_store_host:
            positions = positions + sizes + np.int32(8)
            sizes = np.where(sys_flag & SysFlag.STORE_HOST_V6, HOST_V6_SIZE, HOST_V4_SIZE).astype(np.int32)
        slices = self.slices(positions, sizes)
        coded = _array(_BINARY, sizes.size, [None, *slices.buffers], 0).dictionary_encode()
        return _texts([decode_host(host) for host in coded.dictionary.to_pylist()]).take(coded.indices)

    def topic(self, name: str) -> pa.Array:
        return self.text(self.sliced(name))

    def property_text(self, name: str) -> pa.Array:
        """Tags or unique key; null if absent."""
        return self.text(self.sliced(name), empty_is_null=True)

    def keys(self, name: str) -> pa.Array:
        positions = np.ascontiguousarray(self.columns["keys_position"])
        sizes = np.ascontiguousarray(self.columns["keys_size"])
        lists, buffer = _memory(self.rows + 1, np.int32)
        # Room for the worst case; memory that is never written takes no pages.
        slices = np.empty((2, (total_size(sizes) + self.rows) // 2 + 1), np.int32)
        count = split_keys(self.address, positions, sizes, lists, slices[0], slices[1])
        texts = self.text(self.slices(slices[0, :count], slices[1, :count]), lists=lists)
        return _array(_LIST, self.rows, [None, buffer], 0, 0, [texts])

    def properties(self, name: str) -> pa.Array:
        positions = np.ascontiguousarray(self.columns["properties_position"])
        sizes = np.ascontiguousarray(self.columns["properties_size"])
        lists, buffer = _memory(self.rows + 1, np.int32)
        pairs = np.empty((4, total_size(sizes) // 4 + self.rows), np.int32)
        count = split_properties(self.address, self.columns.buffer.size, positions, sizes, lists, pairs)
        names = self.text(self.slices(pairs[0, :count], pairs[1, :count]), lists=lists)
        values = self.text(self.slices(pairs[2, :count], pairs[3, :count]), lists=lists)
        entries = _array(_ENTRY, count, [None], 0, 0, [names, values])
        return _array(_MAP, self.rows, [None, buffer], 0, 0, [entries])

    def body(self, name: str) -> pa.Array:
        return _array(_BINARY, self.rows, [None, *self.sliced(name, short=False).buffers], 0)

    def store_name(self, name: str) -> pa.Array:
        return _constant(self.store, self.rows)


_BUILD: dict[str, Callable[[_Builder, str], pa.Array]] = {
    "store": _Builder.store_name,
    "topic": _Builder.topic,
    "born_timestamp": _Builder.time,
    "store_timestamp": _Builder.time,
    "born_host": _Builder.host,
    "store_host": _Builder.host,
    "tags": _Builder.property_text,
    "unique_key": _Builder.property_text,
    "keys": _Builder.keys,
    "properties": _Builder.properties,
    "body": _Builder.body,
}


def status_text(status: npt.NDArray[np.int32]) -> pa.Array:
    """`RecordStatus` bits as text: `OK`, or the names of the faults, separated by commas."""
    if not status.any():
        return _constant("OK", status.size)
    values, inverse = np.unique(status, return_inverse=True)
    names = [",".join(name for bit, name in RecordStatus.NAMES if value & bit) or "OK" for value in values]
    return pa.array(names, pa.string()).take(pa.array(inverse))


def _constant(text: str, rows: int) -> pa.Array:
    """One text in every row: a slice of a cached array, since building one takes longer than 1000 rows."""
    return _repeated(text, 1 << (rows - 1).bit_length() if rows else 0).slice(0, rows)


def _texts(texts: Sequence[str]) -> pa.Array:
    """A few texts, made of their bytes.

    `pa.array` and `pa.scalar` import pandas, if it is installed, to ask whether a value is a Series: half a second in
    each process of Spark's, which may have no other need of it.
    """
    encoded = [text.encode() for text in texts]
    offsets, offsets_buffer = _memory(len(encoded) + 1, np.int32)
    offsets[:] = np.cumsum([0, *map(len, encoded)])
    data, data_buffer = _memory(int(offsets[-1]), np.uint8)
    data[:] = np.frombuffer(b"".join(encoded), np.uint8)
    return _array(_STRING, len(encoded), [None, offsets_buffer, data_buffer], 0)


@lru_cache(maxsize=16)  # arrays of at most a megabyte each
def _repeated(text: str, rows: int) -> pa.Array:
    zeros, buffer = _memory(rows, np.int32)
    zeros[:] = 0
    return _texts([text]).take(_array(_INT32, rows, [None, buffer], 0))


@lru_cache(maxsize=64)
def schema_of(names: tuple[str, ...]) -> pa.Schema:
    """The columns of `SCHEMA` with these names, in this order."""
    return pa.schema([SCHEMA.field(name) for name in names])


def record_batch(columns: RecordColumns, names: Sequence[str], *, store: str = "") -> pa.RecordBatch:
    """The rows of a scan as Arrow, bodies as stored.

    Args:
        columns: Scanned at `ScanLevel.PROPERTIES` or above if a name is in `PROPERTY_COLUMNS`.
        names: Columns of `SCHEMA`, in this order.
        store: The value of the column `store`.
    """
    builder = _Builder(columns, store)
    arrays = {name: _BUILD.get(name, _Builder.integer)(builder, name) for name in names if name != "status"}
    if "status" in names:
        arrays["status"] = status_text(builder.status)
    return pa.RecordBatch.from_arrays([arrays[name] for name in names], schema=schema_of(tuple(names)))
