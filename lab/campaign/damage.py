"""Damage of every kind to the files of a store: who opens or reads it must be told, or get what was put."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from unittest.mock import patch

import reput
from lab.campaign.cases import Part
from reput.errors import ReputError
from reput.formats.checkpoint import decode_checkpoint
from reput.jobs.audit.job import audit
from reput.jobs.runner import LocalRunner
from reput.log.directory import StoreDirectory
from tests.support.faulty_files import FaultyFiles, abandon
from tests.support.invariants import SMALL, log_records

#: Of a store: closed by its only process, killed in it, or closed by one and killed in the next.
_STATES = ("closed", "killed", "killed later")
#: Messages; the last four come in a second life, if there is one: of them the checkpoint knows nothing.
_COUNT, _COUNT_OF_FIRST_LIFE = 60, 56
#: Between two messages: what was put in the three seconds before the checkpoint's time, half of the log, a start reads.
_CLOCK_STEP_S = 0.1
_FILE_SIZE = int(str(SMALL["mapped_file_size_commit_log"]))
#: What a header field of 4 or 8 bytes is set to.
_EXTREMES = (0, 1, -1, 0x7FFFFFFF, -0x80000000, 0x7FFFFFFFFFFFFFFF, -0x8000000000000000, 0x01000000)
#: (topic, queue id, queue offset) -> commit log offset and body.
_Messages = dict[tuple[str, int, int], tuple[int, bytes]]


def _truncate(file: Path, chance: random.Random) -> str:
    size = file.stat().st_size
    os.truncate(file, chance.choice([0, size // 2, max(size - 1, 0), chance.randrange(size + 1)]))
    return "cut"


def _lengthen(file: Path, chance: random.Random) -> str:
    with file.open("ab") as opened:
        opened.write(chance.randbytes(chance.choice([1, 20, 4096])))
    return "lengthened"


def _overwrite(file: Path, chance: random.Random) -> str:
    data = bytearray(file.read_bytes())
    size = chance.choice([1, 20, 512, 4096])
    begin = chance.randrange(max(len(data), 1))
    way = chance.choice(["zeroed", "filled with noise", "repeated"])
    source = chance.randrange(max(len(data), 1))
    new = {
        "zeroed": bytes(size), "filled with noise": chance.randbytes(size), "repeated": data[source : source + size]
    }[way]  # fmt: skip
    data[begin : begin + size] = new[: len(data) - begin]
    file.write_bytes(data)
    return f"a block {way}"


def _flip(file: Path, chance: random.Random) -> str:
    data = bytearray(file.read_bytes())
    used = len(bytes(data).rstrip(b"\0"))
    if not used:
        return "nothing"
    data[chance.randrange(used)] ^= 1 << chance.randrange(8)
    file.write_bytes(data)
    return "a bit turned over"


def _zero_end(file: Path, chance: random.Random) -> str:
    """Fill the end of a file with zeros, as a file system that knew the file's length, and not all of its bytes."""
    size = file.stat().st_size
    os.truncate(file, chance.randrange(size + 1))
    os.truncate(file, size)
    return "zeros to its end"


