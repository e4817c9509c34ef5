"""Scanned records -> rows of an archive, in Arrow; and rows -> records.

The columns are those of `read_log`, without what can be computed, and two more: `property_order` makes the columns of
the properties lossless, and where they are not, `raw_properties` has the text. No rule decides which row is lossless:
each row's record is built from the columns, and compared with the log.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import compute

from reput.errors import MessageIllegalError
from reput.formats.hosts import encode_host
from reput.kernels.archive.property_orders import most_letters, property_orders
from reput.kernels.archive.restored_records import ADDRESSES, prove_records, restore_records
from reput.kernels.records.columns import RecordColumns
from reput.kernels.records.gather import gather
from reput.kernels.records.record_batch import SCHEMA, record_batch

_NAMES = (
    "topic", "queue_id", "queue_offset", "commit_log_offset", "magic_code", "flag", "sys_flag", "born_timestamp",
    "store_timestamp", "born_host", "store_host", "reconsume_times", "prepared_transaction_offset", "tags",
    "unique_key", "keys", "properties", "body",
)  # fmt: skip
_ORDER, _RAW = "property_order", "raw_properties"
#: A row of an archive.
ROWS_SCHEMA = pa.schema([*(SCHEMA.field(name) for name in _NAMES), (_ORDER, pa.string()), (_RAW, pa.binary())])
#: A piece of the rest of a log file.
REST_SCHEMA = pa.schema([("commit_log_offset", pa.int64()), ("bytes", pa.binary())])
#: Columns of few values, which kernels take as dictionaries.
CODED = ("topic", "born_host", "store_host", _ORDER)
#: Columns that may be null.
_NULLABLE = {"tags", "unique_key", _RAW}
_TEXTS = {"body": "bodies", "tags": "tags", "unique_key": "unique_keys", _RAW: _RAW}
_NUMBERS = [name for name in _NAMES if pa.types.is_integer(SCHEMA.field(name).type)] + [
    "born_timestamp",
    "store_timestamp",
]


def proven_rows(columns: RecordColumns) -> tuple[pa.RecordBatch, npt.NDArray[np.bool_]]:
    """Rows of the scanned records, and bool[records] that says which records they give back byte for byte.

    A record that its columns do not give back is tried again with its properties as they are. One that they do not
    give back either has no row.
    """
    as_stored = np.zeros(columns.rows, np.uint8)
    batch = _rows(columns, as_stored)
    if differing := _differing(columns, batch, as_stored):
        batch = _rows(columns, as_stored)
        differs = np.zeros(columns.rows, np.uint8)
        differing = _differing(columns, batch, differs)
        if differing:
            are_given = differs == 0
            return batch.filter(pa.array(are_given)), are_given
    return batch, np.ones(columns.rows, np.bool_)


def restore_rows(batch: pa.RecordBatch, out: npt.NDArray[np.uint8], base_offset: int) -> int:
    """Write the records of rows at their places in a log file that begins at `base_offset`.

    Args:
        batch: Of `ROWS_SCHEMA`; `CODED` may be dictionaries.
        out: uint8[size of the log file].

    Returns the number of rows, or that of the first that gives no record of this file.
    """
    if any(batch[name].null_count for name in ROWS_SCHEMA.names if name not in _NULLABLE):
        return 0
    if not batch.num_rows:
        return 0
    addresses, _held = _addresses(batch)
    return int(restore_records(addresses, batch.num_rows, out.ctypes.data, out.size, base_offset))


def gathered(columns_buffer: npt.NDArray[np.uint8], positions: npt.NDArray[Any], sizes: npt.NDArray[Any]) -> pa.Array:
    """Slices of a buffer as an array of bytes."""
    offsets, data = np.empty(sizes.size + 1, np.int32), np.empty(int(sizes.sum(dtype=np.int64)), np.uint8)
    gather(
        columns_buffer.ctypes.data, np.ascontiguousarray(positions, np.int32), np.ascontiguousarray(sizes, np.int32),
        offsets, data, False,
    )  # fmt: skip
    return pa.Array.from_buffers(pa.binary(), sizes.size, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _rows(columns: RecordColumns, as_stored: npt.NDArray[np.uint8]) -> pa.RecordBatch:
    """Rows of records; those that are not 0 in `as_stored` have the text of their properties."""
    batch = record_batch(columns, _NAMES)
    positions = np.ascontiguousarray(columns["properties_position"])
    sizes = np.ascontiguousarray(columns["properties_size"])
    letters = np.empty(most_letters(int(sizes.sum(dtype=np.int64)), sizes.size), np.uint8)
    offsets = np.empty(sizes.size + 1, np.int32)
    used = property_orders(columns.buffer.ctypes.data, positions, sizes, as_stored, letters, offsets)
    order = pa.Array.from_buffers(
        pa.string(), sizes.size, [None, pa.py_buffer(offsets), pa.py_buffer(letters[:used].tobytes())]
    )
    is_raw = np.asarray(compute.equal(order, "?").to_numpy(zero_copy_only=False), np.bool_)
    texts = gathered(columns.buffer, positions, np.where(is_raw, sizes, 0))
    if not is_raw.all():
        texts = compute.if_else(pa.array(is_raw), texts, pa.scalar(None, pa.binary()))
    return pa.RecordBatch.from_arrays([*batch.columns, order, texts], schema=ROWS_SCHEMA)


def _differing(columns: RecordColumns, batch: pa.RecordBatch, differs: npt.NDArray[np.uint8]) -> int:
    """Mark the rows that do not give their records back; returns how many."""
    if not batch.num_rows:
        return 0
    addresses, _held = _addresses(batch)
    sizes = np.ascontiguousarray(columns["store_size"])
    scratch = np.empty(int(sizes.max(initial=0)), np.uint8)
    positions = columns["position"].astype(np.int64)
    log = columns.buffer.ctypes.data
    return int(prove_records(addresses, batch.num_rows, log, positions, sizes, scratch.ctypes.data, differs))


def _addresses(batch: pa.RecordBatch) -> tuple[npt.NDArray[np.int64], list[Any]]:
    """Addresses of the columns for kernels, and what must be held as long as they are used."""
    places: dict[str, int] = {}
    held: list[Any] = []

    def keep(array: pa.Array) -> pa.Array:
        array = pa.concat_arrays([array]) if array.offset else array
        held.append(array)
        return array

    def add_texts(array: pa.Array, offsets: str, data: str) -> None:
        _, begins, content = keep(array).buffers()
        places[offsets], places[data] = (0 if buffer is None else buffer.address for buffer in (begins, content))

    for name in _NUMBERS:
        places[name] = keep(batch[name]).buffers()[1].address
    for name in CODED:
        column = batch[name] if pa.types.is_dictionary(batch.schema.field(name).type) else None
        column = batch[name].dictionary_encode() if column is None else column
        places[name] = keep(keep(column).indices.cast(pa.int32())).buffers()[1].address
        values = column.dictionary
        if name.endswith("_host"):
            values = pa.array([_host(text) for text in values.to_pylist()], pa.binary())
        add_texts(values, f"{name}_offsets", f"{name}s")
    for name, data in _TEXTS.items():
        add_texts(batch[name], f"{name}_offsets", data)
    keys, pairs = keep(batch["keys"]), keep(batch["properties"])
    places["keys_lists"], places["properties_lists"] = keys.buffers()[1].address, pairs.buffers()[1].address
    add_texts(keys.values, "keys_offsets", "keys")
    add_texts(pairs.keys, "name_offsets", "names")
    add_texts(pairs.items, "value_offsets", "values")
    return np.array([places[name] for name in ADDRESSES], np.int64), held


def _host(text: str) -> bytes:
    """Host as a record has it; empty, as no host is, for a text that is none."""
    try:
        return encode_host(text)
    except MessageIllegalError:
        return b""
