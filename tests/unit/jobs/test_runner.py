"""LocalRunner: order, progress, and what an error does to the other tasks."""

from __future__ import annotations

import threading

import pytest

from reput.errors import CorruptRecordError
from reput.jobs.runner import LocalRunner


def test_results_keep_the_order_of_the_items_though_the_first_finishes_last() -> None:
    others_done = threading.Semaphore(0)

    def task(item: int) -> int:
        if item == 0:
            assert all(others_done.acquire(timeout=60) for _ in range(3))
        else:
            others_done.release()
        return item * item

    assert LocalRunner(threads=2).run(task, range(4), description="squares") == [0, 1, 4, 9]


@pytest.mark.parametrize("count", [0, 1, 5])
def test_progress_starts_at_zero_and_counts_every_task(count: int) -> None:
    seen: list[tuple[int, int, str]] = []
    LocalRunner(threads=2).run(
        str, range(count), description="text", progress=lambda done, total, text: seen.append((done, total, text))
    )
    assert seen == [(done, count, "text") for done in range(count + 1)]


def test_the_first_error_is_raised_and_the_tasks_that_have_not_started_never_do() -> None:
    started: list[int] = []

    def task(item: int) -> None:
        started.append(item)
        if item == 0:
            raise CorruptRecordError("commitlog/0", 91, "magic code is 0")
        threading.Event().wait(0.02)  # a thousand of these would take 20 s

    with pytest.raises(CorruptRecordError, match="damaged at offset 91"):
        LocalRunner(threads=1).run(task, range(1000), description="fails")
    assert len(started) < 1000


def test_tasks_run_in_as_many_threads_as_asked_for() -> None:
    meeting = threading.Barrier(3, timeout=60)  # broken, and so an error, if fewer than three tasks run at once
    assert len(LocalRunner(threads=3).run(lambda item: meeting.wait(), range(3), description="meet")) == 3


def test_by_default_there_is_a_thread_for_each_processor() -> None:
    assert LocalRunner().threads >= 1
