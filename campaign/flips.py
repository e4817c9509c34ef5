"""Single-bit flips over every byte of every file, and whether an audit tells them."""

from __future__ import annotations

import atexit
import random
import shutil
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import reput
from campaign.cases import Part
from reput.errors import ReputError
from reput.formats.index_file import entry_position
from reput.formats.record_layout import FIELDS, SysFlag
from reput.jobs.audit import audit
from reput.jobs.runner import LocalRunner
from tests.crash.faulty_files import FaultyFiles
from tests.crash.invariants import SMALL, log_records

_HEADER = (
    ("begin timestamp", 8), ("end timestamp", 8), ("begin offset", 8), ("end offset", 8),
    ("slot count", 4), ("count", 4),
)  # fmt: skip
_ENTRY = (("key hash", 4), ("offset", 8), ("time", 4), ("next", 4))
_UNIT = (("offset", 8), ("size", 4), ("tags code", 8))
#: Of the log's fields, those that a flip must never change in silence, with a property CRC or without.
PROTECTED = frozenset(
    {
        "TOTALSIZE", "MAGICCODE", "BODYCRC", "QUEUEID", "QUEUEOFFSET", "PHYSICALOFFSET", "BODYLENGTH", "BODY",
        "TOPICLENGTH", "TOPIC", "PROPERTIESLENGTH",
    }
)  # fmt: skip


class _Sample(NamedTuple):
    """A store to be damaged; `classes[file][position]` names what a byte is, for the bytes in use."""

    path: Path
    classes: dict[Path, list[str]]


@cache
def _sample(with_crc: bool) -> _Sample:
    """Made once a process: closed cleanly, with records of every kind."""
    folder = tempfile.mkdtemp(prefix="reput-campaign-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "store"
    options = SMALL | {"enabled_append_prop_crc": with_crc}
    with reput.MessageStore.open(path, files=FaultyFiles(), **options) as store:
        for number in range(40):
            message = reput.Message(
                ("orders", "refunds")[number % 2], bytes([number]) * (number * 7), tags=("", "a", "b")[number % 3],
                keys=[f"k{number}"] if number % 4 else [], properties={"region": "eu"} if number % 5 else {},
            )  # fmt: skip
            store.put_message(message, number % 3)
        store.wait_dispatched()
    classes = {}
    for file in sorted(path.rglob("*")):
        if file.is_file():
            found = _classes(path, file)
            if any(found):
                classes[file] = found
    return _Sample(path, classes)


def _classes(store: Path, file: Path) -> list[str]:
    """What each byte of a file is; "" for bytes that nothing uses."""
    kind = file.relative_to(store).parts[0]
    data = file.read_bytes()
    if kind == "commitlog":
        return _log_classes(store, file, len(data))
    if kind == "consumequeue":
        used = len(data.rstrip(b"\0"))
        return _repeated("queue", _UNIT, -(-used // 20) * 20, len(data))
    if kind == "index":
        slots, count = int(str(SMALL["max_hash_slot_num"])), int.from_bytes(data[36:40], "big")
        head = [f"index {name}" for name, size in _HEADER for _ in range(size)]
        body = _repeated("index", _ENTRY, 20 * count, len(data) - entry_position(slots, 0))
        return [*head, *(["index slot"] * (4 * slots)), *([""] * 20), *body[20:]][: len(data)]
    return []


def _log_classes(store: Path, file: Path, size: int) -> list[str]:
    classes = [""] * size
    for record in log_records(store):
        position = record.offset - int(file.name)
        if not 0 <= position < size:
            continue
        row = record.row
        sizes = {"BODY": len(row["body"]), "TOPIC": len(row["topic"]), "PROPERTIES": len(row["properties"])}
        hosts = {"BORNHOST": SysFlag.BORN_HOST_V6, "STOREHOSTADDRESS": SysFlag.STORE_HOST_V6}
        for field in FIELDS:
            width = sizes.get(field.name, field.size) or 0
            width = 20 if row["sys_flag"] & hosts.get(field.name, 0) else width
            classes[position : position + width] = [f"log {field.name}"] * width
            position += width
    return classes


def _repeated(prefix: str, fields: tuple[tuple[str, int], ...], used: int, size: int) -> list[str]:
    one = [f"{prefix} {name}" for name, width in fields for _ in range(width)]
    return [*(one * (used // len(one))), *([""] * size)][:size]


def run(folder: Path, seed: int) -> Counter[str]:
    """All eight flips of one byte, drawn by the seed; each is told by an audit, or counts as silent."""
    chance = random.Random(seed)
    with_crc = bool(seed % 2)
    sample = _sample(with_crc)
    file = chance.choices(list(sample.classes), [len(found) - found.count("") for found in sample.classes.values()])[0]
    classes = sample.classes[file]
    position = chance.choice([place for place, name in enumerate(classes) if name])
    name = classes[position]
    counts: Counter[str] = Counter()
    for bit in range(8):
        told = _is_told(sample.path, file, position, 1 << bit)
        if not told:
            where = f"{file.relative_to(sample.path)}, byte {position}, bit {bit}, {name}"
            covered = name.startswith("log ") and (with_crc or name.removeprefix("log ") in PROTECTED)
            assert not covered, f"a flip in silence: {where}"
            counts[f"silent{', with a property CRC' if with_crc else ''}: {name}"] += 1
        counts["flips"] += 1
    return counts


def _is_told(store: Path, file: Path, position: int, mask: int) -> bool:
    """Whether an audit of the store with this flip has any finding, or refuses."""
    data = file.read_bytes()
    try:
        file.write_bytes(data[:position] + bytes([data[position] ^ mask]) + data[position + 1 :])
        try:
            return bool(audit(store, runner=LocalRunner(1)).findings)
        except ReputError:
            return True
    finally:
        file.write_bytes(data)


PART = Part("flips", "single-bit flips over every byte in use of log, queues and index", 12_500, run)
