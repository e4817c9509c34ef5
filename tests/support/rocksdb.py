"""Databases as RocketMQ writes them: queues of a store in a RocksDB, whose queue files are the oracle."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rocksdict import Options, Rdict

from reput.formats.consume_queue import FILLER, UNIT_SIZE, decode_unit
from reput.formats.rocksdb import encode_key, encode_value
from reput.log.directory import StoreDirectory

#: A file that rocksdict leaves in the folder, and RocketMQ does not.
_OF_RDICT = "rocksdict-config.json"


class StoredUnit(NamedTuple):
    """Unit of a queue file, with what its key needs."""

    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    size: int
    tags_code: int


def units_of(store: Path) -> Iterator[StoredUnit]:
    """Units in the queue files of a store."""
    for queue in StoreDirectory(store).queues():
        for path in queue.paths:
            data, start = Path(path).read_bytes(), int(Path(path).name)
            for position in range(0, len(data), UNIT_SIZE):
                unit = decode_unit(data, position)
                if unit.size > 0 and unit != FILLER:
                    yield StoredUnit(queue.topic, queue.queue_id, (start + position) // UNIT_SIZE, *unit)


def write_units(folder: Path, units: Iterable[StoredUnit]) -> None:
    """Put units into a database; a new one is made."""
    write_rows(
        folder, {encode_key(u.topic.encode(), u.queue_id, u.queue_offset): encode_value(*u[3:], 0) for u in units}
    )


def write_rows(folder: Path, rows: Mapping[bytes, bytes]) -> None:
    """Put keys and values into a database; a new one is made."""
    database: Any = Rdict(str(folder), Options(raw_mode=True))
    for key, value in rows.items():
        database[key] = value
    database.flush()
    database.close()
    (folder / _OF_RDICT).unlink()


def end_key() -> bytes:
    """Key after the keys of all queues; it is of no unit."""
    return struct.pack(">i", 0x7F000000)
