"""Logs of a few records, and the queues and index that a plain dispatch of record after record makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from reput.formats.consume_queue import FILLER, UNIT_SIZE, encode_unit
from reput.formats.hosts import encode_host
from reput.formats.index_file import ENTRY as INDEX_ENTRY
from reput.formats.index_file import HEADER_SIZE, IndexHeader, file_size, key_hash
from reput.formats.message import Message
from reput.formats.paths import offset_to_file_name
from reput.formats.properties import tags_code
from reput.formats.record import encode_blank, encode_record
from reput.formats.record_layout import SysFlag
from reput.jobs.rebuild.job import RebuildResult, rebuild
from reput.jobs.runner import LocalRunner

LOG_FILE_SIZE = 8192
LOG_START = 32 * LOG_FILE_SIZE  # so that queue offsets above 0 are possible: what came before was deleted
QUEUE_FILE_SIZE = 10 * UNIT_SIZE
SLOTS, ENTRIES = 7, 12
_MULTI_DISPATCH = "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"
HOST = encode_host("10.0.0.1:10911")


@dataclass(frozen=True)
class Put:
    """A record of a log: `queue_step` is added to the queue offset that is due, 0 for a log without crashes.

    `light_queue` is the name of a light queue that gets a unit, too, and its queue offset.
    """

    queue_id: int = 0
    topic: str = "orders"
    body: bytes = b""
    tags: str | None = None
    keys: tuple[str, ...] = ()
    sys_flag: int = 0
    queue_step: int = 0
    timestamp: int = 1_700_000_000_000
    light_queue: tuple[str, int] | None = None

    @property
    def has_unit(self) -> bool:
        return self.sys_flag not in (SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK)


@dataclass(frozen=True)
class Stored:
    put: Put
    queue_offset: int
    offset: int
    size: int


def encode(put: Put, queue_offset: int, offset: int) -> bytes:
    light = {} if put.light_queue is None else dict(zip(_MULTI_DISPATCH, map(str, put.light_queue), strict=True))
    message = Message(put.topic, put.body, tags=put.tags, keys=put.keys, sys_flag=put.sys_flag, properties=light)
    return encode_record(
        message,
        queue_id=put.queue_id,
        queue_offset=queue_offset,
        commit_log_offset=offset,
        store_timestamp=put.timestamp,
        store_host=HOST,
        born_timestamp=put.timestamp,
        born_host=HOST,
    )


def write_log(store: Path, puts: Sequence[Put], first_offsets: dict[int, int] | None = None) -> list[Stored]:
    """A commit log of these records, and where each of them is."""
    log, next_offsets, stored = bytearray(), dict(first_offsets or {}), []
    for put in puts:
        due = next_offsets.get(put.queue_id, 0)
        queue_offset = max(due + put.queue_step, 0) if put.has_unit else 0
        left = LOG_FILE_SIZE - len(log) % LOG_FILE_SIZE
        size = len(encode(put, 0, 0))
        if size + 8 > left:
            log += encode_blank(left) + bytes(left - 8)
        stored.append(Stored(put, queue_offset, LOG_START + len(log), size))
        log += encode(put, queue_offset, LOG_START + len(log))
        if put.has_unit:
            next_offsets[put.queue_id] = max(queue_offset + 1, due)
    log += bytes(-len(log) % LOG_FILE_SIZE)
    (store / "commitlog").mkdir(parents=True, exist_ok=True)
    for position in range(0, len(log), LOG_FILE_SIZE):
        path = store / "commitlog" / offset_to_file_name(LOG_START + position)
        path.write_bytes(log[position : position + LOG_FILE_SIZE])
    return stored


def files_of(output: Path) -> dict[str, bytes]:
    """Path -> bytes; index files by their number, since their names are times."""
    queues = {str(path.relative_to(output)): path.read_bytes() for path in output.glob("consumequeue/*/*/*")}
    return queues | {f"index/{i}": path.read_bytes() for i, path in enumerate(sorted(output.glob("index/*")))}


def rebuild_small(store: Path, output: Path, **options: Any) -> RebuildResult:
    options = {"runner": LocalRunner(threads=2), "split_bytes": 1000} | options
    return rebuild(
        store,
        output,
        mapped_file_size_consume_queue=QUEUE_FILE_SIZE,
        max_hash_slot_num=SLOTS,
        max_index_num=ENTRIES,
        **options,
    )


KEYS = st.lists(st.sampled_from(["k1", "k2", "k3", "键", "k5"]), max_size=3).map(tuple)
PUTS = st.builds(
    Put,
    queue_id=st.integers(0, 2),
    body=st.integers(0, 900).map(bytes),
    tags=st.sampled_from([None, "paid", "付"]),
    keys=KEYS,
    sys_flag=st.sampled_from([0, 0, 0, 0, SysFlag.TRANSACTION_PREPARED, 8, SysFlag.TRANSACTION_ROLLBACK]),
    timestamp=st.integers(1_700_000_000_000, 1_700_000_100_000),
)


def dispatched_queues(stored: Sequence[Stored]) -> dict[str, bytes]:
    """Path -> bytes of the queue files, as `ConsumeQueue` makes them, a record after the other."""
    files: dict[str, bytearray] = {}
    next_offsets: dict[str, int] = {}

    def put_unit(queue: str, queue_offset: int, unit: bytes) -> None:
        position = queue_offset * UNIT_SIZE
        start = position - position % QUEUE_FILE_SIZE
        file = files.setdefault(f"consumequeue/{queue}/{offset_to_file_name(start)}", bytearray(QUEUE_FILE_SIZE))
        file[position - start : position - start + UNIT_SIZE] = unit

    for record in stored:
        if record.put.has_unit:
            queue = f"{record.put.topic}/{record.put.queue_id}"
            units_of_a_file = QUEUE_FILE_SIZE // UNIT_SIZE
            due = next_offsets.get(queue, record.queue_offset // units_of_a_file * units_of_a_file)
            if record.queue_offset >= due:
                for filler in range(due, record.queue_offset):
                    put_unit(queue, filler, encode_unit(*FILLER))
                put_unit(
                    queue, record.queue_offset, encode_unit(record.offset, record.size, tags_code(record.put.tags))
                )
                next_offsets[queue] = record.queue_offset + 1
    return {path: bytes(data) for path, data in files.items()}


def dispatched_index(stored: Sequence[Stored]) -> dict[str, bytes]:
    """Number -> bytes of the index files, as `IndexFile.putKey` makes them, a key after the other."""
    files: list[bytearray] = []
    header = IndexHeader()
    for record in stored:
        for key in record.put.keys if record.put.sys_flag != SysFlag.TRANSACTION_ROLLBACK else ():
            if not files or header.index_count == ENTRIES:
                files.append(bytearray(file_size(SLOTS, ENTRIES)))
                end = header.end_timestamp, header.end_phy_offset
                header = IndexHeader(end[0], end[0], end[1], end[1], 0, 1)
            hashed = key_hash(record.put.topic, key)
            slot, number = HEADER_SIZE + hashed % SLOTS * 4, header.index_count
            previous = int.from_bytes(files[-1][slot : slot + 4], "big")
            seconds = max(record.put.timestamp - header.begin_timestamp, 0) // 1000 if header.begin_timestamp else 0
            entry = HEADER_SIZE + SLOTS * 4 + number * 20
            files[-1][entry : entry + 20] = INDEX_ENTRY.pack(hashed, record.offset, seconds, previous)
            files[-1][slot : slot + 4] = number.to_bytes(4, "big")
            first = (record.put.timestamp, record.offset) if number == 1 else header[0:3:2]
            header = IndexHeader(
                first[0], record.put.timestamp, first[1], record.offset,
                header.hash_slot_count + (previous == 0), number + 1,
            )  # fmt: skip
            files[-1][:HEADER_SIZE] = b"".join(
                value.to_bytes(size, "big") for value, size in zip(header, (8, 8, 8, 8, 4, 4), strict=True)
            )
    return {f"index/{number}": bytes(data) for number, data in enumerate(files)}
