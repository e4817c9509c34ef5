"""A disk that fails once, and a process or a machine that ends, at every operation of a store with batch queues."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

import reput
from reput.errors import StoreError
from reput.formats.metadata import TopicConfig
from tests.crash.faulty_files import (
    Crash,
    FaultyFiles,
    Judge,
    abandon,
    crash_at,
    fail_at,
    no_objection,
    wait_dispatched,
)
from tests.crash.invariants import Acknowledged, check_store
from tests.crash.test_faults import Life, check_next_life, live_under

# Threads that die of a crash are what these tests want.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

#: Messages of each batch; 1 is a message by itself.
BATCHES = (1, 3, 5, 1, 2, 4, 1, 3)


class BatchLife(Life):
    """A topic with batch queues is made and gets messages and inner batches, and another gets ordinary batches."""

    def run(self, files: FaultyFiles) -> None:
        """Live to the end, or to the first error that is not a full disk; a full disk is tried again once."""
        self.store = self._trying_again(lambda: reput.MessageStore.open(self.path, files=files, **self.options))
        config = TopicConfig("batches", attributes={"queue.type": "BatchCQ"})
        self._trying_again(lambda: self.store.update_topic(config))
        for number, count in enumerate(BATCHES):
            self._trying_again(lambda number=number, count=count: self._put_some(number, count))
        wait_dispatched(self.store, files)
        self.store.close()

    def _put_some(self, number: int, count: int) -> None:
        assert self.store is not None
        key = f"batch-{number}-{len(self.errors)}"
        bodies = [bytes([number, i]) * 60 for i in range(count)]
        messages = [reput.Message("batches", body) for body in bodies]
        if count == 1:
            messages[0].keys = [key]
            single = self.store.put_message(messages[0], number % 2)
            offset, at, body = single.queue_offset, single.commit_log_offset, bodies[0]
            status = single.status
        else:
            batch = reput.MessageExtBatch.of(messages, unique_key="U")
            batch.keys = [key]
            result = self.store.put_batch(batch, number % 2)
            offset, (at,), body, status = result.queue_offset, result.commit_log_offsets, batch.body, result.status
        if status is reput.PutMessageStatus.PUT_OK:
            self.acknowledged.append(Acknowledged("batches", number % 2, offset, at, key, bytes(body)))
        plain = [reput.Message("plain", body, keys=[f"{key}-{i}"]) for i, body in enumerate(bodies)]
        several = self.store.put_batch(plain)
        if several.status is reput.PutMessageStatus.PUT_OK:
            for i, offset in enumerate(several.commit_log_offsets):
                queue_offset = several.queue_offset + i
                self.acknowledged.append(Acknowledged("plain", 0, queue_offset, offset, f"{key}-{i}", bodies[i]))


def live(path: Path, flush_disk_type: str, judge: Judge) -> tuple[BatchLife, FaultyFiles]:
    life = BatchLife(path, flush_disk_type)
    return life, live_under(life, judge)


def count_operations(path: Path, flush_disk_type: str) -> int:
    """How many operations a life without faults has; threads make it differ a little from run to run."""
    life, files = live(path, flush_disk_type, no_objection)
    assert len(life.acknowledged) == len(BATCHES) + sum(BATCHES)
    assert not life.errors
    records = check_store(path)
    assert sum(record.row["sys_flag"] == 0xC0 for record in records) == sum(count > 1 for count in BATCHES)
    return len(files.operations)


@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_crash_or_a_power_cut_at_any_operation_loses_no_acknowledged_batch(
    tmp_path: Path, flush_disk_type: str
) -> None:
    last = count_operations(tmp_path / "healthy", flush_disk_type)
    for number in range(0, last, 2 if flush_disk_type == "SYNC_FLUSH" else 5):
        path = tmp_path / f"crash-{number}"
        life, files = live(path, flush_disk_type, crash_at(number))
        if flush_disk_type == "SYNC_FLUSH":
            without_power = tmp_path / f"cut-{number}"
            files.cut_power(path, without_power)
            check_next_life(life, without_power)
        check_next_life(life, path)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_an_operation_that_fails_once_loses_no_acknowledged_batch(
    tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reput.store.dispatch.reput._RETRY_WAIT_S", 0.01)
    for number in range(0, count_operations(tmp_path / "healthy", "SYNC_FLUSH"), 4):
        path = tmp_path / f"fault-{number}"
        life, files = live(path, "SYNC_FLUSH", fail_at(number, code))
        for error in life.errors:
            assert isinstance(error, StoreError), (files.operations[number], error)
        check_next_life(life, path)


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
