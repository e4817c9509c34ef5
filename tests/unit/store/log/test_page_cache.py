"""What the page cache means for puts and gets: a disk that does not keep up, read-ahead, and reading ahead of time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import reput
from reput.errors import StoreBusyError, StoreStateError
from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE
from reput.formats.metadata import TopicConfig
from reput.store.log import append_gate
from reput.store.log.append_gate import AppendGate
from tests.support.faulty_files import FaultyFiles, Operation
from tests.support.fixtures import OpenStore


class StuckDisk(FaultyFiles):
    """From `stick` on, reserving space for the log does not return before `let_go`."""

    def __init__(self) -> None:
        super().__init__()
        self.is_stuck, self.may_go = threading.Event(), threading.Event()

    def stick(self) -> None:
        def judge(operation: Operation) -> None:
            if operation.kind in ("create", "allocate") and "commitlog" in operation.path:
                self.is_stuck.set()
                assert self.may_go.wait(60)

        self.judge = judge


@pytest.mark.parametrize("way", ["put_message", "async_put_message", "put_messages"])
def test_a_put_behind_one_that_is_stuck_is_refused_and_may_be_tried_again(open_store: OpenStore, way: str) -> None:
    files = StuckDisk()
    store = open_store(files=files, os_page_cache_busy_time_out_mills=20, flush_interval_consume_queue=2**31 - 1)
    store.put_message(reput.Message("t", bytes(3000)))
    end = store.max_commit_log_offset
    files.stick()
    stuck = threading.Thread(target=lambda: store.put_message(reput.Message("t", bytes(3000))))
    stuck.start()
    assert files.is_stuck.wait(60)
    message = reput.Message("t", b"x")
    puts: dict[str, Callable[[], object]] = {
        "put_message": lambda: store.put_message(message),
        "async_put_message": lambda: store.async_put_message(message),
        "put_messages": lambda: store.put_messages([message, message]),
    }
    with pytest.raises(StoreBusyError, match=rf"commitlog: nothing could be appended at {end} for 20 ms .* try again"):
        puts[way]()
    assert StoreBusyError.retriable
    files.may_go.set()
    stuck.join()
    puts[way]()
    store.wait_dispatched()
    assert store.max_offset("t", 0) == (4 if way == "put_messages" else 3)


class BusyLog(AppendGate):
    """A log to which others append: it is longer at every third look at it, a third of the time-out after the last.

    Attributes:
        looks: At its end, and at the clock.
    """

    looks = 0

    @property
    def max_offset(self) -> int:
        self.looks += 1
        if self.looks == 300:
            self._lock.release()
        return self.looks // 3

    def now_s(self) -> float:
        return self.looks / 9


def test_a_put_that_waits_long_while_others_append_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    log = BusyLog("commitlog", busy_timeout_ms=1000)
    monkeypatch.setattr(append_gate, "time", SimpleNamespace(monotonic=log.now_s, sleep=time.sleep))
    log._lock.acquire()
    log._wait()
    assert log.looks >= 300


def advice_of_log_maps(path: Path) -> set[bool]:
    """Whether each map of a log file is advised to be read at random (`rr` in VmFlags)."""
    found, is_log = set(), False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ")[0]:
            is_log = f"{path}/commitlog/" in line
        elif line.startswith("VmFlags:") and is_log:
            found.add("rr" in line.split())
    return found


@pytest.mark.parametrize("read_ahead", [True, False])
def test_the_system_reads_ahead_in_the_log_unless_it_is_told_not_to(
    open_store: OpenStore, path: Path, read_ahead: bool
) -> None:
    store = open_store(data_read_ahead_enable=read_ahead)
    for _ in range(30):
        store.put_message(reput.Message("t", bytes(300)))
    assert advice_of_log_maps(path) == {not read_ahead}
    store.close()
    reader = open_store(read_only=True, data_read_ahead_enable=read_ahead)
    reader.get_message("t", 0, 0).messages()
    assert advice_of_log_maps(path) == {not read_ahead}


def test_warming_up_reads_the_newest_part_of_log_queues_and_index(open_store: OpenStore) -> None:
    store = open_store()
    for number in range(60):
        store.put_message(reput.Message("t", bytes(300), keys=[f"k{number}"]), int(number >= 30))
    store.wait_dispatched()
    end = store.max_commit_log_offset
    everything = store.preload()
    assert everything.commit_log_bytes == end
    assert everything.consume_queue_bytes == 2 * (30 % 8) * 20, "of each queue the used part of its last file"
    assert everything.index_bytes > 3 * (40 + 28)
    newest = store.preload(end // 4)
    assert newest.commit_log_bytes == end // 4
    assert newest.consume_queue_bytes == (30 % 8) * 20, "the other queue has no message there"
    assert 0 < newest.index_bytes < everything.index_bytes
    assert store.preload(0) == (0, 0, 0)
    store.close()
    with pytest.raises(StoreStateError):
        store.preload()


def test_warming_up_reads_the_used_part_of_the_last_file_of_a_batch_queue(open_store: OpenStore) -> None:
    store = open_store()
    store.update_topic(TopicConfig("orders", attributes={"queue.type": "BatchCQ"}))
    items = [reput.Message("orders", b"x")] * 20
    for _ in range(9):
        store.put_batch(reput.MessageExtBatch.of(items, unique_key="U"))
    store.wait_dispatched()
    assert store.max_offset("orders", 0) == 180
    assert store.preload().consume_queue_bytes == BATCH_UNIT_SIZE, "eight units fill the first file"
