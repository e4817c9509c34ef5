"""The ways into the log: one message, several, or an Arrow table. Checks and encoding happen before the append lock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np

from reput.config.message_store import MessageStoreConfig
from reput.errors import CorruptStoreError, MessageIllegalError, StoreError, StorePoisonedError
from reput.formats.hosts import HOST_V4_SIZE, encode_host
from reput.formats.java import body_crc
from reput.formats.message import Message, check_head, encode_properties_of
from reput.formats.message_batch import INNER_BATCH
from reput.formats.multi_dispatch import INNER_MULTI_DISPATCH
from reput.formats.property_crc import PROPERTY_CRC_SIZE
from reput.formats.record_layout import MIN_RECORD_SIZE, MagicCode, encode_topic
from reput.log.store_host import encode_store_host
from reput.store.log.commit_log import CommitLog
from reput.store.log.flush import FlushPolicy
from reput.store.log.pending import Append, AppendedRows, EncodedRows, PendingRecord
from reput.store.puts.append_record import append_record
from reput.store.puts.multi_dispatch import MultiDispatch
from reput.store.puts.plain_messages import PlainMessages
from reput.store.puts.put_future import PutFuture
from reput.store.puts.queue_ids import checked_queue_id, queue_ids_of
from reput.store.results import PutMessageResult, PutMessageStatus, PutTableResult
from reput.store.statistics import FAST_PUT_S, StoreStatsService

if TYPE_CHECKING:
    import pyarrow as pa

    from reput.kernels.records.message_table import CheckedTable

#: Rows are encoded into a buffer of this size: it stays in the processor's cache until it is written.
_CHUNK_BYTES = 1 << 20
_new_tuple = tuple.__new__
_PUT_OK = PutMessageStatus.PUT_OK
_V2 = int(MagicCode.MESSAGE_V2)


def _record_size(record: PendingRecord) -> int:
    """Bytes of the record once it has its place; the topic has its length in front, one byte of MIN_RECORD_SIZE."""
    hosts = len(record.born_host) + len(record.store_host) - 2 * HOST_V4_SIZE
    return MIN_RECORD_SIZE - 1 + hosts + len(record.body) + len(record.topic) + len(record.properties)


class PutMessage:
    """Puts into one store.

    Args:
        log: The log.
        flush: Its flush policy.
        config: The store's configuration.
        on_append: Called after each append: there is something to dispatch.
        stats: Where single puts are timed.
    """

    def __init__(
        self,
        log: CommitLog,
        flush: FlushPolicy,
        config: MessageStoreConfig,
        on_append: Callable[[], None],
        stats: StoreStatsService,
    ) -> None:
        self._log = log
        self._flush = flush
        self._on_append = on_append
        self._stats = stats
        self._max_message_size = config.max_message_size
        self._allow_v2 = config.auto_message_version_on_topic_len
        self._store_host = encode_store_host(config)
        self._reserved = PROPERTY_CRC_SIZE if config.enabled_append_prop_crc else 0
        self._multi_dispatch = (
            MultiDispatch(log, config, _record_size) if config.enable_lmq and config.enable_multi_dispatch else None
        )
        self._plain = (
            PlainMessages(log, self._store_host, config.max_message_size)
            if self._multi_dispatch is None and not self._reserved
            else None
        )

    def check(self, message: Message, queue_id: int) -> PendingRecord:
        """The message's fields, checked and encoded; raises MessageIllegalError."""
        check_head(message, max_message_size=self._max_message_size)
        if message.sys_flag & INNER_BATCH:
            raise MessageIllegalError(f"sys_flag {message.sys_flag:#x}: an inner batch (0x40, 0x80) goes to put_batch")
        queue_id = checked_queue_id(queue_id)
        magic, topic = self.encode_topic(message.topic)
        born_host = message.born_host
        body = message.body
        values = (
            (message.topic, queue_id),
            magic,
            body_crc(body),
            message.flag,
            message.sys_flag,
            message.born_timestamp,
            self._store_host if born_host is None else encode_host(born_host),
            self._store_host,
            message.reconsume_times,
            message.prepared_transaction_offset,
            body,
            topic,
            encode_properties_of(message, self._reserved),
        )
        return _new_tuple(PendingRecord, values)

    def encode_topic(self, topic: str) -> tuple[int, bytes]:
        """Magic code and bytes of a topic; raises MessageIllegalError if this store has no records for it."""
        magic, encoded = encode_topic(topic)
        if magic == _V2 and not self._allow_v2:
            raise MessageIllegalError(
                f"topic {topic!r} has more than 127 characters, and autoMessageVersionOnTopicLen is off"
            )
        return magic, encoded

    def _result(self, append: tuple[int, int, int, int], status: PutMessageStatus) -> PutMessageResult:
        offset, end, queue_offset, timestamp = append
        values = status, offset, queue_offset, timestamp, end - offset, self._store_host
        return _new_tuple(PutMessageResult, values)  # a put that takes 2 us is not to wait for the names of six values

    def append(self, record: PendingRecord, clock_s: float) -> Append:
        """Append one record, with its offsets in light queues; errors as of `append_record`."""
        if self._multi_dispatch is not None:
            return self._multi_dispatch.append(record, clock_s)
        return append_record(self._log, record, clock_s, reserved=self._reserved)

    def _append_message(self, message: Message, queue_id: int, clock_s: float) -> tuple[int, int, int, int]:
        append = self._plain.append(message, queue_id, clock_s) if self._plain is not None else None
        return append if append is not None else self.append(self.check(message, queue_id), clock_s)

    def put_message(self, message: Message, queue_id: int) -> PutMessageResult:
        """See `MessageStore.put_message`."""
        begin = time.time()  # as RocketMQ does: a clock that is set while a put runs spoils its duration
        try:
            append = self._append_message(message, queue_id, begin)
            status = _PUT_OK
            if message.wait_store_msg_ok:
                status = self._flush.wait(append[1])
            else:
                self._flush.nudge()
        except StoreError:
            self._stats.put_failed_times += 1
            raise
        self._on_append()
        elapsed = time.time() - begin
        if elapsed < FAST_PUT_S:
            self._stats.fast_put_times += 1
        else:
            self._stats.put_took(elapsed)
        return self._result(append, status)

    def async_put_message(self, message: Message, queue_id: int) -> PutFuture:
        """See `MessageStore.async_put_message`."""
        future = PutFuture()
        future.set_running_or_notify_cancel()  # an append cannot be taken back
        begin = monotonic()
        try:
            append = self._append_message(message, queue_id, time.time())
        except StoreError:
            self._stats.put_failed_times += 1
            raise

        def done(status: PutMessageStatus | StorePoisonedError) -> None:
            self._on_append()
            self._stats.put_took(monotonic() - begin)
            if isinstance(status, StorePoisonedError):
                self._stats.put_failed_times += 1
                future.set_exception(status)
            else:
                future.set_result(self._result(append, status))

        if message.wait_store_msg_ok:
            self._flush.submit(append[1], done)
        else:
            self._flush.nudge()
            done(_PUT_OK)
        return future

    def put_messages(self, messages: Sequence[Message], queue_id: object) -> list[PutMessageResult]:
        """See `MessageStore.put_messages`."""
        messages = tuple(messages)
        queue_ids = queue_ids_of(queue_id, len(messages))
        chunks = self._plain.encode(messages, queue_ids) if self._plain is not None else None
        if chunks is None:
            return self._put_checked(messages, queue_ids.tolist())
        appends: list[AppendedRows] = []
        try:
            for rows in chunks:
                for append in self._append_all(rows):
                    appends.append(append)
        except StoreError as error:
            self._tell_stored(error, sum(append.queue_offsets.size for append in appends))
            raise
        status = self._flush.wait(appends[-1].end_offset) if appends else _PUT_OK
        return [result for append in appends for result in self._results(append, status)]

    def _append_all(self, rows: EncodedRows) -> Iterator[AppendedRows]:
        """Append rows, the rows of each log file by themselves."""
        row = 0
        while row < rows.queues.size:
            append = self._log.append_rows(rows, row)
            self._on_append()
            yield append
            row = append.end_row

    def _results(self, append: AppendedRows, status: PutMessageStatus) -> Iterator[PutMessageResult]:
        values = zip(
            repeat(status), append.commit_log_offsets.tolist(), append.queue_offsets.tolist(),
            repeat(append.store_timestamp), np.diff(append.commit_log_offsets, append=append.end_offset).tolist(),
            repeat(self._store_host),
        )  # fmt: skip
        return map(_new_tuple, repeat(PutMessageResult), values)

    def _tell_stored(self, error: StoreError, stored: int) -> None:
        """Raise the error of a put again with the number of messages that are stored, once these are safe as promised.

        Returns if none is stored, and after a failed sync, where nobody knows.
        """
        if not stored or isinstance(error, StorePoisonedError):
            return
        status = self._flush.wait(self._log.max_offset)
        self._on_append()
        note = f"; the first {stored} messages are stored ({status.name}), the others are not"
        told: StoreError  # a new one: the log refuses all puts with one and the same
        if isinstance(error, CorruptStoreError):
            told = type(error)(error.path, error.offset, error.reason + note)
        else:
            told = type(error)(f"{error}{note}")
        told.stored_messages = stored
        raise told from error

    def _put_checked(self, messages: Sequence[Message], queue_ids: list[int]) -> list[PutMessageResult]:
        checked = []
        for i, (message, queue_id) in enumerate(zip(messages, queue_ids, strict=True)):
            try:
                checked.append(self.check(message, queue_id))
                self._log.check_size(_record_size(checked[-1]))
                if self._multi_dispatch is not None:
                    self._multi_dispatch.check(checked[-1])
            except MessageIllegalError as error:
                raise MessageIllegalError(f"message {i}: {error}") from error
        appends: list[Append] = []
        try:
            for one in checked:
                appends.append(self.append(one, time.time()))
        except StoreError as error:
            self._tell_stored(error, len(appends))
            raise
        waiting = [append.end_offset for m, append in zip(messages, appends, strict=True) if m.wait_store_msg_ok]
        status = self._flush.wait(max(waiting)) if waiting else _PUT_OK
        self._flush.nudge()
        self._on_append()
        return [self._result(append, status) for append in appends]

    def put_arrow(self, tables: Iterable[pa.Table]) -> PutTableResult:
        """Put tables one after the other, each checked before any of it is written; see `MessageStore.put_arrow`."""
        rows, first, end = 0, -1, self._log.max_offset
        try:
            for table in tables:
                for append in self._append_table(self._checked(table, rows)):
                    first, end = (int(append.commit_log_offsets[0]) if first < 0 else first), append.end_offset
                    rows += append.queue_offsets.size
        except MessageIllegalError as error:
            if not rows:
                raise
            self._flush.wait(end)
            told = MessageIllegalError(f"{error}; the {rows} rows of the batches before are stored")
            told.stored_messages = rows
            raise told from error
        except StoreError as error:
            self._tell_stored(error, rows)
            raise
        status = self._flush.wait(end) if first >= 0 else _PUT_OK
        self._on_append()
        return PutTableResult(status, rows, max(first, 0), end)

    def _checked(self, table: pa.Table, first_row: int) -> CheckedTable:
        from reput.kernels.records.message_table import CheckedTable

        return CheckedTable(
            table,
            first_row,
            max_body_size=self._max_message_size,
            max_record_size=self._log.max_record_size,
            store_host=self._store_host,
            now_ms=int(time.time() * 1000),
            reserved=self._reserved,
            refused_property=INNER_MULTI_DISPATCH if self._multi_dispatch is not None else None,
        )

    def _append_table(self, table: CheckedTable) -> Iterator[AppendedRows]:
        """Append all rows, chunk by chunk."""
        host = np.frombuffer(self._store_host, np.uint8)
        buffer = np.empty(max(_CHUNK_BYTES, table.largest), np.uint8)
        for batch in table:
            row, queues = 0, self._log.number_queues(batch.queue_keys)[batch.queues]
            while row < batch.sizes.size:
                following, positions = batch.encode_into(buffer, row, host)
                for append in self._append_all(EncodedRows(buffer, positions, queues[row:following])):
                    self._flush.nudge()
                    yield append
                row = following
