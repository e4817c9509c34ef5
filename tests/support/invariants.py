"""Invariants of every store directory, whatever happened to its writers; oracles judge by plain bytes."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import NamedTuple

import reput
from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE, encode_batch_unit
from reput.formats.consume_queue import UNIT_SIZE, encode_unit
from reput.formats.index_file import decode_header, entry_position
from reput.formats.java import index_hash
from tests.oracles.batch_consume_queue import BatchPlace, batch_unit
from tests.oracles.index_file import IndexFile
from tests.oracles.record_scan import BLANK_FOUND, Row, keys_of
from tests.oracles.record_scan import scan as scan_bytes
from tests.support.faulty_files import FaultyFiles

#: File sizes so small that a hundred messages roll every kind of them.
SMALL: dict[str, object] = {
    "mapped_file_size_commit_log": 4096,
    "mapped_file_size_consume_queue": 20 * 8,
    "mapper_file_size_batch_consume_queue": 46 * 8,
    "max_hash_slot_num": 7,
    "max_index_num": 20,
}


class Record(NamedTuple):
    """A record of the log, as the oracle reads it."""

    offset: int
    size: int
    row: Row

    @property
    def queue(self) -> tuple[str, int]:
        return self.row["topic"].decode(), self.row["queue_id"]

    @property
    def has_unit(self) -> bool:
        return self.row["sys_flag"] & 0xC not in (0x4, 0xC)


def log_records(store: Path) -> list[Record]:
    """The records of a closed store, in order, each with a body that fits its CRC; behind them all bytes are zero."""
    records: list[Record] = []
    ended = False
    for path in sorted((store / "commitlog").iterdir()):
        data, start, position = path.read_bytes(), int(path.name), 0
        if not ended:
            found = scan_bytes(data, start)
            for row in found.rows:
                assert row["status"] == 0, f"{path}: the body at {position} does not fit its CRC"
                records.append(Record(start + position, row["store_size"], row))
                position += row["store_size"]
            ended = found.stop != BLANK_FOUND
        assert not ended or not any(data[position:]), f"{path}: bytes behind the log's end at {position}"
    return records


class Units(NamedTuple):
    """Right content of a log's queues, by queue: bytes of units, and the next queue offset."""

    folder: str
    data: bytes = b""
    next_offset: int = 0


def expected_units(records: list[Record], batch_topics: set[str]) -> dict[tuple[str, int], Units]:
    """The units of each queue; queue offsets must be dense."""
    found: dict[tuple[str, int], Units] = {}
    for record in records:
        row = record.row
        if not record.has_unit:
            assert row["queue_offset"] == 0
            continue
        is_batch = record.queue[0] in batch_topics
        before = found.get(record.queue, Units("batchconsumequeue" if is_batch else "consumequeue"))
        unit, count = encode_unit(record.offset, record.size, row["tags_code"]), 1
        if is_batch:
            text = row["properties"]
            place = BatchPlace(
                0, row["queue_offset"], row["sys_flag"], text, record.offset, record.size, row["tags_code"],
                row["store_timestamp"],
            )  # fmt: skip
            made = batch_unit(place)
            assert made is not None
            unit, count = encode_batch_unit(made), made.message_count
        assert row["queue_offset"] == before.next_offset, f"{record.queue}: a queue offset twice, or left out"
        found[record.queue] = Units(before.folder, before.data + unit, before.next_offset + count)
    return found


def check_queues(store: Path, records: list[Record]) -> None:
    """Each queue file holds its units and zeros behind them, and nothing else is there."""
    batch_topics = {path.name for path in (store / "batchconsumequeue").glob("*")}
    of_batches = [record for record in records if record.row["sys_flag"] & 0x80]
    assert {record.queue[0] for record in of_batches} <= batch_topics, "an inner batch in a simple queue"
    expected = expected_units(records, batch_topics)
    for folder, unit_size in (("consumequeue", UNIT_SIZE), ("batchconsumequeue", BATCH_UNIT_SIZE)):
        _check_folder(store / folder, {key: u.data for key, u in expected.items() if u.folder == folder}, unit_size)


def _check_folder(folder: Path, expected: dict[tuple[str, int], bytes], unit_size: int) -> None:
    found: dict[tuple[str, int], bytes] = {}
    for path in sorted(folder.glob("*/*/*")):
        if not path.stat().st_size and path == max(path.parent.iterdir()):
            continue  # left by a kill between its making and its length; RocketMQ removes it at its next start, too
        key = (path.parent.parent.name, int(path.parent.name))
        assert int(path.name) == len(found.get(key, b"")), f"{path}: files in between are missing"
        found[key] = found.get(key, b"") + path.read_bytes()
    for key in expected | found:
        data, wanted = found.get(key, b""), expected.get(key, b"")
        assert data[: len(wanted)] == wanted, f"queue {key}: {_difference(data, wanted, unit_size)}"
        assert not any(data[len(wanted) :]), f"queue {key}: something behind its {len(wanted) // unit_size} units"


