"""The next log file, made before an append needs it: when, by whom, who waits for it, and what a crash leaves."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from reput import Message, MessageStore
from reput.errors import ReputError, WouldWaitError
from reput.files import NeverWaiting
from reput.store.puts.put_rows import PutRow, PutRowResult
from tests.support.faulty_files import Crash, FaultyFiles, Operation, abandon, crash_at, no_objection
from tests.support.held_disk import HeldDisk
from tests.support.invariants import check_store

SIZE = 1 << 16
OPTIONS: dict[str, object] = {
    "mapped_file_size_commit_log": SIZE,
    "mapped_file_size_consume_queue": 20_000,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
    "flush_disk_type": "ASYNC_FLUSH",
    "flush_interval_consume_queue": 1_000_000,  # nobody looks by time
}


def put_row(store: MessageStore, size: int = 1000) -> PutRowResult | ReputError:
    """Append a message as a broker does."""
    (result,) = store.loop_writer().put_rows([PutRow("t", 0, bytes(size), b"", 0, 0, 1, bytes(8))])
    return result


def files_of(path: Path) -> list[int]:
    """First offsets of the log files that are there."""
    return sorted(map(int, os.listdir(path / "commitlog")))


def test_the_next_file_is_made_by_a_thread_once_half_of_the_last_one_is_written(tmp_path: Path) -> None:
    made = threading.Event()
    threads: list[str] = []

    def judge(operation: Operation) -> None:
        if operation.path.endswith(f"/{SIZE:020}"):
            threads.append(threading.current_thread().name)
            if operation.kind == "sync":
                made.set()

    with MessageStore.open(tmp_path / "s", files=FaultyFiles(judge), dispatch="caller", **OPTIONS) as store:
        for _ in range(25):
            put_row(store)
        store._writer.allocate._wake.set()  # type: ignore[union-attr]  # too early: less than half is written
        assert not made.is_set()
        for _ in range(10):
            put_row(store)
        assert made.wait(60)
        assert set(threads) == {"reput-allocate"}
    assert files_of(tmp_path / "s") == [0], "a clean exit leaves no file that was not used"


def test_an_append_that_may_not_wait_is_refused_until_room_is_made_and_others_go_on(tmp_path: Path) -> None:
    disk = HeldDisk()
    store = MessageStore.open(tmp_path / "s", files=FaultyFiles(disk.judge), dispatch="caller", **OPTIONS)
    with store, ThreadPoolExecutor() as pool:
        with NeverWaiting():
            refused = put_row(store)
        assert isinstance(refused, WouldWaitError)
        assert refused.room >= 1
        store.loop_writer().make_room(refused.room)
        with NeverWaiting():
            for _ in range(20):
                assert isinstance(put_row(store), PutRowResult)
            with disk.held():
                large = put_row(store, 50_000)
                assert isinstance(large, WouldWaitError)
                assert large.room > 50_000
                with pytest.raises(WouldWaitError):
                    store.loop_writer().make_room(large.room)
                making = pool.submit(store.loop_writer().make_room, large.room)
                disk.wait()
                assert isinstance(put_row(store), PutRowResult), "the append lock is free"
                assert not making.done()
            making.result(60)
            assert isinstance(put_row(store, 50_000), PutRowResult)
        assert store._stats.put_failed_times == 0
    with MessageStore.open(tmp_path / "s", read_only=True) as store:
        assert store.max_offset("t", 0) == 22


def test_a_crash_while_the_next_file_is_made_ahead_loses_nothing(tmp_path: Path) -> None:
    """Before it, at each operation, and when the empty file is there."""
    number, is_made = 0, False
    while not is_made:
        path, files = tmp_path / f"crash-{number}", FaultyFiles()
        store = MessageStore.open(path, files=files, **OPTIONS | {"flush_disk_type": "SYNC_FLUSH"})
        for _ in range(40):
            store.put_message(Message("t", bytes(1000), keys=["k"]))
        store.wait_dispatched()
        files.judge = crash_at(len(files.operations) + number)
        try:
            store._log.make_ready()
            is_made = True
        except Crash:
            pass
        files.judge = no_objection
        abandon(store, files)
        files.cut_power(path, tmp_path / f"cut-{number}")
        for left in (path, tmp_path / f"cut-{number}"):
            with MessageStore.open(left, **OPTIONS) as opened:
                assert opened.max_offset("t", 0) == 40
                for _ in range(40):
                    opened.put_message(Message("t", bytes(1000), keys=["k"]))
            check_store(left, OPTIONS)
            assert files_of(left) == [0, SIZE]
        number += 1
    assert number > 2
