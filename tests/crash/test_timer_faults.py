"""Messages with a time, and a kill or a power cut at every operation: none is lost, only the last come twice."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from reput import Message, MessageStore
from reput.errors import StoreError
from reput.files import FileLayer
from reput.formats.timer_log import TIMER_TOPIC
from reput.store.timer.timer_message_store import TimerMessageStore
from tests.support.faulty_files import Crash, FaultyFiles, Judge, abandon, crash_at, no_objection, wait_dispatched
from tests.support.shares import Share, in_shares
from tests.support.timers import BEGIN, PRECISION, enqueue_all, has_time, opened, put, small_wheel

# Threads that die of a crash are what these tests want.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

#: More messages than a timer log file has room for.
ROUNDS, A_ROUND = 4, 6


@pytest.fixture(autouse=True)
def wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    small_wheel(monkeypatch)


@dataclass
class Life:
    """What a broker's life has promised.

    Attributes:
        slots: The slot (ms) of each message that was acknowledged, by its body.
        over_ms: Slots before this time were delivered when the last flush began that was done.
    """

    slots: dict[bytes, int] = field(default_factory=dict)
    over_ms: int = 0


def deliver(store: MessageStore, timers: TimerMessageStore, now_ms: int) -> None:
    """Deliver the slots that are over now, as the broker does: a slot counts once its messages are safe."""
    while (slot := timers.next_time(timers.read_time_ms, now_ms)) is not None and slot + PRECISION <= now_ms:
        for unit in timers.units(slot):
            message = store.look_message_by_offset(unit.commit_log_offset)
            assert message is not None
            store.put_message(Message("orders", message.body))
        timers.read_time_ms = slot + PRECISION


def flush(timers: TimerMessageStore, life: Life, now_ms: int) -> None:
    over_ms = timers.read_time_ms
    timers.begin_flush(now_ms)()
    life.over_ms = over_ms


def live(path: Path, judge: Judge) -> tuple[Life, FaultyFiles]:
    """A life of some rounds: messages come, get their units, and are delivered; the state is flushed in between."""
    life, files = Life(), FaultyFiles(judge)
    store = None
    try:
        store, timers = opened(path, files)
        for number in range(ROUNDS):
            now_ms = BEGIN + number * 3 * PRECISION
            for slot in range(A_ROUND):
                body, time = b"%d.%d" % (number, slot), now_ms + (1 + slot % 4) * PRECISION
                put(store, time, body)
                life.slots[body] = time
            wait_dispatched(store, files)
            enqueue_all(store, timers, now_ms, A_ROUND * number + 4)
            if number % 2:
                flush(timers, life, now_ms)
            enqueue_all(store, timers, now_ms)
            deliver(store, timers, now_ms + 3 * PRECISION)
            flush(timers, life, now_ms + 3 * PRECISION)
        timers.close()
        store.close()
    except (Crash, StoreError):
        if store is not None:
            abandon(store, files)
        files.abandon()
    return life, files


def check_next_life(life: Life, path: Path, files: FileLayer | None = None) -> None:
    """All that was acknowledged comes; twice only what is not known to be over. No message has two units."""
    disk = FaultyFiles()
    now_ms = BEGIN + 100 * PRECISION
    store, timers = opened(path, disk)
    wait_dispatched(store, disk)
    enqueue_all(store, timers, now_ms)
    units = Counter(unit["OFFSETPY"] for _, some in timers._log.scan(0, store.max_commit_log_offset) for unit in some)
    assert all(count == 1 for count in units.values())
    queue_end, with_time, offset = store.max_offset(TIMER_TOPIC, 0), 0, 0
    while offset < queue_end:
        messages = store.get_message(TIMER_TOPIC, 0, offset).messages()
        with_time += sum(map(has_time, messages))
        offset = messages[-1].queue_offset + 1
    assert len(units) == with_time
    deliver(store, timers, now_ms)
    flush(timers, Life(), now_ms)
    wait_dispatched(store, disk)
    came: Counter[bytes] = Counter()
    while some := store.get_message("orders", 0, came.total()).messages():
        came.update(one.body for one in some)
    assert came.keys() >= life.slots.keys()
    twice = {body for body, count in came.items() if count > 1}
    assert all(life.slots.get(body, now_ms) >= life.over_ms for body in twice), (twice, life.over_ms)
    assert max(came.values(), default=0) <= 2
    timers.close()
    store.close()


def count_operations(path: Path) -> int:
    life, files = live(path, no_objection)
    assert len(life.slots) == ROUNDS * A_ROUND
    check_next_life(life, path)
    return len(files.operations)


@in_shares(4)
def test_a_kill_or_a_power_cut_at_any_operation_loses_no_message_with_a_time(tmp_path: Path, share: Share) -> None:
    for number in share.of(range(count_operations(tmp_path / "healthy"))):
        path = tmp_path / f"crash-{number}"
        life, files = live(path, crash_at(number))
        for cut, chance in enumerate((None, random.Random(number))):
            left = tmp_path / f"cut-{number}-{cut}"
            if path.exists():
                files.cut_power(path, left, chance)
                check_next_life(life, left)
        check_next_life(life, path)
