"""SYNC_FLUSH with many threads: nobody is acknowledged before its sync, and nobody is left in the queue."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import reput
from reput.errors import StoreError, StorePoisonedError
from reput.store.log.group_commit import GroupCommitService, _Waiter
from reput.store.results import PutMessageStatus
from tests.support.faulty_files import FaultyFiles, Operation, no_objection
from tests.support.invariants import SMALL, check_store

OPTIONS = SMALL | {"mapped_file_size_commit_log": 1 << 20, "os_page_cache_busy_time_out_mills": 60_000}


class GatedDisk(FaultyFiles):
    """Each sync of the log tells that it has begun, and waits until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)
        self.gated = False
        self.syncs = 0

    def step(self, kind: str, path: str, size: int = 0) -> None:
        if kind == "sync" and "commitlog" in path and self.gated:
            self.syncs += 1
            self.begun.release()
            assert self.may_end.acquire(timeout=60)
        super().step(kind, path, size)


class Queue(deque[_Waiter]):
    """A queue of waiters that tells of each that has come."""

    def __init__(self) -> None:
        super().__init__()
        self.came = threading.Semaphore(0)

    def append(self, waiter: _Waiter) -> None:
        super().append(waiter)
        self.came.release()

    def wait_for(self, count: int) -> None:
        for _ in range(count):
            assert self.came.acquire(timeout=60)


class Put(threading.Thread):
    """A put of its own thread; `outcome` is its status or its error."""

    def __init__(self, store: reput.MessageStore) -> None:
        super().__init__(daemon=True)
        self._store = store
        self.outcome: object = None
        self.start()

    def run(self) -> None:
        try:
            result = self._store.put_message(reput.Message("t", b"x"))
            if result.status is PutMessageStatus.PUT_OK:
                assert result.commit_log_offset + result.size <= self._store.flushed_offset
            self.outcome = result.status
        except (StoreError, AssertionError) as error:
            self.outcome = error

    def wait(self) -> object:
        self.join(60)
        assert not self.is_alive()
        return self.outcome


class HeldAfterGuard:
    """A guard after which one thread is held, the first time that it leaves it."""

    def __init__(self, guard: threading.Lock) -> None:
        self._guard = guard
        self.of: threading.Thread | None = None
        self.left, self.may_go_on = threading.Semaphore(0), threading.Semaphore(0)

    def __enter__(self) -> None:
        self._guard.acquire()

    def __exit__(self, *_: object) -> None:
        self._guard.release()
        if threading.current_thread() is self.of:
            self.of = None
            self.left.release()
            assert self.may_go_on.acquire(timeout=60)


class Scene:
    """An open store, a leader that is in the middle of its sync, and puts that queue up behind it."""

    def __init__(self, path: Path, **options: object) -> None:
        self.disk, self.queue = GatedDisk(), Queue()
        self.store = reput.MessageStore.open(path, files=self.disk, **(OPTIONS | options))  # type: ignore[arg-type]
        self.store.put_message(reput.Message("t", b"first"))
        self.store.wait_dispatched()
        assert isinstance(self.store._writer.flush, GroupCommitService)
        self.service = self.store._writer.flush
        self.service._waiters = self.queue
        self.disk.gated = True
        self.leader = Put(self.store)
        assert self.disk.begun.acquire(timeout=60)

    def queue_up(self, count: int) -> list[Put]:
        puts = [Put(self.store) for _ in range(count)]
        self.queue.wait_for(count)
        return puts

    def finish(self) -> None:
        self.disk.gated = False
        self.disk.may_end.release(1000)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Callable[..., Scene]]:
    scenes: list[Scene] = []

    def make(**options: object) -> Scene:
        scenes.append(Scene(tmp_path / "store", **options))
        return scenes[-1]

    yield make
    for one in scenes:
        one.disk.judge = no_objection
        one.finish()
        one.store.close()
        check_store(tmp_path / "store", OPTIONS)


