"""Invariants of a store with consume queue extensions and light message queues; oracles judge by its log."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from reput.formats.consume_queue import UNIT_SIZE, encode_unit
from reput.kernels.records.columns import RecordColumns
from tests.oracles.consume_queue_ext import Extension
from tests.oracles.multi_dispatch import further_queues
from tests.support.invariants import SMALL, log_records

EXT_FILE_SIZE = 128


def bit_map(commit_log_offset: int) -> bytes | None:
    """A bit map made from a record's place: none, or 3 to 18 bytes."""
    return bytes(range(commit_log_offset % 16 + 3)) if commit_log_offset % 4 else None


def bit_maps(columns: RecordColumns) -> pa.BinaryArray:
    """Bit maps of the rows of a scan."""
    return pa.array([bit_map(offset) for offset in columns["commit_log_offset"].tolist()], pa.binary())


#: Both on, with files so small that a few messages roll them.
BOTH: dict[str, object] = SMALL | {
    "enable_consume_queue_ext": True,
    "mapped_file_size_consume_queue_ext": EXT_FILE_SIZE,
    "enable_multi_dispatch": True,
    "enable_lmq": True,
    "bit_maps": bit_maps,
}


def expected_files(store: Path) -> dict[str, bytes]:
    """Path -> content of each queue and extension file that one dispatch after the other would have written."""
    units: dict[str, bytearray] = {}
    extensions: dict[str, Extension] = {}
    for offset, size, row in log_records(store):
        if row["sys_flag"] & 0xC in (0x4, 0xC):
            continue
        queue = f"{row['topic'].decode()}/{row['queue_id']}"
        extension = extensions.setdefault(queue, Extension(EXT_FILE_SIZE))
        address = extension.put(row["tags_code"], row["store_timestamp"], bit_map(offset) or b"")
        places = [(queue, row["queue_offset"], address)]
        for name, queue_id, queue_offset in further_queues(
            row["topic"], row["queue_id"], offset, row["sys_flag"], row["properties"],
            enable_lmq=True, any_topic=False,
        ):  # fmt: skip
            places.append((f"{name.decode()}/{queue_id}", queue_offset, row["tags_code"]))
        for name, queue_offset, tags_code in places:
            content = units.setdefault(name, bytearray())
            if queue_offset * UNIT_SIZE >= len(content):
                assert queue_offset * UNIT_SIZE == len(content), f"{name}: a queue offset is left out"
                content += encode_unit(offset, size, tags_code)
    files = {}
    queue_file_size = int(str(SMALL["mapped_file_size_consume_queue"]))
    for name, content in units.items():
        for start in range(0, len(content), queue_file_size):
            part = bytes(content[start : start + queue_file_size])
            files[f"consumequeue/{name}/{start:020d}"] = part.ljust(queue_file_size, b"\0")
    for name, extension in extensions.items():
        for number, part in enumerate(extension.files()):
            files[f"consumequeue_ext/{name}/{number * EXT_FILE_SIZE:020d}"] = part
    return files


def found_files(store: Path) -> dict[str, bytes]:
    """The same of what is there; files without a byte in use do not count."""
    folders = [path for part in ("consumequeue", "consumequeue_ext") for path in (store / part).glob("*/*/*")]
    return {str(path.relative_to(store)): data for path in folders if any(data := path.read_bytes())}


def check_files(store: Path) -> None:
    """Queues and extensions of a closed store are what its log says, byte for byte."""
    expected, found = expected_files(store), found_files(store)
    assert sorted(found) == sorted(expected)
    for name, content in expected.items():
        assert found[name] == content, name
