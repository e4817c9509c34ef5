"""Sender: rows of one task as messages to brokers, in batches, each until a broker has it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from reput.client.instance.send_request import SendRequest, batch_requests, queue_of_key, send_request
from reput.client.instance.send_result import SendStatus
from reput.client.producing.mq_fault_strategy import may_be_too_large, may_pass
from reput.errors import MessageIllegalError, MQClientError, RemotingError
from reput.events import Event
from reput.formats.message import Message
from reput.formats.properties import SHARDING_KEY
from reput.kernels.records.message_columns import typed_columns
from reput.remoting.queue_tables import QueueKey
from reput.remoting.timer_properties import NOT_IN_BATCHES, of_copy
from reput.spark.wire.cluster import Cluster
from reput.spark.wire.row_keys import RowKeys
from reput.spark.wire.write_options import SHARDING_KEY_COLUMN, WireWriteOptions

logger = logging.getLogger("reput.spark")

#: Rows and bytes of bodies of one request at most; it is cut again if properties are large.
_ROWS, _BYTES = 1000, 1 << 20
_SEND_S = 15.0
_ATTEMPTS, _AGAIN_S = 4, 0.5


class _Row(NamedTuple):
    number: int
    message: Message


class Sender:
    """Sends rows. Those with a sharding key go to its queue; the others to all queues in turn, a request each.

    Args:
        cluster: Where they go.
        options: Of the sink.
        keys: Of the rows of this task, for those without a unique key of their own.
    """

    def __init__(self, cluster: Cluster, options: WireWriteOptions, keys: RowKeys) -> None:
        self._cluster = cluster
        self._options = options
        self._keys = keys
        self._waiting: dict[tuple[str, QueueKey | None], list[_Row]] = {}
        self._bytes: dict[tuple[str, QueueKey | None], int] = {}
        self._turns: dict[str, int] = {}
        self._queues: dict[str, tuple[QueueKey, ...]] = {}
        self.rows = 0

    def put(self, batch: pa.RecordBatch) -> None:
        """Take rows, and send those that make whole requests.

        Raises MessageIllegalError for a row that brokers refuse, MQClientError if no broker takes one in the end.
        """
        for row, sharding_key in self._rows(batch):
            topic = row.message.topic
            queue = None
            if sharding_key is not None:  # the queues of the task's begin: its keys stay where they are
                if topic not in self._queues:
                    self._queues[topic] = self._cluster.publish_queues(topic)
                queue = queue_of_key(sharding_key, self._queues[topic])
            place = topic, queue
            rows = self._waiting.setdefault(place, [])
            rows.append(row)
            self._bytes[place] = self._bytes.get(place, 0) + len(row.message.body)
            if len(rows) >= _ROWS or self._bytes[place] >= _BYTES:
                self._send_waiting(place)

    def flush(self) -> None:
        """Send what waits; errors as of `put`."""
        for place in list(self._waiting):
            self._send_waiting(place)

    def _rows(self, batch: pa.RecordBatch) -> Iterator[tuple[_Row, str | None]]:
        sharding_keys: list[str | None] = [None] * batch.num_rows
        if SHARDING_KEY_COLUMN in batch.schema.names:
            sharding_keys = batch[SHARDING_KEY_COLUMN].to_pylist()
            batch = batch.drop_columns([SHARDING_KEY_COLUMN])
        if self._options.topic is not None:
            if "topic" in batch.schema.names:
                batch = batch.drop_columns(["topic"])
            batch = batch.append_column("topic", pa.repeat(pa.scalar(self._options.topic), batch.num_rows))
        typed = typed_columns(batch, self.rows)
        names = [name for name in _FIELDS if name in typed.schema.names]
        columns = [typed[name].to_pylist() for name in names]
        for i, values in enumerate(zip(*columns, strict=True)):
            given = {name: value for name, value in zip(names, values, strict=True) if value is not None}
            if "properties" in given or sharding_keys[i] is not None:
                given["properties"] = of_copy(dict(given.get("properties", ())))
                if sharding_keys[i] is not None:
                    given["properties"][SHARDING_KEY] = sharding_keys[i]
            yield _Row(self.rows, Message(**given)), sharding_keys[i]
            self.rows += 1

    def _send_waiting(self, place: tuple[str, QueueKey | None]) -> None:
        rows, _ = self._waiting.pop(place), self._bytes.pop(place)
        for request in self._requests(rows):
            self._send(request, place[1])

    def _requests(self, rows: Sequence[_Row]) -> Iterator[SendRequest]:
        now_ms = time.time_ns() // 1_000_000
        keys = {id(row.message): self._keys.key(row.number) for row in rows}
        is_alone = len(rows) == 1 or any(not NOT_IN_BATCHES.isdisjoint(row.message.properties or ()) for row in rows)
        try:
            if is_alone:
                yield from [send_request(row.message, keys[id(row.message)], now_ms) for row in rows]
            else:
                messages = [row.message for row in rows]
                yield from batch_requests(messages, [keys[id(message)] for message in messages], now_ms)
        except MessageIllegalError:
            for row in rows:
                try:
                    send_request(row.message, keys[id(row.message)], now_ms)
                except MessageIllegalError as error:
                    raise MessageIllegalError(f"row {row.number} of this partition: {error}") from None
            raise

    def _send(self, request: SendRequest, queue: QueueKey | None) -> None:
        """Send one request; one that failed goes to the next queue, or to its own if it has a sharding key."""
        for attempt in range(_ATTEMPTS):
            chosen = queue
            try:
                chosen = queue or self._next_queue(request.topic)
                results = self._cluster.send(self._options.group, chosen, request, _SEND_S)
            except MQClientError as error:  # no name server answers, or no broker has the topic just now
                if attempt + 1 == _ATTEMPTS:
                    raise
                reason = str(error)
            except RemotingError as error:
                if len(request.ids) > 1 and may_be_too_large(error):
                    for half in request.halves():
                        self._send(half, queue)
                    return
                if not may_pass(error):
                    raise
                reason = str(error)
            else:
                status = next((one.status for one in results if one.status is not SendStatus.SEND_OK), None)
                if status is None:
                    return
                reason = f"stored, but not as safe as asked for: {status.name}"
            logger.warning(Event("a send failed", queue=chosen, attempt=attempt, error=reason))
            self._cluster.forget_route(request.topic)
            if attempt + 1 < _ATTEMPTS:
                time.sleep(_AGAIN_S)
        raise MQClientError(
            f"topic {request.topic}: no broker took messages in {_ATTEMPTS} attempts; the last: {reason}"
        )

    def _next_queue(self, topic: str) -> QueueKey:
        queues = self._cluster.publish_queues(topic)
        turn = self._turns.get(topic, self._keys.first_turn)
        self._turns[topic] = turn + 1
        return queues[turn % len(queues)]


#: Columns that are fields of `Message` by their names; a broker assigns the others, or does not ask for them.
_FIELDS = ("topic", "body", "tags", "keys", "unique_key", "properties", "flag", "born_timestamp")