def test_one_sync_serves_all_who_came_while_another_one_ran(scene: Callable[..., Scene]) -> None:
    now = scene()
    puts = now.queue_up(20)
    now.disk.may_end.release()
    assert now.leader.wait() is PutMessageStatus.PUT_OK
    assert now.disk.begun.acquire(timeout=60)
    assert [put.outcome for put in puts] == [None] * 20, "the sync that covers them has only begun"
    now.disk.may_end.release()
    assert {put.wait() for put in puts} == {PutMessageStatus.PUT_OK}
    assert now.disk.syncs == 2
    assert not now.queue


def test_the_next_sync_runs_while_those_of_the_last_one_are_woken(scene: Callable[..., Scene]) -> None:
    now = scene()
    served = now.queue_up(5)
    now.disk.may_end.release()
    assert now.disk.begun.acquire(timeout=60)
    late = now.queue_up(5)
    now.disk.may_end.release()
    assert {put.wait() for put in served} == {PutMessageStatus.PUT_OK}
    assert now.disk.begun.acquire(timeout=60)
    assert [put.outcome for put in late] == [None] * 5
    now.disk.may_end.release()
    assert {put.wait() for put in late} == {PutMessageStatus.PUT_OK}
    assert now.disk.syncs == 3


def test_the_lead_is_given_away_and_the_first_put_woken_at_once(scene: Callable[..., Scene]) -> None:
    now = scene()
    now.finish()
    assert now.leader.wait() is PutMessageStatus.PUT_OK
    served, also_served, late = _Waiter(), _Waiter(), _Waiter()
    late.end_offset = now.store.flushed_offset + 1
    now.service._is_led = True
    now.queue.extend([served, also_served, late])
    now.service._hand_on(led=True)
    assert served.wake.acquire(False)
    assert late.wake.acquire(False)
    assert (served.leads, late.leads, list(now.queue)) == (False, True, [also_served])
    now.service._hand_on(led=False)
    assert also_served.wake.acquire(False)
    now.service._hand_on(led=True)
    assert not now.service._is_led


def test_who_came_out_of_the_logs_order_is_not_left_behind_the_others(scene: Callable[..., Scene]) -> None:
    now = scene()
    now.finish()
    assert now.leader.wait() is PutMessageStatus.PUT_OK
    late, served = _Waiter(), _Waiter()
    late.end_offset = now.store.flushed_offset + 1
    now.service._is_led = True
    now.queue.extend([late, served])
    now.service._hand_on(led=True)
    assert (late.wake.acquire(False), late.leads, list(now.queue)) == (True, True, [served])
    now.service._hand_on(led=True)
    assert (served.wake.acquire(False), served.leads, now.service._is_led) == (True, False, False)


def test_who_is_given_the_lead_before_it_sleeps_waits_for_its_next_sync_again(scene: Callable[..., Scene]) -> None:
    there = scene()
    guard = HeldAfterGuard(there.service._guard)
    there.service._guard = guard  # type: ignore[assignment]
    begin, again = threading.Event(), threading.Event()

    class TwoPuts(Put):
        def run(self) -> None:
            assert begin.wait(60)
            super().run()
            assert self.outcome is PutMessageStatus.PUT_OK
            assert again.wait(60)
            super().run()

    twice = TwoPuts(there.store)
    guard.of = twice
    begin.set()
    assert guard.left.acquire(timeout=60)  # in the queue, and not asleep yet
    there.disk.may_end.release()
    assert there.leader.wait() is PutMessageStatus.PUT_OK  # and has given the lead away
    guard.may_go_on.release()
    assert there.disk.begun.acquire(timeout=60)
    there.disk.may_end.release()
    there.queue.wait_for(1)
    other = Put(there.store)
    assert there.disk.begun.acquire(timeout=60)
    again.set()
    there.queue.wait_for(1)
    there.finish()
    assert [other.wait(), twice.wait()] == [PutMessageStatus.PUT_OK] * 2
    assert not there.queue


