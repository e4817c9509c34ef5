"""Rows of an Arrow table as batches for queues, encoded by kernels; pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reput.client.instance.namespaces import Namespace
from reput.client.instance.send_request import MAX_MESSAGE_SIZE
from reput.client.instance.send_result import SendStatus
from reput.errors import MessageIllegalError, MQClientError
from reput.formats.java import INT32_MAX
from reput.formats.message import RETRY_TOPIC_PREFIX, check_topic_characters
from reput.formats.message_batch import items_end
from reput.formats.properties import REAL_TOPIC, SHARDING_KEY
from reput.formats.unique_id import UniqueIds
from reput.kernels.machine.java_hash import java_hash_slices
from reput.kernels.records.batch_items import batch_bodies
from reput.kernels.records.message_columns import check_schema, typed_columns
from reput.kernels.records.message_table import CheckedTable
from reput.kernels.records.property_maps import with_property
from reput.remoting.queue_tables import QueueKey
from reput.remoting.timer_properties import NOT_IN_BATCHES

#: Rows that are encoded in one call; rows and bytes of a batch at most.
CHUNK_ROWS = 65_536
_BATCH_ROWS, _BATCH_BYTES = 1000, 1 << 20
#: Columns that a message's sender has a say in; a broker assigns the others.
_SENT = ("topic", "queue_id", "body", "tags", "keys", "unique_key", "properties", "flag", "born_timestamp")
_SHARDING_KEYS = "sharding_key"
_NO_HOST = bytes(8)

RESULTS = pa.schema(
    [
        ("message_id", pa.string()),
        ("broker_name", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("status", pa.string()),
    ]
)
"""Results of stored rows: a row for each."""


class RowBatch(NamedTuple):
    """Some rows of a chunk, for one queue.

    Attributes:
        queue: Where they go.
        born_timestamp: In ms.
        body: Of the request.
        begin, end: Which rows, as the chunk has them in order.
    """

    queue: QueueKey
    born_timestamp: int
    body: memoryview
    begin: int
    end: int

    def halves(self) -> tuple[RowBatch, RowBatch]:
        """A batch of two rows or more as two batches."""
        middle = (self.begin + self.end) // 2
        cut = items_end(self.body, middle - self.begin)
        return self._replace(body=self.body[:cut], end=middle), self._replace(body=self.body[cut:], begin=middle)


class StoredBatch(NamedTuple):
    """A stored batch: the offset of its first row, and the broker's status."""

    batch: RowBatch
    status: SendStatus
    queue_id: int
    queue_offset: int


class SentTable:
    """A table that is sent.

    Args:
        table: Columns as of `MessageStore.put_arrow`, and `sharding_key`. Those that a broker assigns do not count.
        namespace: Of the topics.

    Attributes:
        topics: The names at the brokers.
        have_queues: Whether there is a column `queue_id` or `sharding_key`.

    Raises:
        MessageIllegalError: A column is missing, unknown or of another type, or a topic is none.
    """

    def __init__(self, table: pa.Table, namespace: Namespace) -> None:
        self._sharding_keys, table = _without_sharding_keys(table)
        check_schema(table.schema)
        table = table.select([name for name in _SENT if name in table.column_names])
        self.have_queues = self._sharding_keys is not None or "queue_id" in table.column_names
        coded = table["topic"].combine_chunks().dictionary_encode()
        names = [namespace.wrap(topic) for topic in coded.dictionary.to_pylist()]
        for name in names:
            check_topic_characters(name)
            if name.startswith(RETRY_TOPIC_PREFIX):
                raise MessageIllegalError(f"topic {name!r}: a retry topic takes no batches; send these rows one by one")
        self.topics = tuple(names)
        topic = pa.DictionaryArray.from_arrays(coded.indices, pa.array(names, pa.string()))
        self._table = table.set_column(table.column_names.index("topic"), "topic", topic)

    def chunks(self) -> Iterator[RowChunk]:
        """The rows in their order, `CHUNK_ROWS` at most in each."""
        row = 0
        for batch in self._table.to_batches(max_chunksize=CHUNK_ROWS):
            if batch.num_rows:
                keys = None if self._sharding_keys is None else self._sharding_keys[row : row + batch.num_rows]
                yield RowChunk(typed_columns(batch, row), row, keys)
                row += batch.num_rows


