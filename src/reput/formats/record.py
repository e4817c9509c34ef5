"""Encoding and decoding of one CommitLog record (docs/formats/commit-log.md).

The layout itself (fields, positions, magic codes, flags) is in formats/record_layout.py.
"""

from __future__ import annotations

import struct

from reput.errors import CorruptRecordError, MessageIllegalError
from reput.formats.java import body_crc
from reput.formats.message import Message, encode_properties_of
from reput.formats.message_ext import MessageExt
from reput.formats.property_crc import PROPERTY_CRC_SIZE, pack_record_with_crc
from reput.formats.record_layout import BLANK_SIZE, Buffer, MagicCode, encode_topic, pack_record, unpack_record

_BLANK = struct.Struct(">ii")


def encode_record(
    message: Message,
    *,
    queue_id: int,
    queue_offset: int,
    commit_log_offset: int,
    store_timestamp: int,
    store_host: bytes,
    born_timestamp: int,
    born_host: bytes,
    property_crc: bool = False,
) -> bytes:
    """Record of a message as RocketMQ's MessageExtEncoder writes it; property_crc as with enabledAppendPropCRC.

    Times in ms since 1970 UTC; hosts as encode_host returns them. The message's own born_timestamp and born_host are
    not used. The topic's characters and the body's size are not checked (see check_message).
    Raises MessageIllegalError for texts or numbers that a record cannot hold.
    """
    magic, topic = encode_topic(message.topic)
    body = message.body
    try:
        pack = pack_record_with_crc if property_crc else pack_record
        return pack(
            magic,
            body_crc(body),
            queue_id,
            message.flag,
            queue_offset,
            commit_log_offset,
            message.sys_flag,
            born_timestamp,
            born_host,
            store_timestamp,
            store_host,
            message.reconsume_times,
            message.prepared_transaction_offset,
            body,
            topic,
            encode_properties_of(message, PROPERTY_CRC_SIZE if property_crc else 0),
        )
    except struct.error as error:
        raise MessageIllegalError(f"a number does not fit its field of the record: {error}") from None


def decode_record(buffer: Buffer, position: int = 0, *, check_crc: bool = True) -> MessageExt:
    """The message whose record begins at a position of the buffer; the buffer must not change while it is in use.

    Raises CorruptRecordError (path '', offset = position) if the record does not prove itself by its size, magic code,
    inner lengths and, with check_crc, its body's CRC. As in CommitLog.checkMessageAndReturnSize, the CRC of an empty
    body is not checked.
    """
    head, bounds = unpack_record(buffer, position)
    body, body_end = bounds[:2]
    stored_crc = head[2]
    if check_crc and body_end > body:
        computed_crc = body_crc(memoryview(buffer)[body:body_end])
        if computed_crc != stored_crc:
            reason = f"body CRC: BODYCRC says {stored_crc}, the body gives {computed_crc}"
            raise CorruptRecordError("", position, reason)
    return MessageExt(buffer, position)


def encode_blank(size: int) -> bytes:
    """The 8 bytes of a blank record, which ends a CommitLog file with `size` bytes, at least 8, left (TOTALSIZE)."""
    assert size >= BLANK_SIZE, "the append keeps 8 bytes for the blank record"
    return _BLANK.pack(size, MagicCode.BLANK)
