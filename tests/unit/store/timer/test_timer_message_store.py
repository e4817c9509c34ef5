"""Timer log, wheel and checkpoint on the disk: what a start finds of them."""

from __future__ import annotations

import errno
import json
import random
from pathlib import Path

import pytest

from reput import MessageStore
from reput.errors import StoreFormatError, StoreFullError, StoreSyncError
from reput.formats.paths import TIMER_CHECK, TIMER_LOG, TIMER_WHEEL, offset_to_file_name
from reput.formats.timer_checkpoint import decode_timer_checkpoint
from reput.formats.timer_log import UNIT_SIZE, decode_timer_unit, encode_timer_unit
from reput.formats.timer_wheel import WHEEL_SIZE
from reput.store.timer.timer_message_store import TimerMessageStore
from reput.store.timer.timer_wheel import TimerWheel
from tests.support.faulty_files import FaultyFiles, fail_next, no_objection, wait_dispatched
from tests.support.timers import BEGIN, PRECISION, bodies, enqueue_all, opened, put, small_wheel

GOLDEN = json.loads((Path(__file__).parents[3] / "golden" / "timers-5.3.3.json").read_text())
SOON, LATER = BEGIN + 5 * PRECISION, BEGIN + 90 * PRECISION


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    small_wheel(monkeypatch)
    return tmp_path / "store"


def filled_store(path: Path, files: FaultyFiles, count: int = 40) -> tuple[MessageStore, TimerMessageStore]:
    """A store with messages that wait for two slots in turn."""
    store, timers = opened(path, files)
    for number in range(count):
        put(store, (SOON, LATER)[number % 2], b"%d" % number)
    wait_dispatched(store, files)
    enqueue_all(store, timers, BEGIN)
    return store, timers


