"""Consume queues in a RocksDB: names of its files, key and value of a unit (docs/formats/rocksdb.md).

RocketMQ's RocksDBConsumeQueueTable. How RocksDB lays out keys and values in its files is RocksDB's own.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

from reput.formats.consume_queue import FIELDS as UNIT_FIELDS
from reput.formats.consume_queue import UNIT_SIZE
from reput.formats.field import Field, struct_format
from reput.formats.paths import MAX_NAME_SIZE

#: Folder of the queues with `useSeparateStorePathForRocksdbCQ`; without it they lie in `consumequeue`.
ROCKSDB_CONSUME_QUEUE = "consumequeue_rocksdb"
#: Folder of the index, of timers and of half messages, as keys of 5.4 ask for them.
ROCKSDB_STORE = "rocksdbstore"
#: File that names the valid ones of the other files.
CURRENT = "CURRENT"

_NUMBERED = re.compile(r"[0-9]+\.(sst|log|blob|dbtmp)")
_DESCRIPTION = re.compile(r"(MANIFEST|OPTIONS)-[0-9]+(\.dbtmp)?")
_LOG = re.compile(r"(.*_)?LOG(\.old\.[0-9]+)?")
_NAMES = frozenset({CURRENT, "IDENTITY", "LOCK"})

#: Fields of a value; its first bytes are a unit of a ConsumeQueue.
FIELDS: tuple[Field, ...] = (
    *UNIT_FIELDS[:1],
    Field("SIZE", "i", 4, "TOTALSIZE of the record"),
    *UNIT_FIELDS[2:],
    Field("STORETIMESTAMP", "q", 8, "store time of the record, in milliseconds"),
)
VALUE = struct.Struct(struct_format(FIELDS))
VALUE_SIZE = VALUE.size

_CONTROL = b"\1"
_SIZE = struct.Struct(">i")
_END = struct.Struct(">sisq")
#: Bytes of a key before its topic, and behind it.
_HEAD_SIZE, _END_SIZE = _SIZE.size + len(_CONTROL), _END.size


class UnitKey(NamedTuple):
    """Key of a unit: topic in UTF-8, queue id and queue offset."""

    topic: bytes
    queue_id: int
    queue_offset: int


def is_rocksdb_file(name: str) -> bool:
    """Whether a file has a name that RocksDB gives, in the folder of a database."""
    return name in _NAMES or any(form.fullmatch(name) for form in (_NUMBERED, _DESCRIPTION, _LOG))


def is_data_file(name: str) -> bool:
    """Whether a file of a database has keys and values, or says which files have them."""
    return name == CURRENT or name.startswith("MANIFEST-") or name.endswith((".sst", ".log", ".blob"))


def encode_key(topic: bytes, queue_id: int, queue_offset: int) -> bytes:
    """The bytes of a key; keys of one queue are in the order of their queue offsets."""
    return queue_prefix(topic, queue_id) + struct.pack(">q", queue_offset)


def queue_prefix(topic: bytes, queue_id: int) -> bytes:
    """First bytes of all keys of a queue."""
    return b"".join((_SIZE.pack(len(topic)), _CONTROL, topic, _CONTROL, _SIZE.pack(queue_id), _CONTROL))


def decode_key(key: bytes) -> UnitKey | None:
    """The key; None for bytes that are no unit's key, as if a length in it differs from its own."""
    size = len(key) - _HEAD_SIZE - _END_SIZE
    if not 0 < size <= MAX_NAME_SIZE or _SIZE.unpack_from(key)[0] != size or key[_SIZE.size : _HEAD_SIZE] != _CONTROL:
        return None
    before_id, queue_id, before_offset, queue_offset = _END.unpack_from(key, _HEAD_SIZE + size)
    if before_id != _CONTROL or before_offset != _CONTROL or queue_id < 0 or queue_offset < 0:
        return None
    return UnitKey(key[_HEAD_SIZE : _HEAD_SIZE + size], queue_id, queue_offset)


def encode_value(commit_log_offset: int, size: int, tags_code: int, store_timestamp: int) -> bytes:
    """The bytes of a value."""
    return VALUE.pack(commit_log_offset, size, tags_code, store_timestamp)


def unit_of(value: bytes) -> bytes | None:
    """The unit of a ConsumeQueue in a value; None for bytes of another length."""
    return value[:UNIT_SIZE] if len(value) == VALUE_SIZE else None
