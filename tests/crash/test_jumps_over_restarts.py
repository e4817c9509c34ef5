"""Records with a wrong queue offset, and restarts of their store: queues are as without a restart."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

import reput
from tests.support.faulty_files import copy_store
from tests.support.plants import stored

SIZES = {
    "mapped_file_size_commit_log": 4096,
    "max_message_size": 1024,
    "mapped_file_size_consume_queue": 400,
    "mapper_file_size_batch_consume_queue": 460,
    "max_hash_slot_num": 64,
    "max_index_num": 400,
}
COUNT = 144
#: Records with a wrong queue offset, and the bit of it that is wrong. Between two of a queue lie two that are right.
ODD = {13: 3, 26: 2, 40: 3, 51: 4, 66: 3, 80: 3, 95: 5, 100: 2, 118: 2, 129: 4}
TYPES = {"simple": "SimpleCQ", "batch": "BatchCQ"}


def written(path: Path, kind: str) -> list[bytes]:
    """The bytes of a master's log: of each record, with the blank record before it."""
    with opened(path, kind) as store:
        for n in range(COUNT):
            store.put_message(reput.Message(f"t{n % 2}", b"x" * (400 + n), keys=[f"k{n}"]), n // 2 % 6)
    found = stored(path)
    for number, record in enumerate(found):  # so that a start trusts all files but the last ones
        record.change(56, struct.pack(">q", record.number(56) - (COUNT - number) * 4000))
    for number, bit in ODD.items():
        found[number].change(20, struct.pack(">q", found[number].number(20) ^ 1 << bit))
    found = stored(path)
    log = b"".join(file.read_bytes() for file in sorted((path / "commitlog").iterdir()))
    begins = [record.number(28) for record in found]
    ends = [begin + len(record.data) for begin, record in zip(begins, found, strict=True)]
    return [log[begin:end] for begin, end in zip([0, *ends[:-1]], ends, strict=True)]


def opened(path: Path, kind: str) -> reput.MessageStore:
    """A new store, whose topics have consume queues of this kind."""
    store = reput.MessageStore.open(path, **SIZES)
    for topic in ("t0", "t1"):
        store.update_topic(reput.TopicConfig(topic, attributes={"queue.type": TYPES[kind]}))
    return store


def units(path: Path) -> dict[str, bytes]:
    folders = [path / "consumequeue", path / "batchconsumequeue"]
    found = {str(file): file for folder in folders for file in folder.rglob("*") if file.is_file()}
    # A file of zeros takes the next unit: whether a start made it, nobody sees.
    return {str(file.relative_to(path)): file.read_bytes() for file in found.values() if any(file.read_bytes())}


def take(store: reput.MessageStore, data: bytes) -> None:
    """Append a master's bytes, and dispatch them."""
    assert store.replica_writer().append(np.frombuffer(data, np.uint8)) == len(data)
    store.wait_dispatched()


def closed(store: reput.MessageStore, path: Path, data: bytes) -> None:
    take(store, data)
    store.close()


def killed(store: reput.MessageStore, path: Path, data: bytes) -> None:
    take(store, data)
    become_copy(copy_store(path, path.with_name("killed")), store, path)


def killed_before_dispatch(store: reput.MessageStore, path: Path, data: bytes) -> None:
    copy = copy_store(path, path.with_name("killed"))
    take(store, data)
    shutil.copytree(path / "commitlog", copy / "commitlog", dirs_exist_ok=True)
    become_copy(copy, store, path)


def become_copy(copy: Path, store: reput.MessageStore, path: Path) -> None:
    store.close()
    shutil.rmtree(path)
    copy.rename(path)


LIVES = {
    "closed": [closed],
    "killed": [closed, killed, killed],
    "killed before dispatch": [killed_before_dispatch, closed, killed_before_dispatch],
}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("period", [1, 3])
@pytest.mark.parametrize("lives", LIVES)
def test_queues_are_as_without_restarts(lives: str, period: int, kind: str, tmp_path: Path) -> None:
    records, ends = written(tmp_path / "master", kind), LIVES[lives]
    path, whole = tmp_path / "restarted", tmp_path / "whole"
    with opened(whole, kind) as store:
        for data in records:
            take(store, data)
    store = opened(path, kind)
    for number, data in enumerate(records):
        if number % period:
            take(store, data)
        else:
            ends[number // period % len(ends)](store, path, data)
            store = reput.MessageStore.open(path, **SIZES)
    store.close()
    assert units(path) == units(whole)
