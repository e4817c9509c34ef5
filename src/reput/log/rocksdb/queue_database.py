"""QueueDatabase: the consume queues in one RocksDB, read only.

RocksDB makes a log in the folder that it opens, and rocksdict a file of its own, also to read. So what is opened is a
temporary folder of links to the database's files: the database's own folder stays as it is, and no lock is taken.

What RocketMQ has not flushed is not there: it writes these queues without a log of RocksDB's, and its start builds what
is missing. A database that grows is seen as it was when it was opened.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from reput.errors import CorruptConsumeQueueError
from reput.extras import require
from reput.files import DISK
from reput.formats.consume_queue import FILLER, UNIT_SIZE, encode_unit
from reput.formats.java import INT64_MAX
from reput.formats.paths import topic_folder_name
from reput.formats.rocksdb import VALUE_SIZE, UnitKey, decode_key, encode_key, is_data_file, queue_prefix, unit_of

#: Looks at the folder of a database that changes: compaction removes files that were just listed.
_LOOKS = 5
_FILLER = encode_unit(*FILLER)
#: Units between the first and the last one of a queue, at the most: a damaged key must not claim more.
_MOST_UNITS = 1 << 34
#: Begin of a queue's key that is after all its keys.
_AFTER = b"\2"


class DatabaseQueue(NamedTuple):
    """A queue of a database: topic, queue id, queue offset of its first unit, and the one after its last unit.

    `database` is the path of the database.
    """

    topic: str
    queue_id: int
    begin: int
    end: int
    database: str


class QueueDatabase:
    """Consume queues in a RocksDB. Threads may share it.

    Args:
        path: Folder of the database.

    Raises:
        ConfigError: rocksdict is not installed.
        CorruptConsumeQueueError: It cannot be opened as a database; so do all methods, if it is damaged.
    """

    def __init__(self, path: str) -> None:
        require("rocksdict", f"{path}: a RocksDB")
        self.path = os.path.abspath(path)  # links lead from another folder
        for look in range(_LOOKS):
            try:
                self._open()
                break
            except CorruptConsumeQueueError:
                if look == _LOOKS - 1:
                    raise

    def _open(self) -> None:
        from rocksdict import AccessType, Options, Rdict

        self._links = links = DISK.make_temporary_directory()
        self._cleanup = weakref.finalize(self, DISK.remove_tree, links)
        for entry in DISK.list_directory(self.path):
            if not entry.is_directory and is_data_file(entry.name):
                DISK.make_link(os.path.join(self.path, entry.name), os.path.join(links, entry.name))
        with self._errors():
            self._rows: Any = Rdict(links, Options(raw_mode=True), access_type=AccessType.read_only())

    def close(self) -> None:
        """Close the database. Closing again does nothing."""
        if self._cleanup.alive:
            self._rows.close()
            self._cleanup()

    def queues(self) -> Iterator[DatabaseQueue]:
        """All queues, in the order of their keys; three looks for each, however many units it has."""
        with self._errors():
            rows = self._rows.iter()
            rows.seek_to_first()
            while rows.valid():
                first = self._key(rows.key())
                rows.seek_for_prev(encode_key(first.topic, first.queue_id, INT64_MAX))
                last = self._key(rows.key())
                if last[:2] != first[:2]:
                    raise self._damage(f"expected the last unit of queue {first[:2]}, found one of {last[:2]}")
                if last.queue_offset - first.queue_offset >= _MOST_UNITS:
                    offsets = f"{first.queue_offset} to {last.queue_offset}"
                    raise self._damage(f"queue {first[:2]} has the queue offsets {offsets}, more than a log can have")
                name = topic_folder_name(first.topic)
                if name is not None and name.encode() == first.topic:  # else nobody can ask for it
                    yield DatabaseQueue(name, first.queue_id, first.queue_offset, last.queue_offset + 1, self.path)
                rows.seek(queue_prefix(first.topic, first.queue_id)[:-1] + _AFTER)
            rows.status()

    def units(self, queue: DatabaseQueue, begin: int, count: int) -> bytes:
        """Units of a queue from a queue offset on, `count` of them: fillers before its last unit, zeros after it."""
        name, queue_id = queue.topic.encode(), queue.queue_id
        prefix, units, end = queue_prefix(name, queue_id), bytearray(), begin + count
        head, size = len(prefix), len(prefix) + 8
        with self._errors():
            rows = self._rows.iter()
            rows.seek(encode_key(name, queue_id, begin))
            expected, in_queue = begin, False
            while rows.valid():
                key = rows.key()
                if len(key) != size or not key.startswith(prefix):
                    break
                offset = int.from_bytes(key[head:], "big")
                if in_queue := offset >= end:
                    break
                unit = unit_of(rows.value())
                if unit is None:
                    which = f"the unit of queue offset {offset} of {queue.topic}/{queue_id}"
                    raise self._damage(f"expected {VALUE_SIZE} bytes as {which}, found {len(rows.value())}")
                if offset != expected:
                    units += _FILLER * (offset - expected)
                units += unit
                expected = offset + 1
                rows.next()
            rows.status()
        return bytes(units) + (_FILLER * (end - expected) if in_queue else bytes((end - expected) * UNIT_SIZE))

    def has_units(self, queue: DatabaseQueue, begin: int, end: int) -> bool:
        """Whether a queue has a unit with a queue offset in [begin, end)."""
        name, queue_id = queue.topic.encode(), queue.queue_id
        with self._errors():
            rows = self._rows.iter()
            rows.seek(encode_key(name, queue_id, begin))
            key = decode_key(rows.key()) if rows.valid() else None
            rows.status()
        return key is not None and key[:2] == (name, queue_id) and key.queue_offset < end

    def _key(self, data: bytes | None) -> UnitKey:
        key = decode_key(data or b"")
        if key is None:
            raise self._damage(f"expected the key of a unit, found {(data or b'')[:80].hex() or 'none'}")
        return key

    def _damage(self, text: str) -> CorruptConsumeQueueError:
        advice = "queues derive from the log: `reput rebuild` builds them in files"
        return CorruptConsumeQueueError(self.path, 0, f"the RocksDB of the queues: {text}; {advice}")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except CorruptConsumeQueueError:
            raise
        except Exception as error:  # rocksdict has no class for errors of its own
            text = " ".join(str(error).replace(self._links, self.path).split())
            raise self._damage(text) from error
