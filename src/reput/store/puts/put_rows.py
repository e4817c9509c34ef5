"""Puts of rows as a broker receives them: properties as sent, a place or a fault for each row, and no waiting."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from reput.config.message_store import MessageStoreConfig
from reput.errors import MessageIllegalError, ReputError, WouldWaitError
from reput.formats.java import body_crc
from reput.formats.message import MAX_RETRY_TOPIC_SIZE, check_topic
from reput.formats.message_batch import INNER_BATCH, decode_batch
from reput.formats.message_id import encode_message_id
from reput.formats.properties import PROPERTY_SEPARATOR
from reput.formats.property_crc import PROPERTY_CRC_SIZE, without_property_crc
from reput.formats.record_layout import MAX_PROPERTIES_SIZE, MAX_QUEUE_ID, MIN_RECORD_SIZE, Buffer, SysFlag
from reput.log.queue_types import QueueTypes
from reput.log.store_host import encode_store_host
from reput.store.log.commit_log import CommitLog
from reput.store.log.flush import FlushPolicy
from reput.store.log.pending import PendingRecord, join_rows, pack
from reput.store.log.queue_offsets import QueueKey
from reput.store.puts.put import PutMessage
from reput.store.puts.put_batch import append_inner_batch, encode_items, inner_batch
from reput.store.statistics import StoreStatsService


class PutRow(NamedTuple):
    """A message, or a batch of messages for one queue, as it came over the network.

    Attributes:
        properties: name 0x01 value 0x02 ..., as sent; of a batch: what is added to each of its messages.
        born_timestamp: ms since 1970 UTC.
        born_host: 8 or 20 bytes (`encode_host`).
        sys_flag: Of a batch that becomes one record, an inner batch, with the bits `INNER_BATCH`.
        is_batch: The body holds messages (`encode_batch`).
    """

    topic: str
    queue_id: int
    body: Buffer
    properties: bytes
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    is_batch: bool = False


class PutRowResult(NamedTuple):
    """Place of a stored row.

    Attributes:
        commit_log_offsets: Of its record; of a batch that is no inner batch, of each record.
        queue_offset: Of its first message.
        store_timestamp: ms.
        end_offset: Commit log offset after its last record: `when_safe` takes it.
        store_host: 8 or 20 bytes, for the message ids.
    """

    commit_log_offsets: tuple[int, ...]
    queue_offset: int
    store_timestamp: int
    end_offset: int
    store_host: bytes

    @property
    def message_id(self) -> str:
        """RocketMQ's offset message ids, joined by commas."""
        return ",".join(encode_message_id(self.store_host, offset) for offset in self.commit_log_offsets)