def check(store: MessageStore, timers: TimerMessageStore, count: int = 40) -> None:
    for slot, first in ((SOON, 0), (LATER, 1)):
        assert bodies(store, timers, slot) == [b"%d" % number for number in range(first, count, 2)]
        assert timers.num(slot) == count // 2
    assert timers.total == count
    assert timers.next_time(BEGIN, LATER) == SOON
    assert timers.next_time(SOON + 1000, LATER + 1) == LATER
    assert timers.next_time(SOON + 1000, LATER) is None
    slots = ((SOON, SOON + PRECISION), (SOON + PRECISION, LATER), (SOON, LATER), (BEGIN, LATER + PRECISION))
    assert [timers.num_between(*one) for one in slots] == [count // 2, 0, count // 2, count]


def test_messages_wait_in_the_slots_of_their_times_across_files(path: Path) -> None:
    store, timers = filled_store(path, FaultyFiles())
    check(store, timers)
    assert len(list((path / TIMER_LOG).iterdir())) == 3
    store.close()


def test_messages_are_counted_across_the_end_of_the_wheel(path: Path) -> None:
    wheel = TimerWheel(FaultyFiles(), str(path), PRECISION, BEGIN)
    for slot, num in ((250, 3), (260, 4), (300, 5)):
        wheel.put(BEGIN + slot * PRECISION, 0, 0, num)
    ranges = ((240, 270), (250, 260), (251, 301), (261, 300))
    assert [wheel.num_between(BEGIN + a * PRECISION, BEGIN + b * PRECISION) for a, b in ranges] == [7, 3, 9, 0]


@pytest.mark.parametrize("flushed", [0, 10, 40])
def test_a_start_finds_each_message_once_whenever_the_last_flush_was(path: Path, flushed: int) -> None:
    files = FaultyFiles()
    store, timers = opened(path, files)
    for number in range(40):
        put(store, (SOON, LATER)[number % 2], b"%d" % number)
    wait_dispatched(store, files)
    enqueue_all(store, timers, BEGIN, flushed)
    timers.begin_flush(BEGIN)()
    enqueue_all(store, timers, BEGIN)
    timers.close()
    store.close()
    store, timers = opened(path, FaultyFiles())
    assert timers.queue_offset == flushed
    enqueue_all(store, timers, BEGIN)
    check(store, timers)
    store.close()


@pytest.mark.parametrize("left", [None, b""])
def test_a_start_without_a_wheel_makes_one_from_the_log(path: Path, left: bytes | None) -> None:
    store, timers = filled_store(path, FaultyFiles())
    timers.begin_flush(BEGIN)()
    timers.close()
    store.close()
    (path / TIMER_WHEEL).unlink()
    if left is not None:
        (path / TIMER_WHEEL).write_bytes(left)
    store, timers = opened(path, FaultyFiles())
    check(store, timers)
    store.close()


def test_a_power_cut_while_a_wheel_is_made_again_leaves_no_part_of_it(path: Path) -> None:
    files = FaultyFiles()
    store, timers = filled_store(path, files)
    timers.begin_flush(BEGIN)()
    timers.close()
    store.close()
    (path / TIMER_WHEEL).unlink()
    store, timers = opened(path, files)
    files.judge = fail_next("sync", part=TIMER_WHEEL)
    with pytest.raises(StoreSyncError):
        timers.begin_flush(BEGIN)()
    files.cut_power(path, path.parent / "cut", random.Random(1))
    store.close()
    assert not (path.parent / "cut" / TIMER_WHEEL).exists()
    store, timers = opened(path.parent / "cut", FaultyFiles())
    check(store, timers)
    store.close()


def test_a_wheel_that_leads_beyond_the_log_is_led_back(path: Path) -> None:
    store, timers = filled_store(path, FaultyFiles())
    timers.begin_flush(BEGIN)()
    timers.close()
    store.close()
    folder = path / TIMER_LOG
    last = folder / offset_to_file_name(2 * 840)
    last.write_bytes(bytes(840))  # ten units
    data = (path / TIMER_CHECK).read_bytes()
    (path / TIMER_CHECK).write_bytes(data[:16] + (30).to_bytes(8) + data[24:])
    store, timers = opened(path, FaultyFiles())
    assert bodies(store, timers, SOON) == [b"%d" % number for number in range(0, 30, 2)]
    enqueue_all(store, timers, BEGIN)
    assert bodies(store, timers, SOON) == [b"%d" % number for number in range(0, 40, 2)]
    assert bodies(store, timers, LATER) == [b"%d" % number for number in range(1, 40, 2)]
    store.close()


def test_units_of_messages_that_the_log_has_lost_are_cut(path: Path) -> None:
    store, timers = filled_store(path, FaultyFiles(), 4)
    timers.begin_flush(BEGIN)()
    timers.close()
    end = store.max_commit_log_offset
    store.close()
    file = path / TIMER_LOG / offset_to_file_name(0)
    data = bytearray(file.read_bytes())
    lost = decode_timer_unit(data, 3 * UNIT_SIZE)._replace(commit_log_offset=end)
    data[3 * UNIT_SIZE : 4 * UNIT_SIZE] = encode_timer_unit(lost)
    file.write_bytes(data)
    store, timers = opened(path, FaultyFiles())
    assert bodies(store, timers, SOON) == [b"0", b"2"]
    assert bodies(store, timers, LATER) == [b"1"]
    assert not any(file.read_bytes()[3 * UNIT_SIZE :])
    store.close()


def test_a_full_disk_lets_none_of_them_wait_and_the_next_try_all(path: Path) -> None:
    files = FaultyFiles()
    store, timers = filled_store(path, files, 14)
    for number in range(14, 18):
        put(store, (SOON, LATER)[number % 2], b"%d" % number)
    wait_dispatched(store, files)
    for kind in ("write", "create"):
        files.judge = fail_next(kind, errno.ENOSPC, part=TIMER_LOG)
        with pytest.raises(StoreFullError):
            enqueue_all(store, timers, BEGIN)
        assert timers.queue_offset == 14
        check(store, timers, 14)
        files.judge = no_objection
    enqueue_all(store, timers, BEGIN)
    check(store, timers, 18)
    store.close()


@pytest.mark.parametrize("part", [TIMER_LOG, TIMER_WHEEL, TIMER_CHECK])
def test_a_flush_after_a_failed_one_writes_all_again(path: Path, part: str) -> None:
    files = FaultyFiles()
    store, timers = filled_store(path, files)
    if part == TIMER_CHECK:  # the first one is made as a whole
        timers.begin_flush(BEGIN)()
        put(store, SOON, b"40")
        put(store, LATER, b"41")
        wait_dispatched(store, files)
        enqueue_all(store, timers, BEGIN)
    before = timers.checkpoint
    files.judge = fail_next("sync", part=part)
    with pytest.raises(StoreSyncError):
        timers.begin_flush(BEGIN)()
    assert timers.checkpoint == before
    files.judge = no_objection
    timers.begin_flush(BEGIN)()
    files.cut_power(path, path.parent / "cut")
    timers.close()
    store.close()
    store, timers = opened(path.parent / "cut", FaultyFiles())
    check(store, timers, 42 if part == TIMER_CHECK else 40)
    store.close()


def test_files_whose_messages_have_left_the_log_go(path: Path) -> None:
    store, timers = filled_store(path, FaultyFiles())
    units = [timers._log.unit(15 * number * UNIT_SIZE + 60 * number) for number in range(3)]
    timers.delete_before(units[1].commit_log_offset)
    assert sorted(one.name for one in (path / TIMER_LOG).iterdir()) == [offset_to_file_name(n * 840) for n in (1, 2)]
    assert bodies(store, timers, SOON) == [b"%d" % number for number in range(16, 40, 2)]
    timers.begin_flush(BEGIN)()
    timers.close()
    store.close()
    store, timers = opened(path, FaultyFiles())
    assert bodies(store, timers, LATER) == [b"%d" % number for number in range(15, 40, 2)]
    store.close()


@pytest.mark.parametrize("name", [TIMER_WHEEL, f"{TIMER_LOG}/{offset_to_file_name(0)}"])
def test_files_of_other_sizes_are_refused_and_nothing_changes(path: Path, name: str) -> None:
    store, timers = filled_store(path, FaultyFiles(), 4)
    timers.begin_flush(BEGIN)()
    (path / name).write_bytes(bytes(4096 + 32))
    with pytest.raises(StoreFormatError, match=str(4096 + 32)):
        TimerMessageStore(store, FaultyFiles(), BEGIN)
    assert (path / name).read_bytes() == bytes(4096 + 32)
    store.close()


def test_slaves_are_told_of_late_messages_once_their_slot_is_over(path: Path) -> None:
    files = FaultyFiles()
    store, timers = filled_store(path, files)
    store_end = timers.queue_offset

    def told() -> int:
        timers.begin_flush(BEGIN)()
        return timers.checkpoint.master_timer_queue_offset

    timers.read_time_ms = SOON
    assert told() == store_end
    for late, first in ((30, 30), (20, 20), (35, 20)):  # in the slot of the read time
        timers.comes_late(late)
        assert told() == first
    timers.close()
    timers = TimerMessageStore(store, files, BEGIN)
    assert (timers.queue_offset, told()) == (store_end, 20)  # the slot is not over
    timers.comes_late(38)
    assert told() == 20
    timers.read_time_ms += PRECISION
    assert told() == store_end
    timers.comes_late(39)
    assert told() == 39
    timers.close()
    store.close()


def test_what_a_broker_of_rocketmq_left_is_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "store"
    files = {
        f"{TIMER_LOG}/{offset_to_file_name(0)}": bytes.fromhex(GOLDEN["timerLogHex"]).ljust(10_400, b"\0"),
        f"commitlog/{offset_to_file_name(0)}": bytes.fromhex(GOLDEN["commitLogHex"]).ljust(1 << 20, b"\0"),
        TIMER_CHECK: bytes.fromhex(GOLDEN["timerCheckHex"]).ljust(4096, b"\0"),
    }
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    with (path / TIMER_WHEEL).open("wb") as wheel:
        wheel.truncate(WHEEL_SIZE)
        for number, text in GOLDEN["slots"].items():
            wheel.seek(32 * int(number))
            wheel.write(bytes.fromhex(text))
    now_ms = 1_795_578_960_000
    with MessageStore.open(
        path, mapped_file_size_commit_log=1 << 20, mapped_file_size_timer_log=10_400, listen_port=0
    ) as store:
        timers = TimerMessageStore(store, FaultyFiles(), now_ms)
        # Slots after the last record's time are looked at again: nothing of them was delivered.
        last_ms = 1_795_578_960_000
        assert timers.checkpoint == decode_timer_checkpoint(files[TIMER_CHECK])._replace(last_read_time_ms=last_ms)
        assert (timers.queue_offset, timers.read_time_ms) == (9, last_ms)
        assert bodies(store, timers, 1_795_579_037_000) == [b"body 0", b"body 1", b"body 8"]
        assert timers.next_time(now_ms, now_ms + 1_000_000) == 1_795_579_037_000
        put(store, 1_795_579_037_000)
        store.wait_dispatched()
        enqueue_all(store, timers, now_ms)
        unit = timers.units(1_795_579_037_000)[-1]
        assert (unit.prev_pos, unit.write_time, unit.delay_ms) == (416, now_ms, 77_000)
        timers.close()
