"""Layout of a CommitLog record: the only module that knows its byte positions (docs/formats/commit-log.md).

`pack_record` and `unpack_record` convert plain numbers and bytes into a record and back; formats/record.py and
formats/message.py do so for messages. The layout is that of RocketMQ's MessageExtEncoder and CommitLog.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from functools import lru_cache
from typing import TypeAlias

from reput.errors import CorruptRecordError, MessageIllegalError
from reput.formats.field import Field, struct_format
from reput.formats.hosts import HOST_V4_SIZE, HOST_V6_SIZE
from reput.formats.java import INT32_MAX

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes to read from; a memoryview must be flat, with items of one byte."""


class MagicCode(IntEnum):
    """MAGICCODE: V1 has a topic length of 1 byte, V2 of 2 bytes; BLANK fills the end of a file."""

    MESSAGE_V1 = -626843481
    MESSAGE_V2 = -626843477
    BLANK = -875286124


class SysFlag:
    """Bits of SYSFLAG (RocketMQ's MessageSysFlag)."""

    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    TRANSACTION_MASK = 0xC
    TRANSACTION_PREPARED = 0x4
    TRANSACTION_COMMIT = 0x8
    TRANSACTION_ROLLBACK = 0xC
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20
    NEED_UNWRAP = 0x40
    INNER_BATCH = 0x80
    COMPRESSION_MASK = 0x700
    COMPRESSION_LZ4 = 0x100
    COMPRESSION_ZSTD = 0x200
    COMPRESSION_ZLIB = 0x300


FIELDS: tuple[Field, ...] = (
    Field("TOTALSIZE", "i", 4, "length of the whole record, this field included", "store_size"),
    Field("MAGICCODE", "i", 4, "V1 `daa320a7`, V2 `daa320ab`, BLANK `cbd43194`", "magic_code"),
    Field("BODYCRC", "i", 4, "CRC-32 of the stored body with the top bit cleared; 0 for an empty body", "body_crc"),
    Field("QUEUEID", "i", 4, "queue of the topic", "queue_id"),
    Field("FLAG", "i", 4, "free for the application", "flag"),
    Field("QUEUEOFFSET", "q", 8, "place in the queue, counted in messages", "queue_offset"),
    Field("PHYSICALOFFSET", "q", 8, "place of the record's first byte in the CommitLog", "commit_log_offset"),
    Field("SYSFLAG", "i", 4, "bits, see below", "sys_flag"),
    Field("BORNTIMESTAMP", "q", 8, "producer's clock, ms since 1970 UTC", "born_timestamp"),
    Field("BORNHOST", "8s", 8, "producer's address and port; 20 bytes if SYSFLAG has 0x10", "born_host"),
    Field("STORETIMESTAMP", "q", 8, "store's clock at the append, ms since 1970 UTC", "store_timestamp"),
    Field("STOREHOSTADDRESS", "8s", 8, "store's address and port; 20 bytes if SYSFLAG has 0x20", "store_host"),
    Field("RECONSUMETIMES", "i", 4, "redeliveries so far", "reconsume_times"),
    Field(
        "PREPAREDTRANSACTIONOFFSET",
        "q",
        8,
        "CommitLog offset of the half message of a committed transaction, else 0",
        "prepared_transaction_offset",
    ),
    Field("BODYLENGTH", "i", 4, "bytes of BODY"),
    Field("BODY", None, None, "the body as stored, perhaps compressed", "body"),
    Field("TOPICLENGTH", "b", 1, "bytes of TOPIC; 2 bytes wide in V2"),
    Field("TOPIC", None, None, "UTF-8", "topic"),
    Field("PROPERTIESLENGTH", "h", 2, "bytes of PROPERTIES"),
    Field("PROPERTIES", None, None, "UTF-8, see below", "properties"),
)

# Positions from the start of a record.
TOTAL_SIZE = 0
MAGIC_CODE = 4
BODY_CRC = 8
QUEUE_ID = 12
FLAG = 16
QUEUE_OFFSET = 20
PHYSICAL_OFFSET = 28
SYS_FLAG = 36
BORN_TIMESTAMP = 40
BORN_HOST = 48
# From here on the positions hold with two IPv4 hosts; each IPv6 host moves the fields after it by 12 bytes.
STORE_TIMESTAMP = 56
STORE_HOST = 64
RECONSUME_TIMES = 72
PREPARED_TRANSACTION_OFFSET = 76
BODY_LENGTH = 84
BODY = 88

MIN_RECORD_SIZE = 91
BLANK_SIZE = 8
MAX_PROPERTIES_SIZE = 32767
MAX_QUEUE_ID = INT32_MAX
V1_MAX_TOPIC_SIZE = 127