def _difference(data: bytes, wanted: bytes, unit_size: int) -> str:
    for position in range(0, len(wanted), unit_size):
        unit, other = (one[position : position + unit_size].hex() for one in (data, wanted))
        if unit != other:
            return f"unit {position // unit_size} is {unit}, not {other}"
    return "the same"


def check_index(store: Path, records: list[Record], slots: int, capacity: int) -> None:
    """Each index file has what one dispatch after the other would have put into it."""
    files = [IndexFile(slots, capacity)]
    for record in records:
        if record.row["sys_flag"] & 0xC == 0xC:
            continue
        for key in keys_of(record.row):
            text = (record.row["topic"] + b"#" + key).decode()
            arguments = index_hash(text), record.offset, record.row["store_timestamp"]
            if not files[-1].put_key(*arguments):
                files.append(IndexFile(slots, capacity, previous=files[-1]))
                assert files[-1].put_key(*arguments)
    used = [file for file in files if decode_header(bytes(file.data)).index_count > 1]
    found = sorted((store / "index").iterdir()) if (store / "index").is_dir() else []
    found = [path for path in found if decode_header(path.read_bytes()).index_count > 1]
    assert len(found) == len(used), f"{len(found)} index files, not {len(used)}"
    for path, file in zip(found, used, strict=True):
        end = entry_position(slots, file.header.index_count)
        assert path.read_bytes()[:end] == bytes(file.data[:end]), path


def check_store(store: Path, options: dict[str, object] = SMALL) -> list[Record]:
    """All of the above for a store that is closed and in step; returns its records."""
    records = log_records(store)
    check_queues(store, records)
    check_index(store, records, int(str(options["max_hash_slot_num"])), int(str(options["max_index_num"])))
    assert not (store / "abort").exists()
    return records


def check_rebuild(store: Path, target: Path, options: dict[str, object] = SMALL) -> None:
    """Check that queues made from a copy of the log alone are the store's, which may have files of zeros besides.

    Such a file is that of a queue whose messages were all cut off, by a power cut or by `reput rejoin`.
    """
    shutil.copytree(store / "commitlog", target / "commitlog")
    with reput.MessageStore.open(target, files=FaultyFiles(), **options):
        pass
    rebuilt, found = contents(target, "consumequeue"), contents(store, "consumequeue")
    besides = {name for name in found.keys() - rebuilt.keys() if not any((store / name).read_bytes())}
    assert rebuilt == {name: digest for name, digest in found.items() if name not in besides}


def contents(store: Path, part: str = ".", leave_out: tuple[str, ...] = ("lock",)) -> dict[str, str]:
    """Path -> SHA-256 of each file."""
    return {
        str(path.relative_to(store)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((store / part).rglob("*"))
        if path.is_file() and path.name not in leave_out
    }


class Acknowledged(NamedTuple):
    """Promise of a put."""

    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    key: str
    body: bytes


def check_acknowledged(store: reput.MessageStore, acknowledged: list[Acknowledged]) -> None:
    """Every message is where its put said, with its body, and is found by queue, by offset and by key."""
    for one in acknowledged:
        message = store.look_message_by_offset(one.commit_log_offset)
        assert message is not None, f"{one.key} is lost"
        assert (message.topic, message.queue_id, message.queue_offset) == one[:3]
        assert (message.keys, message.body) == ((one.key,), one.body)
        got = store.get_message(one.topic, one.queue_id, one.queue_offset, 1)
        assert [found.commit_log_offset for found in got.messages()] == [one.commit_log_offset], got
    for topic in {one.topic for one in acknowledged}:
        wanted = {one.key: one.commit_log_offset for one in acknowledged if one.topic == topic}
        for key, found in store.query_messages(topic, list(wanted)).items():
            assert [message.commit_log_offset for message in found] == [wanted[key]], key


def everything_of(path: Path) -> dict[str, str]:
    """The files by their paths; index files by their order, for their names are times."""
    files = contents(path)
    index = [digest for name, digest in files.items() if name.startswith("index/")]
    return {name: digest for name, digest in files.items() if not name.startswith("index/")} | {
        f"index/{number}": digest for number, digest in enumerate(index)
    }
