"""Live dispatch and recovery by the rules of each RocketMQ version: what differs, and nothing else."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

import reput
from reput.config.dispatch_rules import DispatchRules
from reput.formats.consume_queue import decode_unit
from reput.formats.index_file import HEADER_SIZE, decode_header
from reput.formats.java import string_hash
from reput.jobs.rebuild.job import rebuild
from reput.jobs.runner import LocalRunner
from tests.support.faulty_files import FaultyFiles, abandon
from tests.support.fixtures import OpenStore
from tests.support.invariants import SMALL

DELAYED = "SCHEDULE_TOPIC_XXXX"
EACH = pytest.mark.parametrize("rules", list(DispatchRules))


def put_delayed(store: reput.MessageStore) -> int:
    """Delayed messages with tags and keys, and others without; returns the store time of the first."""
    first = store.put_message(reput.Message(DELAYED, b"", tags="blue", keys=["k1", "k2"], properties={"DELAY": "3"}))
    for number in range(20):
        tags = f"tag-{number % 3}" if number % 2 else None
        store.put_message(reput.Message("t", bytes(200), tags=tags, keys=[f"k{number}"]))
    store.wait_dispatched()
    return first.store_timestamp


def tags_code(path: Path) -> int:
    return decode_unit((path / "consumequeue" / DELAYED / "0" / f"{0:020d}").read_bytes(), 0).tags_code


def key_count(path: Path) -> int:
    headers = [decode_header(file.read_bytes()[:HEADER_SIZE]) for file in (path / "index").iterdir()]
    return sum(max(header.index_count - 1, 0) for header in headers)


def derived(path: Path) -> list[str]:
    """Hashes of the queue files and of the index files, in their order."""
    files = [*sorted((path / "consumequeue").rglob("0*")), *sorted((path / "index").iterdir())]
    return [hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.is_file()]


@EACH
def test_live_dispatch_indexes_tags_as_its_version_does_and_delivers_in_time(
    open_store: OpenStore, path: Path, rules: DispatchRules
) -> None:
    with open_store(dispatch_rules=rules) as store:
        stored = put_delayed(store)
    assert tags_code(path) == stored + 10_000
    assert key_count(path) == 22 + (11 if rules in ("5.5.0", "5.5.1") else 0)


@EACH
def test_a_recovery_makes_the_same_files_but_for_the_delayed_units_of_4_9_7(
    open_store: OpenStore, path: Path, rules: DispatchRules, tmp_path: Path
) -> None:
    files = FaultyFiles()
    store = open_store(dispatch_rules=rules, files=files)
    stored = put_delayed(store)
    abandon(store, files)
    live = derived(path)
    for name in ("consumequeue", "index"):
        shutil.rmtree(path / name)
    with reput.MessageStore.open(path, files=FaultyFiles(), **(SMALL | {"dispatch_rules": rules})) as store:
        assert store.recovery.was_killed
    assert tags_code(path) == (string_hash("blue") if rules == "4.9.7" else stored + 10_000)
    assert key_count(path) == 22 + (11 if rules in ("5.5.0", "5.5.1") else 0)
    recovered = derived(path)
    assert len(recovered) == len(live)
    assert sum(a != b for a, b in zip(recovered, live, strict=True)) == (1 if rules == "4.9.7" else 0)
    rebuild(path, tmp_path / "rebuilt", runner=LocalRunner(threads=1), rules=rules)
    assert derived(tmp_path / "rebuilt") == recovered