_V6_MASK = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6
_HEAD_FIELDS = FIELDS[: [field.name for field in FIELDS].index("BODY")]


def _head(born_host_size: int, store_host_size: int) -> struct.Struct:
    """Struct of the fields before BODY with hosts of these sizes."""
    sizes = {"BORNHOST": born_host_size, "STOREHOSTADDRESS": store_host_size}
    return struct.Struct(
        struct_format(
            field._replace(code=f"{sizes[field.name]}s") if field.name in sizes else field for field in _HEAD_FIELDS
        )
    )


_HEADS = {
    0: _head(HOST_V4_SIZE, HOST_V4_SIZE),
    SysFlag.BORN_HOST_V6: _head(HOST_V6_SIZE, HOST_V4_SIZE),
    SysFlag.STORE_HOST_V6: _head(HOST_V4_SIZE, HOST_V6_SIZE),
    _V6_MASK: _head(HOST_V6_SIZE, HOST_V6_SIZE),
}
_HOST_BITS = {
    (HOST_V4_SIZE, HOST_V4_SIZE): 0,
    (HOST_V6_SIZE, HOST_V4_SIZE): SysFlag.BORN_HOST_V6,
    (HOST_V4_SIZE, HOST_V6_SIZE): SysFlag.STORE_HOST_V6,
    (HOST_V6_SIZE, HOST_V6_SIZE): _V6_MASK,
}
_SIZE_AND_MAGIC = struct.Struct(">ii")
#: TOTALSIZE, MAGICCODE, BODYCRC, QUEUEOFFSET, SYSFLAG and BODYLENGTH of a record with IPv4 addresses.
_WALKED = struct.Struct(">iii8xq8xi44xi")
_INT32 = struct.Struct(">i")
_INT16 = struct.Struct(">h")
_INT8 = struct.Struct(">b")
_MESSAGE_V1 = int(MagicCode.MESSAGE_V1)
_MESSAGE_V2 = int(MagicCode.MESSAGE_V2)


def record_size(body: int, topic: int, properties: int, *, magic: MagicCode, sys_flag: int) -> int:
    """Size of a record with these sizes of body, topic and properties (MessageExtEncoder.calMsgLength)."""
    topic_length = _INT16 if magic == MagicCode.MESSAGE_V2 else _INT8
    return _HEADS[sys_flag & _V6_MASK].size + body + topic_length.size + topic + _INT16.size + properties


@lru_cache(maxsize=65_536)
def encode_topic(topic: str) -> tuple[int, bytes]:
    """Magic code for the topic, and the bytes of TOPICLENGTH and TOPIC.

    V2 from 128 characters (UTF-16 units) on, as in CommitLog.asyncPutMessage. Raises MessageIllegalError if the length
    field of that version cannot hold the topic's size: lengths are signed, a V1 topic has at most 127 bytes.
    """
    try:
        encoded = topic.encode()
    except UnicodeEncodeError:
        raise MessageIllegalError(f"topic {topic!r} holds a lone surrogate, which UTF-8 cannot store") from None
    units = len(topic) + sum(character > "\uffff" for character in topic)
    magic, length, limit = (
        (_MESSAGE_V1, _INT8, V1_MAX_TOPIC_SIZE) if units <= V1_MAX_TOPIC_SIZE else (_MESSAGE_V2, _INT16, 0x7FFF)
    )
    if len(encoded) > limit:
        raise MessageIllegalError(f"topic of {units} characters takes {len(encoded)} bytes; a record holds {limit}")
    return magic, length.pack(len(encoded)) + encoded


def pack_record(
    magic_code: int,
    body_crc: int,
    queue_id: int,
    flag: int,
    queue_offset: int,
    commit_log_offset: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: bytes,
    store_timestamp: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
    body: Buffer,
    topic: bytes,
    properties: bytes,
) -> bytes:
    """Bytes of a record; arguments in the order of FIELDS.

    topic: magic_code's TOPICLENGTH and TOPIC, as encode_topic returns them.
    sys_flag: the two host bits are set or cleared according to the hosts (8 or 20 bytes).
    Raises struct.error for a number that its field cannot hold.
    """
    sys_flag = sys_flag & ~_V6_MASK | _HOST_BITS[len(born_host), len(store_host)]
    head = _HEADS[sys_flag & _V6_MASK]
    body_size = len(body)
    properties_size = len(properties)
    return b"".join(
        (
            head.pack(
                head.size + body_size + len(topic) + 2 + properties_size,
                magic_code,
                body_crc,
                queue_id,
                flag,
                queue_offset,
                commit_log_offset,
                sys_flag,
                born_timestamp,
                born_host,
                store_timestamp,
                store_host,
                reconsume_times,
                prepared_transaction_offset,
                body_size,
            ),
            body,
            topic,
            _INT16.pack(properties_size),
            properties,
        )
    )


