"""A clock that was ahead and is set back: what waits moves to slots that come in time, whatever fails meanwhile."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from reput import MessageStore
from reput.broker.disk_work import DiskWork
from reput.broker.timer import clock_set_back
from reput.broker.timer.clock_set_back import SetBack
from reput.broker.timer.open_slot import OpenSlot
from reput.broker.timer.timer_message import TimerMessage
from reput.errors import StoreError
from reput.formats.timer_log import Magic, TimerUnit
from reput.store.timer.timer_message_store import TimerMessageStore
from tests.support.faulty_files import (
    Crash,
    FaultyFiles,
    abandon,
    crash_at,
    fail_next,
    no_objection,
    wait_dispatched,
)
from tests.support.timers import BEGIN, PRECISION, bodies, enqueue_all, opened, put, small_wheel

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

WINDOW, STOOD = 40, 20
#: Slots after the time at which the timers go on: where each message waits, and where it is to; ROLL if it is earlier.
FAR = {b"far%d" % number: 100 for number in range(7)}
#: By the wheel of 256 slots it waits in the place of the slot where the others are rolled.
CLASH = {b"clash": 256 + WINDOW}
DUE = {b"late": 5, b"own": STOOD, b"stays": 30} | FAR | CLASH
EXPECTED = DUE | {b"own": STOOD - 1} | dict.fromkeys([*FAR, *CLASH], WINDOW - 1)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    small_wheel(monkeypatch)
    for bound in ("_MOST_COPIED", "_MOST_LOOKED_AT"):
        monkeypatch.setattr(clock_set_back, bound, 2)


def ms(slots: int) -> int:
    return BEGIN + slots * PRECISION


class Ahead(NamedTuple):
    """Timers that stand in a slot of a clock that was ahead."""

    store: MessageStore
    timers: TimerMessageStore
    files: FaultyFiles
    work: DiskWork
    looks: list[int]

    async def look(self, units: Sequence[TimerUnit]) -> list[TimerMessage | None]:
        self.looks.append(len(units))
        records = self.store.look_records([(unit.commit_log_offset, unit.size) for unit in units])
        assert records is not None
        return [None if record is None else TimerMessage.of_record(record) for record in records]

    def back(self) -> SetBack:
        slot = OpenSlot(ms(STOOD), self.timers.units(ms(STOOD)))
        return SetBack(self.timers, self.work, self.look, slot, BEGIN, WINDOW * PRECISION, PRECISION)

    async def go_back(self) -> None:
        """As the service does it."""
        back = self.back()
        await back.copy()
        self.timers.read_time_ms = BEGIN
        self.timers.begin_flush(BEGIN)()
        back.clear()
        self.timers.begin_flush(BEGIN)()

    def close(self) -> None:
        self.work.stop()
        self.timers.close()
        self.store.close()


def timers_ahead(path: Path) -> Ahead:
    files = FaultyFiles()
    store, timers = opened(path, files)
    put(store, ms(10), b"done")
    wait_dispatched(store, files)
    enqueue_all(store, timers, BEGIN)
    timers.read_time_ms = ms(STOOD)
    for body, due in DUE.items():
        put(store, ms(due), body)
    wait_dispatched(store, files)
    enqueue_all(store, timers, BEGIN)
    timers.begin_flush(BEGIN)()
    return Ahead(store, timers, files, DiskWork("test", 1, None), [])


def waiting(store: MessageStore, timers: TimerMessageStore) -> dict[bytes, int]:
    """Where each message waits, in slots; it waits in one alone."""
    found: dict[bytes, int] = {}
    for time_ms in timers.times_from(timers.read_time_ms):
        some = dict.fromkeys(bodies(store, timers, time_ms), (time_ms - BEGIN) // PRECISION)
        assert len(some) == timers.num(time_ms)
        assert not found.keys() & some.keys()
        found |= some
    return found


async def test_what_is_not_delivered_waits_in_slots_that_come_in_time_and_never_all_is_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead, enqueue, sizes = timers_ahead(tmp_path / "store"), TimerMessageStore.enqueue, list[int]()

    def counted(timers: TimerMessageStore, entries: object, write_time: int) -> None:
        sizes.append(len(entries.times))  # type: ignore[attr-defined]
        enqueue(timers, entries, write_time)  # type: ignore[arg-type]

    monkeypatch.setattr(TimerMessageStore, "enqueue", counted)
    await ahead.go_back()
    assert waiting(ahead.store, ahead.timers) == EXPECTED
    assert (max(sizes), max(ahead.looks)) == (2, 2)
    for body, slot in EXPECTED.items():
        units = ahead.timers.units(ms(slot))
        magics = {unit.magic for unit, one in zip(units, bodies(ahead.store, ahead.timers, ms(slot)), strict=True)
                  if one == body}  # fmt: skip
        assert magics == {Magic.DEFAULT | Magic.ROLL if slot < DUE[body] else Magic.DEFAULT}
    ahead.close()


@pytest.mark.parametrize("after", range(6))
async def test_after_an_error_it_goes_on_and_copies_nothing_twice(tmp_path: Path, after: int) -> None:
    ahead = timers_ahead(tmp_path / "store")
    back, failed = ahead.back(), 0
    ahead.files.judge = fail_next("write", errno.ENOSPC, part="timerlog", after=after)
    while True:
        try:
            await back.copy()
        except StoreError:
            failed += 1
        else:
            break
    assert failed == 1
    ahead.timers.read_time_ms = BEGIN
    back.clear()
    assert waiting(ahead.store, ahead.timers) == EXPECTED
    ahead.close()


async def test_a_kill_at_each_operation_loses_nothing_and_repeats_no_slot_that_was_over(tmp_path: Path) -> None:
    number, crashed = 0, True
    while crashed:
        path = tmp_path / str(number)
        crashed = await _killed(path, number)
        files = FaultyFiles()
        store, timers = opened(path, files)
        wait_dispatched(store, files)
        times, found = timers.times_from(timers.read_time_ms), set[bytes]()
        for time_ms in times:
            found |= set(bodies(store, timers, time_ms))
        assert found == DUE.keys(), number
        timers.close()
        store.close()
        number += 1
    assert number > 10


async def _killed(path: Path, number: int) -> bool:
    """Whether a kill came before a number of operations of the way back were done."""
    ahead = timers_ahead(path)
    ahead.files.judge = crash_at(len(ahead.files.operations) + number)
    try:
        await ahead.go_back()
    except Crash:
        ahead.files.judge = no_objection
        ahead.work.stop()
        abandon(ahead.store, ahead.files)
        ahead.files.abandon()
        return True
    ahead.files.judge = no_objection
    ahead.close()
    return False


async def test_what_is_cancelled_in_the_middle_is_lost_by_no_start(tmp_path: Path) -> None:
    ahead = timers_ahead(tmp_path / "store")
    copying = asyncio.create_task(ahead.back().copy())
    while not ahead.looks:
        await asyncio.sleep(0)
    copying.cancel()
    await asyncio.wait([copying])
    await ahead.work.run(int)
    ahead.timers.begin_flush(BEGIN)()
    ahead.close()
    files = FaultyFiles()
    store, timers = opened(tmp_path / "store", files)
    found = {body for time_ms in timers.times_from(timers.read_time_ms) for body in bodies(store, timers, time_ms)}
    assert found == DUE.keys()
    timers.close()
    store.close()