class PutRows:
    """Puts rows into one store, in their order; messages that come together are appended together.

    Args:
        putting: Puts of single messages.
        log: The log.
        flush: Its flush policy.
        config: The store's configuration.
        on_append: Called after the last append: there is something to dispatch.
        stats: Where puts are timed.
        types: Which topics have batch consume queues.
    """

    def __init__(
        self,
        putting: PutMessage,
        log: CommitLog,
        flush: FlushPolicy,
        config: MessageStoreConfig,
        on_append: Callable[[], None],
        stats: StoreStatsService,
        types: QueueTypes,
    ) -> None:
        self._putting = putting
        self._log = log
        self._flush = flush
        self._on_append = on_append
        self._stats = stats
        self._types = types
        self._max_message_size = config.max_message_size
        self._has_many = not (config.enable_lmq and config.enable_multi_dispatch)  # a light queue needs one look each
        self._store_host = encode_store_host(config)
        self._reserved = PROPERTY_CRC_SIZE if config.enabled_append_prop_crc else 0
        self._with_batch_properties = config.dispatch_rules.items_take_batch_properties

    def put(self, rows: Sequence[PutRow], room: int | None = None) -> list[PutRowResult | ReputError]:
        """See `LoopWriter.put_rows`."""
        if room is None and self._has_many and len(rows) > 1 and not any(row.is_batch for row in rows):
            results = self._put_messages(rows)
        else:
            results = self._put_in_turn(rows, room)
        self._log.tell_if_low()
        self._flush.nudge()
        self._on_append()
        return results

    def encode(self, row: PutRow) -> bytes:
        """See `LoopWriter.encode_row`."""
        data = pack(self._message(row), row.born_timestamp)
        self._log.check_size(len(data))
        return data

    def _put_in_turn(self, rows: Sequence[PutRow], room: int | None) -> list[PutRowResult | ReputError]:
        results: list[PutRowResult | ReputError] = []
        for row in rows:
            waiting = results[-1] if results and isinstance(results[-1], WouldWaitError) else None
            results.append(waiting or self._put(row, room))
        return results

    def _put(self, row: PutRow, room: int | None) -> PutRowResult | ReputError:
        begin = time.time()
        try:
            if room is not None:
                self._check_sent(row, room)
            result = self._put_batch(row) if row.is_batch else self._put_message(row, begin)
        except WouldWaitError as error:  # not a failure: it comes again
            return error
        except ReputError as error:
            self._stats.put_failed_times += 1
            return error
        self._stats.put_took(time.time() - begin)
        return result

    def _check_sent(self, row: PutRow, room: int) -> None:
        """Raises MessageIllegalError for what a client may not send, as large as it is, or will be later."""
        if len(row.body) > self._max_message_size:
            raise MessageIllegalError(
                f"the body takes {len(row.body)} bytes; maxMessageSize allows {self._max_message_size}"
            )
        texts = [len(row.properties)]
        if row.is_batch and not row.sys_flag & INNER_BATCH:
            of_batch = 1 + texts[0] if self._with_batch_properties else 0
            texts = [len(item.properties) + of_batch for item in decode_batch(bytes(row.body)) or ()]
        size = max(texts, default=0)
        if size > MAX_PROPERTIES_SIZE - room:
            raise MessageIllegalError(
                f"the properties take {size} bytes; {MAX_PROPERTIES_SIZE} are allowed, less {room} that are added later"
            )
        self._log.check_size(MIN_RECORD_SIZE + MAX_RETRY_TOPIC_SIZE + len(row.body) + size + room)

    def _put_message(self, row: PutRow, clock_s: float) -> PutRowResult:
        append = self._putting.append(self._message(row), clock_s)
        return PutRowResult(
            (append.commit_log_offset,), append.queue_offset, append.store_timestamp, append.end_offset,
            self._store_host,
        )  # fmt: skip

    def _message(self, row: PutRow) -> PendingRecord:
        if row.sys_flag & INNER_BATCH:
            raise MessageIllegalError(f"sys_flag {row.sys_flag:#x}: one message is no inner batch (0x40, 0x80)")
        return self._pending(row, row.properties)

    def _put_messages(self, rows: Sequence[PutRow]) -> list[PutRowResult | ReputError]:
        """Messages that are encoded before the append lock, and appended with one look at it for each file."""
        begin = time.time()
        faults: dict[int, ReputError] = {}
        packed, keys = [], []
        for number, row in enumerate(rows):
            try:
                data = self.encode(row)
            except MessageIllegalError as error:
                faults[number] = error
            else:
                packed.append(data)
                keys.append((row.topic, row.queue_id))
        places = iter(self._append(packed, keys) if packed else ())
        results = [faults.get(number) or next(places) for number in range(len(rows))]
        put = sum(isinstance(result, PutRowResult) for result in results)
        waiting = sum(isinstance(result, WouldWaitError) for result in results)
        self._stats.put_failed_times += len(rows) - put - waiting
        if put:
            self._stats.put_took(time.time() - begin, put)
        return results

    def _append(self, packed: Sequence[bytes], keys: list[QueueKey]) -> list[PutRowResult | ReputError]:
        """Records of several queues; none has a place after the first one for which the log has none."""
        places: list[PutRowResult | ReputError] = []
        try:
            rows = join_rows(packed, self._log.number_queues(keys))
            while len(places) < len(packed):
                first = len(places)
                append = self._log.append_rows(rows, first)
                offsets = append.commit_log_offsets.tolist()
                for offset, end, queue_offset in zip(
                    offsets, [*offsets[1:], append.end_offset], append.queue_offsets.tolist(), strict=True
                ):
                    places.append(PutRowResult((offset,), queue_offset, append.store_timestamp, end, self._store_host))
        except ReputError as error:
            places += [error] * (len(packed) - len(places))
        return places

    def _put_batch(self, row: PutRow) -> PutRowResult:
        items = decode_batch(bytes(row.body))
        if items is None:
            raise MessageIllegalError(f"the body of {len(row.body)} bytes is no batch")
        if row.sys_flag & SysFlag.TRANSACTION_MASK:
            raise MessageIllegalError(f"sys_flag {row.sys_flag:#x}: a batch cannot be of a transaction")
        if row.sys_flag & INNER_BATCH:
            if row.sys_flag & SysFlag.COMPRESSED:
                raise MessageIllegalError(f"sys_flag {row.sys_flag:#x}: an inner batch cannot be compressed")
            record = inner_batch(self._pending(row, row.properties, reserved=0), len(items), self._reserved)
            one = append_inner_batch(self._log, record, len(items), self._types.batch, self._reserved)
            return PutRowResult(
                (one.commit_log_offset,), one.queue_offset, one.store_timestamp, one.end_offset, self._store_host
            )
        [queue] = self._log.number_queues([(row.topic, row.queue_id)]).tolist()
        rows = encode_items(
            self._pending(row, row.properties, reserved=0), items, queue, self._log.check_size,
            with_batch_properties=self._with_batch_properties, reserved=self._reserved,
        )  # fmt: skip
        append = self._log.append_rows(rows, together=True)
        offsets = tuple(append.commit_log_offsets.tolist())
        return PutRowResult(
            offsets, int(append.queue_offsets[0]), append.store_timestamp, append.end_offset, self._store_host
        )

    def _pending(self, row: PutRow, properties: bytes, reserved: int | None = None) -> PendingRecord:
        """The fields of a row, checked and encoded; raises MessageIllegalError."""
        reserved = self._reserved if reserved is None else reserved
        check_topic(row.topic)
        if not 0 <= row.queue_id <= MAX_QUEUE_ID:
            raise MessageIllegalError(f"queue_id {row.queue_id} is not between 0 and {MAX_QUEUE_ID}")
        properties = without_property_crc(properties)
        if reserved and properties and not properties.endswith(PROPERTY_SEPARATOR):
            properties += PROPERTY_SEPARATOR
        properties += bytes(reserved)
        if len(properties) > MAX_PROPERTIES_SIZE:
            raise MessageIllegalError(f"the properties take {len(properties)} bytes; {MAX_PROPERTIES_SIZE} are allowed")
        magic, topic = self._putting.encode_topic(row.topic)
        return PendingRecord(
            (row.topic, row.queue_id), magic, body_crc(row.body), row.flag, row.sys_flag, row.born_timestamp,
            row.born_host, self._store_host, row.reconsume_times, row.prepared_transaction_offset, row.body, topic,
            properties,
        )  # fmt: skip
