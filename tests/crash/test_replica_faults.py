"""A process or a machine that ends while a master's bytes are appended: the next life goes on, and ends equal."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import numpy as np
import pytest

import reput
from reput.errors import StoreError
from tests.support.fake_master import log_of
from tests.support.faulty_files import (
    Crash,
    FaultyFiles,
    Judge,
    abandon,
    crash_at,
    fail_at,
    no_objection,
    wait_dispatched,
)
from tests.support.invariants import check_store
from tests.support.lives.puts import OPTIONS

# Threads that die of a crash are what these tests want.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

SEED, LARGEST_PIECE = 5, 900


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The log of a master, of three files."""
    path = tmp_path_factory.mktemp("replica") / "master"
    with reput.MessageStore.open(path, **OPTIONS) as store:
        for number in range(24):
            body = bytes([number]) * (150 + 40 * (number % 9))
            store.put_message(reput.Message("orders", body, keys=[f"key-{number}"], tags="ab"), number % 2)
        end = store.max_commit_log_offset
    return log_of(path, end)[1]


def follow(store: reput.MessageStore, source: bytes) -> None:
    """Append what is missing, in pieces that end anywhere."""
    chance, writer = random.Random(SEED), store.replica_writer()
    came = writer.end_offset
    while writer.end_offset < len(source):
        came = min(came + chance.randrange(1, LARGEST_PIECE), len(source))
        writer.append(np.frombuffer(source[writer.end_offset : came], np.uint8))


def live(path: Path, flush_disk_type: str, source: bytes, judge: Judge) -> FaultyFiles:
    """Follow from nothing to the end of the log, or to the first error."""
    files, store = FaultyFiles(judge), None
    try:
        store = reput.MessageStore.open(path, files=files, **OPTIONS, flush_disk_type=flush_disk_type)
        follow(store, source)
        wait_dispatched(store, files)
        store.close()
    except (Crash, StoreError):
        pass
    if store is not None:
        abandon(store, files)
    files.abandon()
    return files


def check_next_life(path: Path, flush_disk_type: str, source: bytes) -> None:
    """What is there is the beginning of the master's log, ends with a record, and goes on."""
    with reput.MessageStore.open(path, files=FaultyFiles(), **OPTIONS, flush_disk_type=flush_disk_type) as store:
        end = store.max_commit_log_offset
        assert log_of(path, end)[1] == source[:end]
        follow(store, source)
        store.wait_dispatched()
        assert len(store.query_message("orders", "key-23")) == 1
    assert log_of(path, len(source))[1] == source
    check_store(path)


@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", pytest.param("ASYNC_FLUSH", marks=pytest.mark.slow)])
def test_a_kill_or_a_power_cut_at_any_operation_leaves_a_log_that_goes_on(
    tmp_path: Path, flush_disk_type: str, source: bytes
) -> None:
    healthy = live(tmp_path / "healthy", flush_disk_type, source, no_objection)
    check_next_life(tmp_path / "healthy", flush_disk_type, source)
    for number in range(0, len(healthy.operations), 2):
        path, chance = tmp_path / f"{number}", random.Random(number)
        files = live(path, flush_disk_type, source, crash_at(number))
        for left, torn in ((tmp_path / f"{number}-cut", None), (tmp_path / f"{number}-torn", chance)):
            files.cut_power(path, left, torn)
            check_next_life(left, flush_disk_type, source)
        check_next_life(path, flush_disk_type, source)


def test_a_disk_that_fails_once_ends_the_life_or_nothing(tmp_path: Path, source: bytes) -> None:
    healthy = live(tmp_path / "healthy", "SYNC_FLUSH", source, no_objection)
    for number in range(0, len(healthy.operations), 3):
        path = tmp_path / f"{number}"
        live(path, "SYNC_FLUSH", source, fail_at(number, errno.EIO))
        check_next_life(path, "SYNC_FLUSH", source)
