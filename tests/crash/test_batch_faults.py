"""A disk that fails once, and a process or a machine that ends, at every operation of a store with batch queues."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

import reput
from reput.errors import StoreError
from tests.support.faulty_files import (
    Crash,
    FaultyFiles,
    abandon,
    crash_at,
    fail_at,
    no_objection,
)
from tests.support.lives.batches import count_operations, live
from tests.support.lives.puts import check_next_life
from tests.support.shares import Share, in_shares, sampled

# Threads that die of a crash are what these tests want.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


@in_shares(3)
@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_crash_or_a_power_cut_at_any_operation_loses_no_acknowledged_batch(
    tmp_path: Path, flush_disk_type: str, share: Share
) -> None:
    last = count_operations(tmp_path / "healthy", flush_disk_type)
    for number in share.of(range(0, last, 2 if flush_disk_type == "SYNC_FLUSH" else 5)):
        path = tmp_path / f"crash-{number}"
        life, files = live(path, flush_disk_type, crash_at(number))
        if flush_disk_type == "SYNC_FLUSH":
            without_power = tmp_path / f"cut-{number}"
            files.cut_power(path, without_power)
            check_next_life(life, without_power)
        check_next_life(life, path)


@sampled(2)
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_an_operation_that_fails_once_loses_no_acknowledged_batch(
    tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reput.store.dispatch.reput.RETRY_WAIT_S", 0.01)
    for number in range(0, count_operations(tmp_path / "healthy", "SYNC_FLUSH"), 4):
        path = tmp_path / f"fault-{number}"
        life, files = live(path, "SYNC_FLUSH", fail_at(number, code))
        for error in life.errors:
            assert isinstance(error, StoreError), (files.operations[number], error)
        check_next_life(life, path)


@sampled(3)
@pytest.mark.parametrize("lost", [(), ("batchconsumequeue",), ("batchconsumequeue", "consumequeue", "config")], ids=str)
def test_a_crash_at_any_operation_of_a_start_changes_nothing_that_the_next_start_needs(
    tmp_path: Path, lost: tuple[str, ...]
) -> None:
    life, _ = live(tmp_path / "source", "SYNC_FLUSH", no_objection)
    for name in lost:
        shutil.rmtree(tmp_path / "source" / name)
    number, ended = 0, False
    while not ended:
        path = tmp_path / str(number)
        shutil.copytree(tmp_path / "source", path)
        files = FaultyFiles(crash_at(number))
        try:
            store = reput.MessageStore.open(path, files=files, **life.options)
            abandon(store, files)
            ended = True
        except Crash:
            files.abandon()
        check_next_life(life, path)
        number += 1
    assert number > 5