def _set_field(file: Path, chance: random.Random) -> str:
    data = bytearray(file.read_bytes())
    width = chance.choice([4, 8])
    used = len(bytes(data).rstrip(b"\0"))
    if len(data) < width:
        return "nothing"
    position = min(4 * chance.randrange(used // 4 + 1), len(data) - width)
    value = chance.choice(_EXTREMES) & ((1 << 8 * width) - 1)
    data[position : position + width] = value.to_bytes(width, "big")
    file.write_bytes(data)
    return "a field at its extreme"


def _remove(file: Path, chance: random.Random) -> str:
    file.unlink()
    return "removed"


def _replace_by_link(file: Path, chance: random.Random) -> str:
    target = file.with_name(f"{file.name}-elsewhere")
    file.rename(target)
    file.symlink_to(chance.choice([target.name, file.name, "nowhere", "/proc/self/mem"]))
    return "a symbolic link"


def _replace_by_folder(file: Path, chance: random.Random) -> str:
    file.unlink()
    file.mkdir()
    return "a folder"


def _add_foreign(file: Path, chance: random.Random) -> str:
    name = chance.choice(["README", "0000", "99999999999999999999", "00000000000000000007", ".hidden", "x" * 200])
    (file.parent / name).write_bytes(chance.randbytes(chance.choice([0, 3, 4096])))
    return "a foreign file beside it"


def _swap(file: Path, chance: random.Random) -> str:
    others = [other for other in sorted(file.parent.iterdir()) if other != file and other.is_file()]
    if not others:
        return "nothing"
    other = chance.choice(others)
    data = file.read_bytes()
    file.write_bytes(other.read_bytes())
    other.write_bytes(data)
    return "swapped with another"


_WAYS: tuple[Callable[[Path, random.Random], str], ...] = (
    _truncate, _zero_end, _lengthen, _overwrite, _overwrite, _flip, _flip, _set_field, _set_field, _remove,
    _replace_by_link, _replace_by_folder, _add_foreign, _swap,
)  # fmt: skip


@cache
def _sample(state: str) -> tuple[Path, _Messages]:
    """A store in one of the states, and its messages."""
    messages: _Messages = {}
    path = Path(mkdtemp(prefix="reput-campaign-")) / "store"
    begin_s = time.time() - _COUNT * _CLOCK_STEP_S
    with patch("time.time", lambda: begin_s + len(messages) * _CLOCK_STEP_S):
        for end in (_COUNT_OF_FIRST_LIFE, _COUNT) if state == "killed later" else (_COUNT,):
            files = FaultyFiles()
            store = reput.MessageStore.open(path, files=files, **SMALL)
            for number in range(len(messages), end):
                topic, queue, body = ("orders", "refunds")[number % 2], number % 3, b"%d " % number * (number % 40)
                result = store.put_message(reput.Message(topic, body, keys=[f"k{number}"], tags="a"), queue)
                messages[topic, queue, result.queue_offset] = result.commit_log_offset, body
            store.wait_dispatched()
            if end < _COUNT or state == "closed":
                store.close()
            else:
                abandon(store, files)
    return path, messages


@cache
def _known_records(state: str) -> dict[int, bytes]:
    """By commit log offset the records that no start may lose as long as they are whole.

    After a clean exit those are all; else those of which the checkpoint says that they were on the disk.
    """
    path, _ = _sample(state)
    until = decode_checkpoint(_bytes_of(path / "checkpoint")).physic_msg_timestamp
    return {
        record.offset: _record_at(path, record.offset, record.size)
        for record in log_records(path)
        if state == "closed" or record.row["store_timestamp"] < until
    }


def _record_at(path: Path, offset: int, size: int) -> bytes:
    position = offset % _FILE_SIZE
    return _bytes_of(path / "commitlog" / f"{offset - position:020d}")[position : position + size]


def _bytes_of(file: Path) -> bytes:
    """Empty where it cannot be read."""
    try:
        return file.read_bytes()
    except OSError:
        return b""


def _last_to_keep(path: Path, state: str) -> int:
    """Commit log offset of the last record that a start may not lose untold; -1 for none.

    A clean exit vouches for all that was there; a checkpoint that nobody has changed, for what is whole.
    """
    known = _known_records(state)
    if state == "closed":
        return max(known)
    if _bytes_of(path / "checkpoint") != _bytes_of(_sample(state)[0] / "checkpoint"):
        return -1
    whole = (offset for offset, record in known.items() if _record_at(path, offset, len(record)) == record)
    return max(whole, default=-1)


def run(folder: Path, seed: int) -> Counter[str]:
    """One or two damages to a copy of a store; then everything that looks at stores looks at it."""
    path, messages, counts = damaged_store(folder, random.Random(seed))
    before = contents(path)
    for look in (_read, _audit, _open_to_read):
        counts[look(path, messages)] += 1
    assert contents(path) == before, "looking has changed a file"
    (state,) = [state for state in _STATES if counts[f"state: {state}"]]
    counts[_open(path, messages, before, _last_to_keep(path, state))] += 1
    return counts


def damaged_store(folder: Path, chance: random.Random) -> tuple[Path, _Messages, Counter[str]]:
    """A copy of a store with one or two damages; what was put into it, and what was done."""
    state = chance.choice(_STATES)
    source, messages = _sample(state)
    path = folder / "store"
    shutil.copytree(source, path)
    done = []
    for _ in range(chance.choice([1, 1, 2])):
        kinds = ["commitlog", "commitlog", "consumequeue", "index", "config", "checkpoint", "abort"]
        kind = chance.choice(kinds)
        files = [file for file in sorted(path.rglob("*")) if file.is_file() and not file.is_symlink()]
        found = [file for file in files if file.relative_to(path).parts[0] == kind]
        if found:
            file = chance.choice([*found, found[-1]])  # the newest one is the one that a start reads
            done.append(f"{kind}: {chance.choice(_WAYS)(file, chance)}")
    return path, messages, Counter({"damages": len(done), f"state: {state}": 1, **{f"way: {text}": 1 for text in done}})


def _read(path: Path, messages: _Messages) -> str:
    try:
        table = reput.read_log(path, ["commit_log_offset", "body", "status"]).read_all()
    except ReputError:
        return "read_log: told"
    for row in table.to_pylist():
        if row["status"] in (None, "OK"):
            _check(messages, row["commit_log_offset"], row["body"])
    return "read_log: read"


def _audit(path: Path, messages: _Messages) -> str:
    try:
        found = audit(path, runner=LocalRunner(1)).findings
    except ReputError:
        return "audit: refused"
    return "audit: findings" if found else "audit: clean"


def _open_to_read(path: Path, messages: _Messages) -> str:
    try:
        StoreDirectory(path).queues()
        with reput.MessageStore.open(path, read_only=True, **SMALL) as store:
            _look(store, messages)
    except ReputError:
        return "opened to read: told"
    return "opened to read: read"


def _open(path: Path, messages: _Messages, before: dict[str, str], last: int) -> str:
    try:
        store = reput.MessageStore.open(path, files=FaultyFiles(), **SMALL)
    except ReputError:
        assert contents(path) == before, "a start that refused has changed a file"
        return "opened: refused"
    try:
        with store:
            assert store.max_commit_log_offset > last, "a log that was on the disk became shorter, and nobody was told"
            _look(store, messages)
            store.put_message(reput.Message("later", b"x"))
    except ReputError:
        return "opened: told later"
    return "opened: works"


def _look(store: reput.MessageStore, messages: _Messages) -> None:
    for topic, queue, offset in messages:
        try:
            got = store.get_message(topic, queue, offset, 1)
            for message in got.messages():
                _check(messages, message.commit_log_offset, message.body)
        except ReputError:
            continue


def _check(messages: _Messages, commit_log_offset: int, body: bytes) -> None:
    """A record that counts as whole has the body that was put there."""
    for offset, put in messages.values():
        assert offset != commit_log_offset or body == put, f"{offset}: another body than was put"


def contents(path: Path) -> dict[str, str]:
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(path.rglob("*"))
        if not file.is_symlink() and file.is_file() and file.name not in ("lock", "abort")
    }


PART = Part(
    "damage", "files cut, overwritten, removed, swapped, linked, and beside foreign ones", 3_000, run, ("damages",)
)
