"""Batches into the log: several messages that are all there after a crash, or none of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence, Set
from dataclasses import replace

import numpy as np

from reput.config.message_store import MessageStoreConfig
from reput.errors import MessageIllegalError
from reput.formats.batch_consume_queue import MAX_MESSAGE_COUNT
from reput.formats.java import INT64_MAX, body_crc
from reput.formats.message import Message
from reput.formats.message_batch import INNER_BATCH, BatchItem, MessageExtBatch, decode_batch
from reput.formats.properties import DELAY, INNER_BASE, INNER_NUM, PROPERTY_SEPARATOR, encode_properties
from reput.formats.property_crc import PROPERTY_CRC_SIZE, without_property_crc
from reput.formats.record_layout import MAX_PROPERTIES_SIZE, SysFlag
from reput.log.queue_types import QueueTypes
from reput.store.log.commit_log import CommitLog
from reput.store.log.flush import FlushPolicy
from reput.store.log.pending import Append, EncodedRows, PendingRecord, join_rows, pack
from reput.store.puts.append_record import append_record
from reput.store.puts.put import PutMessage
from reput.store.results import PutBatchResult, PutMessageStatus

#: Room for the INNER_BASE that the append adds: the greatest queue offset.
_INNER_BASE_SIZE = len(encode_properties([(INNER_BASE, str(INT64_MAX))]))


class PutBatch:
    """Puts batches into one store.

    Args:
        putting: The checks of a single message.
        log: The log.
        flush: Its flush policy.
        config: The store's configuration.
        on_append: Called after each append: there is something to dispatch.
        types: Which topics have batch consume queues.
    """

    def __init__(
        self,
        putting: PutMessage,
        log: CommitLog,
        flush: FlushPolicy,
        config: MessageStoreConfig,
        on_append: Callable[[], None],
        types: QueueTypes,
    ) -> None:
        self._check = putting.check
        self._log = log
        self._flush = flush
        self._reserved = PROPERTY_CRC_SIZE if config.enabled_append_prop_crc else 0
        self._with_batch_properties = config.dispatch_rules.items_take_batch_properties
        self._on_append = on_append
        self._types = types

    def put_batch(self, batch: MessageExtBatch | Sequence[Message], queue_id: int) -> PutBatchResult:
        """See `MessageStore.put_batch`."""
        if not isinstance(batch, MessageExtBatch):
            batch = MessageExtBatch.of(batch)
        wants_inner = bool(batch.sys_flag & INNER_BATCH)
        record = self._check(replace(batch, sys_flag=batch.sys_flag & ~INNER_BATCH), queue_id)
        if self._reserved:
            record = record._replace(properties=record.properties[: -self._reserved])
        items = _items(batch)
        has_batch_queues = batch.topic in self._types.batch
        if wants_inner and not has_batch_queues:
            raise MessageIllegalError(
                f"sys_flag {batch.sys_flag:#x} says inner batch, but topic {batch.topic!r} has no batch consume "
                "queues; make it with queue.type=BatchCQ (update_topic), or leave the bits out"
            )
        if has_batch_queues and (wants_inner or batch.unique_key):
            inner = inner_batch(record, len(items), self._reserved)
            append = append_inner_batch(self._log, inner, len(items), self._types.batch, self._reserved)
            offsets = (append.commit_log_offset,)
        else:
            rows = encode_items(
                record, items, int(self._log.number_queues([record.key])[0]), self._log.check_size,
                with_batch_properties=self._with_batch_properties, reserved=self._reserved,
            )  # fmt: skip
            appended = self._log.append_rows(rows, together=True)
            append, offsets = appended.as_one(), tuple(appended.commit_log_offsets.tolist())
        status = PutMessageStatus.PUT_OK
        if batch.wait_store_msg_ok:
            status = self._flush.wait(append.end_offset)
        else:
            self._flush.nudge()
        self._on_append()
        return PutBatchResult(
            status,
            len(items),
            offsets,
            append.queue_offset,
            append.store_timestamp,
            append.end_offset,
            record.store_host,
        )


def _items(batch: MessageExtBatch) -> list[BatchItem]:
    """The messages of a batch; raises MessageIllegalError for what no batch can be."""
    items = decode_batch(bytes(batch.body))
    if items is None:
        raise MessageIllegalError(
            f"the body of {len(batch.body)} bytes is no batch; MessageExtBatch.of and encode_batch make one of messages"
        )
    if batch.sys_flag & (SysFlag.TRANSACTION_MASK | SysFlag.COMPRESSED):
        raise MessageIllegalError(f"sys_flag {batch.sys_flag:#x}: a batch cannot be of a transaction, nor compressed")
    if batch.properties and DELAY in batch.properties:
        raise MessageIllegalError("a batch cannot have a delay level; put its messages one by one")
    return items


def inner_batch(record: PendingRecord, message_count: int, reserved: int) -> PendingRecord:
    """The record of an inner batch, but for INNER_BASE (`SendMessageProcessor.sendBatchMessage`).

    `reserved`: bytes that the record takes at its end, for its CRC.

    Raises:
        MessageIllegalError: Too many messages, or the properties are too large.
    """
    if message_count > MAX_MESSAGE_COUNT:
        raise MessageIllegalError(f"{message_count} messages; an inner batch holds up to {MAX_MESSAGE_COUNT}")
    properties = record.properties
    if properties and not properties.endswith(b"\x02"):  # as sent, without the end of the last one
        properties += b"\x02"
    properties += encode_properties([(INNER_NUM, str(message_count))])
    size = len(properties) + _INNER_BASE_SIZE + reserved
    if size > MAX_PROPERTIES_SIZE:
        raise MessageIllegalError(f"the properties take {size} bytes; {MAX_PROPERTIES_SIZE} are allowed")
    return record._replace(sys_flag=record.sys_flag | INNER_BATCH, properties=properties)


def append_inner_batch(
    log: CommitLog, record: PendingRecord, message_count: int, batch_topics: Set[str], reserved: int
) -> Append:
    """Append a record that holds several messages: INNER_BASE is added to its properties, and the counter moves on.

    As `BatchConsumeQueue.assignQueueOffset`. `record` is of `inner_batch`. Errors as of `append_record`, and
    MessageIllegalError if the topic is not of `batch_topics`, which do not change during an append.
    """

    def complete(record: PendingRecord, queue_offset: int) -> PendingRecord:
        if record.key[0] not in batch_topics:
            reason = f"topic {record.key[0]!r} has no batch consume queues any more; put the batch again"
            raise MessageIllegalError(reason)
        base = encode_properties([(INNER_BASE, str(queue_offset))])
        return record._replace(properties=record.properties + base + bytes(reserved))

    return append_record(log, record, time.time(), reserved=reserved, messages=message_count, complete=complete)


def encode_items(
    record: PendingRecord,
    items: Sequence[BatchItem],
    queue: int,
    check_size: Callable[[int], None],
    *,
    with_batch_properties: bool = True,
    reserved: int = 0,
) -> EncodedRows:
    """The records of an ordinary batch, but for their places (`MessageExtEncoder.encode(MessageExtBatch)`).

    Args:
        record: The batch itself.
        items: Its messages.
        queue: The number of its queue in `CommitLog.queue_offsets`.
        check_size: Called with the bytes of all records before one is made: with the properties of the batch in each, a
            body of 4 MB makes gigabytes of them.
        with_batch_properties: Append the properties of the batch to the properties of each message, as RocketMQ up to
            5.3 does; later versions do not. Its UNIQ_KEY then wins over that of the message.
        reserved: Bytes that each record takes at its end, for its CRC.

    Raises:
        MessageIllegalError: The properties of a message are too large; and what `check_size` raises.
    """
    tail = (record.properties if with_batch_properties else b"") + bytes(reserved)
    born = int(time.time() * 1000) if record.born_timestamp is None else record.born_timestamp
    texts = []
    for i, item in enumerate(items):
        text = without_property_crc(item.properties)
        if text and tail and not text.endswith(PROPERTY_SEPARATOR):
            text += PROPERTY_SEPARATOR
        if len(text) + len(tail) > MAX_PROPERTIES_SIZE:
            reason = f"the properties take {len(text) + len(tail)} bytes; {MAX_PROPERTIES_SIZE} are allowed"
            raise MessageIllegalError(f"message {i}: {reason}")
        texts.append(text)
    head = len(pack(record._replace(body=b"", properties=tail), born))
    check_size(len(items) * head + sum(map(len, texts)) + sum(len(item.body) for item in items))
    packed = [
        pack(
            record._replace(
                body_crc=body_crc(item.body), flag=item.flag, prepared_transaction_offset=0, body=item.body,
                properties=text + tail,
            ),
            born,
        )
        for item, text in zip(items, texts, strict=True)
    ]  # fmt: skip
    return join_rows(packed, np.full(len(packed), queue, np.int32))