class RowChunk:
    """Rows that are encoded in one call.

    Args:
        batch: With the columns in their types.
        first_row: Its number in the table, for errors.
        sharding_keys: Of the rows, text; None for none.

    Attributes:
        message_ids: The ids of the rows, once they are encoded.
    """

    def __init__(self, batch: pa.RecordBatch, first_row: int, sharding_keys: pa.Array | None = None) -> None:
        self._batch = batch
        self._first_row = first_row
        self._sharding_keys = sharding_keys
        self.message_ids: pa.Array = pa.nulls(batch.num_rows, pa.string())
        self._order: npt.NDArray[np.int64] = np.empty(0, np.int64)

    @property
    def rows(self) -> int:
        """Number of rows."""
        rows: int = self._batch.num_rows
        return rows

    def batches(
        self, queues: Mapping[str, Sequence[QueueKey]], *, turn: int, ids: UniqueIds, now_ms: int
    ) -> dict[QueueKey, deque[RowBatch]]:
        """The batches of each queue, in the order of their rows.

        Args:
            queues: Those to choose from, by topic.
            turn: Where to begin among them. Rows that say nothing of a queue go to all of them, in equal runs.
            ids: Makes the ids of rows without a unique key.
            now_ms: The time of birth of rows without one.

        Raises:
            MessageIllegalError: A row that brokers refuse.
            MQClientError: A queue that is not there, or at more than one broker.
        """
        self._refuse()
        columns = {name: self._batch[name] for name in self._batch.schema.names}
        columns["queue_id"] = pa.array(self._places(queues, turn))
        if self._sharding_keys is not None:
            columns["properties"] = with_property(columns.get("properties"), SHARDING_KEY, self._sharding_keys)
        self.message_ids = columns["unique_key"] = self._with_ids(columns.get("unique_key"), ids, now_ms)
        (messages,) = CheckedTable(
            pa.table(columns), self._first_row, max_body_size=MAX_MESSAGE_SIZE, max_record_size=INT32_MAX,
            store_host=_NO_HOST, now_ms=now_ms,
        )  # fmt: skip
        bodies = batch_bodies(messages, most_rows=_BATCH_ROWS, most_bytes=_BATCH_BYTES)
        data = bodies.data.data
        keys = [queues[topic][place] for topic, place in messages.queue_keys]
        found: dict[QueueKey, deque[RowBatch]] = {key: deque() for key in keys}
        for (first, begin, number, born), (last, end, _, _) in pairwise(bodies.cuts.tolist()):
            found[keys[number]].append(RowBatch(keys[number], born, data[begin:end], first, last))
        self._order = bodies.rows
        return found

    def results(self, stored: Sequence[StoredBatch]) -> pa.Table:
        """Results of the rows, with the columns of `RESULTS`; `stored` has all batches, in any order."""
        ordered = sorted(stored, key=lambda one: one.batch.begin)
        counts = [one.batch.end - one.batch.begin for one in ordered]
        begins = np.array([one.batch.begin for one in ordered])
        offsets = np.array([one.queue_offset for one in ordered])
        back = np.argsort(self._order)
        of_row = np.repeat(np.arange(len(ordered)), counts)[back]
        columns = {
            "message_id": self.message_ids,
            "broker_name": pa.array([one.batch.queue.broker_name for one in ordered]).take(pa.array(of_row)),
            "queue_id": pa.array(np.array([one.queue_id for one in ordered], np.int32)[of_row]),
            "queue_offset": pa.array((offsets - begins)[of_row] + back),
            "status": pa.array([one.status.value for one in ordered]).take(pa.array(of_row)),
        }
        return pa.table(columns, schema=RESULTS)

    def _refuse(self) -> None:
        """Raises MessageIllegalError for rows that no batch may hold."""
        empty = pc.index(pc.binary_length(self._batch["body"]), 0).as_py()
        if empty >= 0:
            raise MessageIllegalError(
                f"row {self._first_row + empty}: the body is empty: RocketMQ's brokers refuse such a message"
            )
        if "properties" not in self._batch.schema.names:
            return
        properties = self._batch["properties"]
        has_waited = pc.is_valid(pc.map_lookup(properties, REAL_TOPIC, "first"))  # a copy, and does not wait again
        for name in sorted(NOT_IN_BATCHES):
            asks = pc.and_not(pc.is_valid(pc.map_lookup(properties, name, "first")), has_waited)
            row = pc.index(asks, True).as_py()
            if row >= 0:
                raise MessageIllegalError(
                    f"row {self._first_row + row}: the property {name}: no broker looks for a time inside of a batch; "
                    "send this message with send"
                )

    def _places(self, queues: Mapping[str, Sequence[QueueKey]], turn: int) -> npt.NDArray[np.int32]:
        """int32[rows]: the place of each row's queue among its topic's queues."""
        topics = self._batch["topic"].dictionary_encode()
        codes = topics.indices.to_numpy()
        asked, hashes = self._asked_queues(), self._hashes()
        places = np.empty(codes.size, np.int32)
        for code, topic in enumerate(topics.dictionary.to_pylist()):
            (rows,) = np.nonzero(codes == code)
            count = len(queues[topic])
            if hashes is not None:
                places[rows] = hashes[rows] % count
            elif asked is None:
                places[rows] = (np.arange(rows.size) * count // rows.size + turn) % count
            else:
                queue_ids, inverse = np.unique(asked[rows], return_inverse=True)
                found = [_place(queues[topic], topic, queue_id) for queue_id in queue_ids.tolist()]
                places[rows] = np.array(found, np.int32)[inverse]
        return places

    def _asked_queues(self) -> npt.NDArray[np.int32] | None:
        if "queue_id" not in self._batch.schema.names:
            return None
        column = self._batch["queue_id"]
        if column.null_count:
            row = self._first_row + pc.index(pc.is_null(column), True).as_py()
            raise MessageIllegalError(f"row {row}: queue_id is null; give all rows one, or none")
        asked: npt.NDArray[np.int32] = column.to_numpy()
        return asked

    def _hashes(self) -> npt.NDArray[np.int64] | None:
        """int64[rows], what chooses the queue of a sharding key (`producer.queue_of_key`)."""
        keys = self._sharding_keys
        if keys is None:
            return None
        if keys.null_count:
            row = self._first_row + pc.index(pc.is_null(keys), True).as_py()
            raise MessageIllegalError(f"row {row}: sharding_key is null; give all rows one, or none")
        _, offsets, data = keys.buffers()
        ends = np.frombuffer(offsets, np.int32)[keys.offset :][: len(keys) + 1].astype(np.int64)
        hashes = np.empty(len(keys), np.int32)
        java_hash_slices(0, data.address if data is not None else 0, ends[:-1], np.diff(ends), hashes)
        return np.abs(hashes.astype(np.int64))

    def _with_ids(self, given: pa.Array | None, ids: UniqueIds, now_ms: int) -> pa.Array:
        """The unique keys, made if a row has none."""
        if given is not None:
            given = pc.if_else(pc.equal(given, ""), pa.scalar(None, pa.string()), given)
            if given.null_count == 0:
                return given
        made = pa.array([ids.create(now_ms) for _ in range(self._batch.num_rows)], pa.string())
        return made if given is None else pc.coalesce(given, made)


def _without_sharding_keys(table: pa.Table) -> tuple[pa.Array | None, pa.Table]:
    if _SHARDING_KEYS not in table.column_names:
        return None, table
    keys = table[_SHARDING_KEYS].combine_chunks()
    if not pa.types.is_string(keys.type):
        raise MessageIllegalError(f"column '{_SHARDING_KEYS}' is {keys.type}, and must be string; cast it before")
    if "queue_id" in table.column_names:
        raise MessageIllegalError("the table has queue_id and sharding_key: give one of them")
    return keys, table.drop_columns([_SHARDING_KEYS])


def _place(queues: Sequence[QueueKey], topic: str, queue_id: int) -> int:
    """The place of the queue with an id, which must be the only one."""
    found = [place for place, queue in enumerate(queues) if queue.queue_id == queue_id]
    if not found:
        known = ", ".join(sorted({str(queue.queue_id) for queue in queues}))
        raise MQClientError(f"topic {topic!r} has no queue {queue_id} that takes messages; it has {known}")
    if len(found) > 1:
        brokers = ", ".join(queues[place].broker_name for place in found)
        raise MQClientError(f"topic {topic!r}: the brokers {brokers} all have a queue {queue_id}: leave out queue_id")
    return found[0]
