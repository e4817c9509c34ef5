"""Stored messages as gRPC clients get them (`GrpcConverter.buildMessage`)."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping

from reput.formats.message_ext import MessageExt
from reput.formats.properties import (
    DELAY,
    SHARDING_KEY,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TRAN_MSG,
)
from reput.formats.record_layout import SysFlag
from reput.remoting.grpc.grpc_codes import DigestType, Encoding, GrpcMessageType
from reput.remoting.grpc.grpc_parts import (
    DeadLetterQueue,
    Digest,
    GrpcMessage,
    GrpcResource,
    SystemProperties,
    timestamp,
)
from reput.service.grpc.message_checks import (
    BORN_HOST,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    SYSTEM_PROPERTIES,
    TRACE_CONTEXT,
)

_GZIP = b"\x1f\x8b"


def delivered_message(
    record: MessageExt, topic: str, handle: str | None, reconsume_times: int, most_body: int
) -> GrpcMessage:
    """A stored message for a client.

    Args:
        record: As it is stored.
        topic: The one that was asked for, also of a message of its retry topic.
        handle: Names the message for acks; None for one that needs none.
        reconsume_times: Number of times it was handed out before.
        most_body: Bytes of the largest body that is decompressed for the client.
    """
    properties = record.properties
    encoding, body = _encoded(record, most_body)
    system = SystemProperties(
        tag=record.tags,
        keys=record.keys,
        message_id=record.unique_key or record.message_id,
        body_digest=Digest(DigestType.MD5, hashlib.md5(body, usedforsecurity=False).hexdigest().upper()),
        body_encoding=encoding,
        message_type=_type_of(properties),
        born_timestamp=timestamp(record.born_timestamp),
        born_host=properties.get(BORN_HOST) or record.born_host,
        store_timestamp=timestamp(record.store_timestamp),
        store_host=record.store_host,
        receipt_handle=handle,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        delivery_attempt=reconsume_times + 1,
        message_group=properties.get(SHARDING_KEY),
        trace_context=properties.get(TRACE_CONTEXT),
    )
    due = properties.get(TIMER_DELIVER_MS, "")
    if due.isascii() and due.isdigit() and len(due) < 19:
        system.delivery_timestamp = timestamp(int(due))
    if DLQ_ORIGIN_TOPIC in properties and DLQ_ORIGIN_MESSAGE_ID in properties:
        system.dead_letter_queue = DeadLetterQueue(properties[DLQ_ORIGIN_TOPIC], properties[DLQ_ORIGIN_MESSAGE_ID])
    user = {name: value for name, value in properties.items() if name not in SYSTEM_PROPERTIES}
    return GrpcMessage(GrpcResource(name=topic), user, system, body)


def _type_of(properties: Mapping[str, str]) -> GrpcMessageType:
    if properties.get(TRAN_MSG) == "true":
        return GrpcMessageType.TRANSACTION
    if DELAY in properties or TIMER_DELIVER_MS in properties or TIMER_DELAY_SEC in properties:
        return GrpcMessageType.DELAY
    return GrpcMessageType.FIFO if SHARDING_KEY in properties else GrpcMessageType.NORMAL


def _encoded(record: MessageExt, most_body: int) -> tuple[Encoding, bytes]:
    """Encoding and bytes of a body: what a client of the remoting protocol has deflated, others could not read."""
    if not record.sys_flag & SysFlag.COMPRESSED:
        return Encoding.IDENTITY, record.body
    if record.body.startswith(_GZIP):
        return Encoding.GZIP, record.body
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(record.body, most_body)
    except zlib.error:
        return Encoding.GZIP, record.body
    return (Encoding.IDENTITY, plain) if inflater.eof else (Encoding.GZIP, record.body)
