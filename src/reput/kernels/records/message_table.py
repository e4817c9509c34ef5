"""Arrow table of messages -> the form that the encode kernels read, with every row checked.

Columns are as in `record_batch.SCHEMA`. `topic` and `body` are required; null in any other means absent. Columns
that a store assigns are ignored, and so is the property `__CRC32#`, so that rows of `read_log` can be put again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reput.errors import MessageIllegalError
from reput.formats.hosts import HOST_V4_SIZE, encode_host
from reput.formats.message import check_topic
from reput.formats.message_batch import INNER_BATCH
from reput.formats.record_layout import MagicCode, encode_topic
from reput.kernels.records.column_addresses import ADDRESSES
from reput.kernels.records.message_columns import check_columns, typed_columns
from reput.kernels.records.record_encode import EncodeFault, encode, measure

_FAULTS = {
    EncodeFault.BODY_TOO_LARGE: "the body is larger than maxMessageSize ({max_body_size} bytes)",
    EncodeFault.PROPERTIES_TOO_LARGE: "the properties take more than 32767 bytes",
    EncodeFault.SEPARATOR_IN_TAGS: "tags: a separator character (0x01 or 0x02)",
    EncodeFault.SEPARATOR_IN_KEYS: "keys: a separator character (0x01 or 0x02)",
    EncodeFault.BLANK_OR_EMPTY_KEY: "keys: a key is empty or has a blank in it, which separates keys",
    EncodeFault.SEPARATOR_IN_UNIQUE_KEY: "unique_key: a separator character (0x01 or 0x02)",
    EncodeFault.SEPARATOR_IN_PROPERTIES: "properties: a separator character (0x01 or 0x02)",
    EncodeFault.EMPTY_PROPERTY: "properties: an empty name or value, which RocketMQ loses",
    EncodeFault.RESERVED_PROPERTY: "properties: TAGS, KEYS and UNIQ_KEY have columns of their own, and INNER_NUM and "
    "INNER_BASE are for put_batch",
}
_BATCH_ROWS = 65_536
_KEPT_BATCHES = 16
#: Up to this many (topic, queue id) pairs are numbered with a table instead of by sorting.
_MAX_TABLE = 1 << 20


class MessageBatch(NamedTuple):
    """Up to 65 536 messages, checked and measured.

    Attributes:
        addresses: int64[len(ADDRESSES)], the addresses for the kernels.
        queues: int32[rows], the queue of each row.
        queue_keys: (topic, queue id) by number.
        sizes, properties_sizes: int32[rows].
        alive: The objects that own the memory at the addresses.
    """

    addresses: npt.NDArray[np.int64]
    queues: npt.NDArray[np.int32]
    queue_keys: list[tuple[str, int]]
    sizes: npt.NDArray[np.int32]
    properties_sizes: npt.NDArray[np.int32]
    alive: list[object]

    def encode_into(
        self, out: npt.NDArray[np.uint8], row: int, store_host: npt.NDArray[np.uint8]
    ) -> tuple[int, npt.NDArray[np.int32]]:
        """Encode rows from `row` on, as many as fit; returns the next row and int32[rows + 1] of positions."""
        left = self.sizes.size - row
        positions = np.empty(left + 1, np.int32)
        following = encode(
            self.addresses, row, self.sizes.size, self.sizes, self.properties_sizes, store_host.ctypes.data,
            store_host.size, out.ctypes.data, out.size, positions,
        )  # fmt: skip
        return following, positions[: following - row + 1]


class CheckedTable:
    """A table of which every row may be written; an iterable of its `MessageBatch`es, to be iterated once.

    The check makes batches, 40 bytes a row. Those with the first million rows are kept; later ones are made again
    during the iteration, so that the memory beside the table is bounded.

    Attributes:
        rows: Number of rows.
        largest: Bytes of the largest record; 0 without a row.
    """

    def __init__(
        self,
        table: pa.Table,
        first_row: int,
        *,
        max_body_size: int,
        max_record_size: int,
        store_host: bytes,
        now_ms: int,
        reserved: int = 0,
        refused_property: str | None = None,
    ) -> None:
        """Check the table.

        Args:
            table: See the module.
            first_row: The number of its first row, for errors.
            max_body_size: `maxMessageSize`.
            max_record_size: The largest record that fits into a commit log file.
            store_host: 8 or 20 bytes; also the born host of rows without one.
            now_ms: The born timestamp of rows without one.
            reserved: Bytes at the end of each record's properties that the append fills: 20 for a property CRC.
            refused_property: A property that needs more than this put does.

        Raises:
            MessageIllegalError: A wrong column or type, or a row that RocketMQ would refuse, by its number.
        """
        check_columns(table.schema)
        self.rows = table.num_rows
        self.largest = 0
        self._table = table
        self._first_row = first_row
        self._max_sizes = max_body_size, max_record_size
        self._store_host = store_host
        self._now_ms = now_ms
        self._reserved = reserved
        self._refused_property = refused_property
        self._kept: list[MessageBatch] = []
        for batch in self._batches(0):
            self.largest = max(self.largest, int(batch.sizes.max()))
            if len(self._kept) < _KEPT_BATCHES:
                self._kept.append(batch)

    def __iter__(self) -> Iterator[MessageBatch]:
        kept = len(self._kept)
        while self._kept:
            yield self._kept.pop(0)
        yield from self._batches(kept)

    def _batches(self, first: int) -> Iterator[MessageBatch]:
        """The batches from number `first` on; batches without rows are not counted."""
        row, number = self._first_row, 0
        for batch in self._table.to_batches(max_chunksize=_BATCH_ROWS):
            if batch.num_rows:
                if number >= first:
                    typed = typed_columns(batch, row)
                    _refuse_property(typed, self._refused_property, row)
                    maker = _BatchMaker(typed, row, self._store_host, self._now_ms)
                    yield maker.make(*self._max_sizes, len(self._store_host), self._reserved)
                row += batch.num_rows
                number += 1


def _refuse_property(batch: pa.RecordBatch, name: str | None, first_row: int) -> None:
    if name is not None and "properties" in batch.schema.names:
        row = pc.index(pc.is_valid(pc.map_lookup(batch.column("properties"), name, "first")), True).as_py()
        if row >= 0:
            raise MessageIllegalError(
                f"row {first_row + row}: the property {name} names further queues, whose offsets a put of a table "
                "does not give out; put this message with put_message or put_messages"
            )


class _BatchMaker:
    """Maker of one batch: finds the addresses of its columns."""

    def __init__(self, batch: pa.RecordBatch, first_row: int, store_host: bytes, now_ms: int) -> None:
        self._batch = batch
        self._first_row = first_row
        self._store_host = store_host
        self._now_ms = now_ms
        self._alive: list[object] = []
        self._addresses = np.zeros(len(ADDRESSES), np.int64)

    def make(self, max_body_size: int, max_record_size: int, store_host_size: int, reserved: int) -> MessageBatch:
        queues, queue_keys = self._number_queues()
        self._text("body", "body_offsets", "bodies")
        for name, data in (("tags", "tags"), ("unique_key", "unique_keys")):
            self._text(name, f"{name}_offsets", data)
        self._keys()
        self._properties()
        for name in ("flag", "sys_flag", "reconsume_times"):
            self._numbers(name, np.int32)
        self._refuse_inner_batches()
        self._numbers("prepared_transaction_offset", np.int64)
        self._numbers("born_timestamp", np.int64, absent=self._now_ms)
        self._hosts()
        rows = self._batch.num_rows
        sizes, properties_sizes = np.empty(rows, np.int32), np.empty(rows, np.int32)
        bad = measure(self._addresses, rows, max_body_size, store_host_size, reserved, sizes, properties_sizes)
        if bad >= 0:
            reason = _FAULTS[EncodeFault(bad % 16)].format(max_body_size=max_body_size)
            raise MessageIllegalError(f"row {self._first_row + bad // 16}: {reason}")
        if int(sizes.max()) > max_record_size:
            row = self._first_row + int(sizes.argmax())
            raise MessageIllegalError(
                f"row {row}: the record takes {sizes.max()} bytes; a commit log file holds {max_record_size}"
            )
        return MessageBatch(self._addresses, queues, queue_keys, sizes, properties_sizes, self._alive)

    def _set(self, name: str, array: npt.NDArray[np.generic]) -> None:
        self._alive.append(array)
        self._addresses[ADDRESSES.index(name)] = array.ctypes.data

    def _column(self, name: str) -> pa.Array | None:
        if name not in self._batch.schema.names:
            return None
        column = self._batch.column(name)
        return None if column.null_count == len(column) else column

    def _set_text(self, column: pa.Array, offsets: str, data: str) -> None:
        """Set the addresses of a string or binary array; a null is an empty text, whatever its data."""
        if column.null_count:
            column = column.fill_null(b"" if pa.types.is_binary(column.type) else "")
        self._alive.append(column)
        buffers = column.buffers()
        self._addresses[ADDRESSES.index(offsets)] = buffers[1].address + 4 * column.offset
        self._addresses[ADDRESSES.index(data)] = buffers[2].address if buffers[2] is not None else 0

    def _text(self, name: str, offsets: str, data: str) -> None:
        column = self._column(name)
        if column is not None:
            self._set_text(column, offsets, data)

    def _lists(self, name: str, lists: str) -> pa.Array | None:
        """Set the address of a list's or a map's offsets; a null is an empty list."""
        column = self._column(name)
        if column is None:
            return None
        values = (
            column.values
            if pa.types.is_list(column.type)
            else pa.StructArray.from_arrays([column.keys, column.items], ["key", "value"])
        )
        offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset :][: len(column) + 1]
        lengths = np.diff(offsets) * column.is_valid().to_numpy(zero_copy_only=False)
        if int(lengths.sum()) < int(offsets[-1] - offsets[0]):  # a null has elements, which Arrow allows
            begins = np.concatenate([[0], np.cumsum(lengths)])
            values = values.take(pa.array(np.arange(begins[-1]) + np.repeat(offsets[:-1] - begins[:-1], lengths)))
            offsets = begins.astype(np.int32)
        self._alive.append(column)
        self._set(lists, offsets)
        return values

    def _keys(self) -> None:
        values = self._lists("keys", "keys_lists")
        if values is not None:
            self._refuse_null("keys", values)
            self._set_text(values, "keys_offsets", "keys")

    def _properties(self) -> None:
        pairs = self._lists("properties", "properties_lists")
        if pairs is not None:
            names, values = pairs.field(0), pairs.field(1)
            self._refuse_null("properties", values)
            self._set_text(names, "name_offsets", "names")
            self._set_text(values, "value_offsets", "values")

    def _refuse_null(self, name: str, values: pa.Array) -> None:
        if values.null_count:
            rows = self._batch.column(name)
            for i, row in enumerate(rows):
                elements = row.as_py() or ()
                if any(element is None or (isinstance(element, tuple) and element[1] is None) for element in elements):
                    raise MessageIllegalError(f"row {self._first_row + i}: {name} has a null in it")

    def _numbers(self, name: str, dtype: type[np.int32] | type[np.int64], *, absent: int = 0) -> None:
        column = self._column(name)
        if column is not None:
            filled = column.fill_null(absent) if column.null_count else column
            self._set(name, np.ascontiguousarray(filled.to_numpy(), dtype))
        elif absent:
            self._set(name, np.full(self._batch.num_rows, absent, dtype))

    def _refuse_inner_batches(self) -> None:
        column = self._column("sys_flag")
        if column is not None:
            flags = column.fill_null(0).to_numpy(zero_copy_only=False)
            found = (flags & INNER_BATCH) != 0
            if found.any():
                row = int(found.argmax())
                raise MessageIllegalError(
                    f"row {self._first_row + row}: sys_flag {flags[row]:#x}: an inner batch (0x40, 0x80) goes to "
                    "put_batch; read_log gives its messages as rows without raw_body"
                )

    def _hosts(self) -> None:
        column = self._column("born_host")
        if column is None:
            texts, codes = [], np.zeros(self._batch.num_rows, np.int32)
            hosts = [self._store_host]
        else:
            coded = column.dictionary_encode()
            texts = coded.dictionary.to_pylist()
            codes = coded.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)
            hosts = [self._host(text, codes, i) for i, text in enumerate(texts)]
            hosts.append(self._store_host)
        if len(hosts) == 1 or all(len(host) == HOST_V4_SIZE for host in hosts):
            # The common case needs no gather: the width is fixed, and the offsets are multiples of it.
            width = len(hosts[0])
            table = np.frombuffer(b"".join(hosts), np.uint8).reshape(-1, width)
            self._set("born_hosts", np.ascontiguousarray(table[codes]))
            self._set("born_host_offsets", np.arange(codes.size + 1, dtype=np.int32) * np.int32(width))
        else:
            self._set_text(pa.array(hosts, pa.binary()).take(pa.array(codes)), "born_host_offsets", "born_hosts")

    def _host(self, text: str, codes: npt.NDArray[np.int32], code: int) -> bytes:
        try:
            return encode_host(text)
        except MessageIllegalError as error:
            row = self._first_row + int((codes == code).argmax())
            raise MessageIllegalError(f"row {row}: born_host: {error}") from error

    def _number_queues(self) -> tuple[npt.NDArray[np.int32], list[tuple[str, int]]]:
        """Number the (topic, queue id) pairs and set their topics' addresses; refuses topics that no put may write."""
        coded = self._batch.column("topic").dictionary_encode()
        topics, codes = coded.dictionary.to_pylist(), coded.indices.to_numpy(zero_copy_only=False)
        fields = [self._topic(topic, codes, code) for code, topic in enumerate(topics)]
        column = self._column("queue_id")
        ids = np.zeros(codes.size, np.int32) if column is None else column.fill_null(0).to_numpy(zero_copy_only=False)
        if int(ids.min()) < 0:
            row = self._first_row + int((ids < 0).argmax())
            raise MessageIllegalError(f"row {row}: queue_id {ids.min()} is negative")
        queues, first = _dense(codes.astype(np.int64), ids.astype(np.int64))
        queue_topics, queue_ids = codes[first].astype(np.int32), ids[first].astype(np.int32)
        names = [topic.encode() for topic in topics]
        self._set("queue", queues)
        self._set("queue_topic", queue_topics)
        self._set("queue_id", queue_ids)
        self._set("topic_is_v2", np.array([magic == MagicCode.MESSAGE_V2 for magic in fields], np.uint8))
        self._set("topic_offsets", np.cumsum([0, *map(len, names)]).astype(np.int32))
        self._set("topics", np.frombuffer(b"".join(names), np.uint8))
        return queues, [(topics[t], q) for t, q in zip(queue_topics.tolist(), queue_ids.tolist(), strict=True)]

    def _topic(self, topic: str, codes: npt.NDArray[np.int32], code: int) -> int:
        try:
            check_topic(topic)
            return encode_topic(topic)[0]
        except MessageIllegalError as error:
            row = self._first_row + int((codes == code).argmax())
            raise MessageIllegalError(f"row {row}: {error}") from error


def _dense(
    codes: npt.NDArray[np.int64], ids: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Number the pairs (code, id) from 0 on; returns int32[rows], and the first row of each number."""
    low, width = int(ids.min()), int(ids.max()) - int(ids.min()) + 1
    span = (int(codes.max()) + 1) * width
    if span > _MAX_TABLE:
        pairs = np.stack([codes, ids])
        _, first, inverse = np.unique(pairs, axis=1, return_index=True, return_inverse=True)
        return inverse.reshape(-1).astype(np.int32), first
    combined = codes * width + (ids - low)
    firsts = np.full(span, -1, np.int64)
    firsts[combined[::-1]] = np.arange(combined.size - 1, -1, -1)
    present = np.flatnonzero(firsts >= 0)
    numbers = np.empty(span, np.int32)
    numbers[present] = np.arange(present.size, dtype=np.int32)
    return numbers[combined], firsts[present]