def test_a_failed_sync_reaches_all_who_wait_for_it_and_nobody_before_it(tmp_path: Path) -> None:
    now = Scene(tmp_path / "store")
    puts = now.queue_up(8)
    now.disk.may_end.release()
    assert now.disk.begun.acquire(timeout=60)

    def fail(operation: Operation) -> None:
        if operation.kind == "sync" and "commitlog" in operation.path:
            raise OSError(5, "failed")

    now.disk.judge = fail
    now.finish()
    assert now.leader.wait() is PutMessageStatus.PUT_OK
    assert {type(put.wait()) for put in puts} == {StorePoisonedError}
    assert not now.queue
    assert type(Put(now.store).wait()) is StorePoisonedError
    now.disk.judge = no_objection
    with pytest.raises(StorePoisonedError):
        now.store.close()


def test_who_gives_up_leaves_the_others_served(scene: Callable[..., Scene]) -> None:
    now = scene()
    now.service._timeout_s = 0.01
    gone = now.queue_up(3)
    assert {put.wait() for put in gone} == {PutMessageStatus.FLUSH_DISK_TIMEOUT}
    now.service._timeout_s = 60
    puts = now.queue_up(3)
    now.finish()
    assert {put.wait() for put in puts} == {PutMessageStatus.PUT_OK}


class Interrupted:
    """A waiter's `wake`: a KeyboardInterrupt comes before the waiter is woken, or right after."""

    def __init__(self, *, after: bool) -> None:
        self._wake, self._after = threading.Lock(), after
        self._wake.acquire()
        self.release = self._wake.release

    def acquire(self, timeout: float) -> bool:
        if self._after:
            assert self._wake.acquire(timeout=60)
        raise KeyboardInterrupt


@pytest.mark.parametrize("after", [False, True])
def test_a_put_that_is_interrupted_wakes_the_next(scene: Callable[..., Scene], after: bool) -> None:
    now = scene()
    others_are_served = threading.Event()
    again: list[PutMessageStatus] = []

    def put_and_be_interrupted() -> None:
        waiter = now.service._of_thread.waiter = _Waiter()
        waiter.wake = Interrupted(after=after)  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            now.store.put_message(reput.Message("t", b"interrupted"))
        assert others_are_served.wait(60)
        again.append(now.store.put_message(reput.Message("t", b"again")).status)

    first = threading.Thread(target=put_and_be_interrupted, daemon=True)
    first.start()
    now.queue.wait_for(1)
    puts = now.queue_up(4)
    now.finish()
    assert {put.wait() for put in puts} == {PutMessageStatus.PUT_OK}
    others_are_served.set()
    first.join(60)
    assert again == [PutMessageStatus.PUT_OK]
    assert not now.queue


def test_a_close_lets_those_who_wait_be_served(scene: Callable[..., Scene]) -> None:
    now = scene()
    puts = now.queue_up(6)
    closing = threading.Thread(target=now.store.close)
    closing.start()
    now.queue.wait_for(1)  # the flush thread waits for all that is there
    now.finish()
    closing.join(60)
    assert not closing.is_alive()
    assert {put.wait() for put in (now.leader, *puts)} == {PutMessageStatus.PUT_OK}
    with pytest.raises(StoreError, match="closed"):
        now.store.put_message(reput.Message("t", b"late"))


def test_futures_of_a_store_whose_leader_is_a_put_are_done_too(scene: Callable[..., Scene]) -> None:
    now = scene()
    futures = [now.store.async_put_message(reput.Message("t", b"later")) for _ in range(10)]
    puts = now.queue_up(2)
    assert not any(future.done() for future in futures)
    now.finish()
    assert {future.result(timeout=60).status for future in futures} == {PutMessageStatus.PUT_OK}
    assert {put.wait() for put in puts} == {PutMessageStatus.PUT_OK}
