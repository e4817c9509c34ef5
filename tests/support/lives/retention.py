"""Deletions of expired files from a store that is open."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import reput
from reput.errors import StoreFullError
from tests.support.faulty_files import TAKES_SPACE, FaultyFiles, Judge, Operation, abandon, no_objection
from tests.support.invariants import SMALL
from tests.support.retained import age, check_retained, files_in

OPTIONS = SMALL | {
    "delete_commit_log_files_interval": 0,
    "delete_consume_queue_files_interval": 0,
    "flush_interval_consume_queue": 2**31 - 1,  # what is synced is synced by the deletion
}
EXPIRED = 3
_EARLY = 12


class Files(FaultyFiles):
    """Operations count from `begin` on; a disk of 20 %, which can have no space for units all the same."""

    begin = 1 << 62
    takes_units = True

    def start(self, judge: Judge) -> None:
        self.begin = len(self.operations)
        self.judge = lambda operation: judge(operation._replace(number=operation.number - self.begin))

    def disk_used_percent(self, path: str) -> int:
        return 20

    def write_runs(self, paths, addresses, sizes, positions):  # type: ignore[no-untyped-def]
        if not self.takes_units:
            raise StoreFullError(f"{paths[0]}: no space")
        super().write_runs(paths, addresses, sizes, positions)


def filled(path: Path, *, is_behind: bool = False) -> tuple[reput.MessageStore, Files]:
    """A store of six log files, three of them expired; the second has the only message of a queue.

    Where dispatch `is_behind`, it ends in the second one, before that message.
    """
    files = Files()
    store = reput.MessageStore.open(path, files=files, **OPTIONS)
    for number in range(50):
        if number == _EARLY:
            store.wait_dispatched()
            files.takes_units = not is_behind
            early = store.put_message(reput.Message("early", b"x", keys=["early"]))
            assert early.commit_log_offset // 4096 == 1
        store.put_message(reput.Message("t", bytes(300), keys=[f"k{number}"]), number % 2)
    if not is_behind:
        store.wait_dispatched()
    age(path, EXPIRED)
    return store, files


def check_next_life(path: Path) -> None:
    """The next start has a store in step, its queues go on where they were, and a deletion ends what was begun."""
    with reput.MessageStore.open(path, files=Files(), **OPTIONS) as store:
        check_retained(store, path)
        assert store.max_commit_log_offset // 4096 >= EXPIRED
        assert store.put_message(reput.Message("early", b"y")).queue_offset == 1
        assert store.put_message(reput.Message("t", b"y"), 1).queue_offset == 25
        age(path, EXPIRED - store.min_commit_log_offset // 4096)
        store.delete_expired()
        assert store.min_commit_log_offset == EXPIRED * 4096
        check_retained(store, path)


def operations_of_a_deletion(path: Path, *, is_behind: bool = False) -> list[Operation]:
    store, files = filled(path, is_behind=is_behind)
    files.start(no_objection)
    before = files_in(path)
    report = store.delete_expired()
    operations = files.operations[files.begin :]
    counts = [1, 0, 0] if is_behind else [3, 2, 1]
    assert [len(part) for part in report[2:5]] == counts
    assert len(before - files_in(path)) == sum(counts)
    abandon(store, files)
    return operations


class FullFiles(Files):
    """On a disk that is full until a log file is deleted: nothing that takes space succeeds before."""

    is_full = True

    def start(self, judge: Judge) -> None:
        def judge_space(operation: Operation) -> None:
            if self.is_full and operation.kind in TAKES_SPACE:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            judge(operation)

        super().start(judge_space)

    def disk_used_percent(self, path: str) -> int:
        return 100 if self.is_full else 20

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self.is_full = self.is_full and "/commitlog/" not in path


def killed(path: Path, *, is_behind: bool) -> FullFiles:
    """Kill a store as of `filled`; returns the layer for the next start, on a full disk."""
    store, former = filled(path, is_behind=is_behind)
    abandon(store, former)
    files = FullFiles()
    files.goes_on_after(former)
    return files


def start_on_a_full_disk(path: Path, files: FullFiles, judge: Judge = no_objection) -> reput.MessageStore:
    """Start with retention, by the age of files alone."""
    files.start(judge)
    options = OPTIONS | {"clean_file_forcibly_enable": False}
    return reput.MessageStore.open(path, files=files, retention=True, **options)