Head: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, bytes, int, bytes, int, int, int]
"""Values of the fields before BODY, in the order of FIELDS."""
Bounds: TypeAlias = tuple[int, int, int, int, int, int]
"""Start and end in the buffer of BODY, TOPIC and PROPERTIES."""


def unpack_record(buffer: Buffer, position: int) -> tuple[Head, Bounds]:
    """Fields of the record at a position of the buffer, and the bounds of its body, topic and properties.

    Everything except the body's CRC is checked. Raises CorruptRecordError (path '', offset = position).
    """
    left = len(buffer) - position
    if position < 0 or left < BLANK_SIZE:
        raise _corrupt(position, f"too short: {max(left, 0)} bytes left, a record begins with {BLANK_SIZE}")
    size, magic = _SIZE_AND_MAGIC.unpack_from(buffer, position)
    if magic != _MESSAGE_V1 and magic != _MESSAGE_V2:
        found = "BLANK, the end of a file" if magic == MagicCode.BLANK else f"{magic & 0xFFFFFFFF:08x}"
        raise _corrupt(position, f"magic code: expected daa320a7 or daa320ab, found {found}")
    if size < MIN_RECORD_SIZE:
        raise _corrupt(position, f"size: a record takes {MIN_RECORD_SIZE} bytes or more, TOTALSIZE says {size}")
    if size > left:
        raise _corrupt(position, f"too short: TOTALSIZE says {size} bytes, {left} are left")
    (sys_flag,) = _INT32.unpack_from(buffer, position + SYS_FLAG)
    head = _HEADS[sys_flag & _V6_MASK]
    topic_length = _INT8 if magic == _MESSAGE_V1 else _INT16
    fixed_size = head.size + topic_length.size + _INT16.size
    if size < fixed_size:
        raise _corrupt(position, f"inner lengths: TOTALSIZE says {size} bytes, the fixed fields take {fixed_size}")
    values: Head = head.unpack_from(buffer, position)
    body_size = values[-1]
    if not 0 <= body_size <= size - fixed_size:
        raise _corrupt(position, f"inner lengths: TOTALSIZE says {size}, BODYLENGTH {body_size}")
    body = position + head.size
    body_end = body + body_size
    topic = body_end + topic_length.size
    (topic_size,) = topic_length.unpack_from(buffer, body_end)
    if not 0 <= topic_size <= size - fixed_size - body_size:
        reason = f"inner lengths: TOTALSIZE says {size}, BODYLENGTH {body_size}, TOPICLENGTH {topic_size}"
        raise _corrupt(position, reason)
    topic_end = topic + topic_size
    (properties_size,) = _INT16.unpack_from(buffer, topic_end)
    parts_size = fixed_size + body_size + topic_size + properties_size
    if parts_size != size:
        reason = f"inner lengths: TOTALSIZE says {size}, the parts {parts_size} (PROPERTIESLENGTH {properties_size})"
        raise _corrupt(position, reason)
    return values, (body, body_end, topic, topic_end, topic_end + _INT16.size, position + size)


def walk_records(data: bytes) -> Iterator[tuple[int, int, int, int, bytes, bytes]]:
    """Records that follow each other, as a pull brings them: what a client needs of each, and no more.

    Yields position, queue offset, sys flag, body CRC, body and properties of each. Errors as of `unpack_record`.
    """
    position, size_of_all = 0, len(data)
    while position < size_of_all:
        try:
            size, magic, crc, queue_offset, sys_flag, body_size = _WALKED.unpack_from(data, position)
            body_end = position + BODY + body_size
            topic_size = data[body_end]
            properties = body_end + 1 + topic_size + _INT16.size
            (properties_size,) = _INT16.unpack_from(data, properties - _INT16.size)
            end = position + size
            is_plain = (
                magic == _MESSAGE_V1 and body_size >= 0 and topic_size <= V1_MAX_TOPIC_SIZE and properties_size >= 0
                and properties + properties_size == end <= size_of_all and not sys_flag & _V6_MASK
            )  # fmt: skip
        except (struct.error, IndexError):
            is_plain = False
        if is_plain:
            body = data[position + BODY : body_end]
        else:  # an IPv6 address, a long topic, or damage
            head, (body_begin, body_end, _, _, properties, end) = unpack_record(data, position)
            crc, queue_offset, sys_flag = head[2], head[5], head[7]
            body = data[body_begin:body_end]
        yield position, queue_offset, sys_flag, crc, body, data[properties:end]
        position = end


def _corrupt(position: int, reason: str) -> CorruptRecordError:
    return CorruptRecordError("", position, reason)
