"""What points into the log goes with it: after a cut nothing leads beyond its end."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from reput import Broker, Message, MessageStore
from reput.files import DISK
from reput.formats.consume_queue import SCHEDULE_TOPIC
from reput.formats.metadata import (
    FILE_NAMES,
    ConsumerOffsets,
    ConsumerOrderInfos,
    DelayOffsets,
    LmqConsumerOffsets,
    OrderInfo,
    Topics,
)
from reput.formats.paths import CONFIG, TIMER_CHECK
from reput.formats.pop_messages import REVIVE_GROUP
from reput.formats.timer_checkpoint import TimerCheckpoint, decode_timer_checkpoint, encode_timer_checkpoint
from reput.log.metadata import BACKUP_SUFFIX, read_metadata
from reput.remoting.codes import RequestCode
from reput.store.config_files import persist_metadata
from reput.store.recovery.log_state import JUDGED_BEFORE, NO_POINTERS, POINTERS
from tests.support.asking import ask, call, until
from tests.support.broker import SMALL as SMALL_BROKER
from tests.support.broker import make_topic, pull_command, send_command
from tests.support.faulty_files import FaultyFiles, wait_dispatched
from tests.support.invariants import SMALL
from tests.support.pop import pop_command
from tests.support.timers import BEGIN, bodies, enqueue_all, opened, put, small_wheel

ROWS = 8
LATER_MS = 3_600_000
#: After the end of the log.
BEGIN_OFFSET = 1 << 20
SLOT = BEGIN + 90_000


def cut(path: Path, offset: int) -> None:
    """Take all of a small log from an offset on, as a disk that loses its end, or `rejoin`."""
    for file in (path / "commitlog").iterdir():
        data = file.read_bytes()
        kept = max(offset - int(file.name), 0)
        file.write_bytes(data[:kept].ljust(len(data), b"\0"))
    (path / "abort").touch()


def put_rows(path: Path) -> list[int]:
    """Put messages to three queues in turn, then one an hour later; returns the log's ends, from 0 on."""
    with MessageStore.open(path, dispatch="caller", **SMALL) as store:
        ends = [0]
        for number in range(ROWS):
            store.put_message(Message("orders", b"%d" % number))
            store.put_message(Message(SCHEDULE_TOPIC, b"x", properties={"DELAY": "3"}), queue_id=2)
            store.put_message(Message("revive", b"x"))
            ends.append(store.max_commit_log_offset)
        store.loop_writer().put_time_forward(int(time.time() * 1000) + LATER_MS)
        store.put_message(Message("tick", b"x"))
        return [*ends, store.max_commit_log_offset]


def write_state(path: Path) -> None:
    """State of a broker that has done all that there is."""
    group = {0: ROWS}
    table = {"orders@g": group, f"revive@{REVIVE_GROUP}": {0: ROWS - 1}, "gone@g": {0: 5}}
    persist_metadata(str(path), ConsumerOffsets(table), DISK)
    persist_metadata(str(path), LmqConsumerOffsets(table, {"orders@%LMQ%g": ROWS}), DISK)
    persist_metadata(str(path), DelayOffsets({3: ROWS}), DISK)
    popped = OrderInfo(o=[ROWS - 3, 1, 2])
    persist_metadata(str(path), ConsumerOrderInfos({"orders@g": {0: popped}}), DISK)
    persist_metadata(str(path), Topics(begin_offset_table={"gone": BEGIN_OFFSET, "new": 1}), DISK)


def state(path: Path, kind: type) -> Any:
    return read_metadata(str(path), kind, DISK)


@pytest.mark.parametrize("left", range(ROWS + 2))
def test_no_offset_is_beyond_the_end_of_a_log_that_was_cut(tmp_path: Path, left: int) -> None:
    path = tmp_path / "store"
    ends = put_rows(path)
    write_state(path)
    cut(path, ends[left])
    for _ in range(2):  # the second start finds all as it is to be
        with MessageStore.open(path, **SMALL):
            end = min(left, ROWS)
            offsets, light = state(path, ConsumerOffsets).offset_table, state(path, LmqConsumerOffsets)
            assert offsets == {"orders@g": {0: end}, f"revive@{REVIVE_GROUP}": {0: end - 1}, "gone@g": {0: 0}}
            assert (light.offset_table, light.lmq_offset_table) == (offsets, {"orders@%LMQ%g": end})
            # What was due in ten seconds was delivered only if the log knows of that time.
            assert state(path, DelayOffsets).offset_table == {3: ROWS if left > ROWS else 0}
            assert bool(state(path, ConsumerOrderInfos).table["orders@g"]) is (left >= ROWS)
            assert state(path, Topics).begin_offset_table == {"gone": ends[left], "new": min(1, ends[left])}
        (path / "abort").touch()


def test_a_backup_is_lowered_too_and_a_damaged_file_left_to_its_reader(tmp_path: Path) -> None:
    path = tmp_path / "store"
    ends = put_rows(path)
    write_state(path)
    damaged = path / CONFIG / FILE_NAMES[DelayOffsets]
    damaged.write_bytes(b"{")
    cut(path, ends[3])
    with MessageStore.open(path, **SMALL):
        assert damaged.read_bytes() == b"{"
    (path / CONFIG / FILE_NAMES[ConsumerOffsets]).write_bytes(b"{")
    assert state(path, ConsumerOffsets).offset_table["orders@g"] == {0: 3}


@pytest.mark.parametrize("flushed", [0, 5, 20])
@pytest.mark.parametrize("left", [0, 5, 13, 20])
def test_each_message_with_a_time_has_a_slot_after_a_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int, flushed: int
) -> None:
    small_wheel(monkeypatch)
    path, files = tmp_path / "store", FaultyFiles()
    store, timers = opened(path, files)
    ends = [0]
    for number in range(20):
        put(store, SLOT, b"%d" % number)
        ends.append(store.max_commit_log_offset)
    wait_dispatched(store, files)
    enqueue_all(store, timers, BEGIN, flushed)
    timers.begin_flush(BEGIN)()
    enqueue_all(store, timers, BEGIN)
    timers.close()
    store.close()
    cut(path, ends[left])
    store, timers = opened(path, files)  # what was lowered before the log grows stays so
    timers.close()
    for number in range(100, 112):
        put(store, SLOT, b"%d" % number)
    wait_dispatched(store, files)
    store.close()
    store, timers = opened(path, files)
    enqueue_all(store, timers, BEGIN)
    assert bodies(store, timers, SLOT) == [b"%d" % number for number in (*range(left), *range(100, 112))]
    timers.close()
    store.close()


def test_what_was_due_after_the_logs_end_counts_as_not_delivered(tmp_path: Path) -> None:
    path, check = tmp_path / "store", tmp_path / "store" / TIMER_CHECK
    ends = put_rows(path)
    with MessageStore.open(path, read_only=True) as store:
        last = store.get_message("orders", 0, 2, 1).messages()[0].store_timestamp
    checkpoint = TimerCheckpoint(last_read_time_ms=last + 60_000)
    check.write_bytes(encode_timer_checkpoint(checkpoint).ljust(4096, b"\0"))
    cut(path, ends[-1])
    MessageStore.open(path, **SMALL).close()
    assert decode_timer_checkpoint(check.read_bytes()) == checkpoint  # the log goes on an hour later
    cut(path, ends[3])
    MessageStore.open(path, **SMALL).close()
    read_ms = decode_timer_checkpoint(check.read_bytes()).last_read_time_ms
    assert last - 1000 < read_ms <= last + 1000


def named(path: Path) -> set[str]:
    """What a store directory has, without the files' backups, and what `config` has."""
    found = [one for one in path.iterdir() if one.name != CONFIG] + [*(path / CONFIG).iterdir()]
    return {str(one.relative_to(path)).removesuffix(BACKUP_SUFFIX) for one in found}


def test_somebody_has_said_of_each_file_whether_it_points_into_the_log(tmp_path: Path) -> None:
    """A file that fails here is new: if it points into the log, `POINTERS` needs what lowers it."""
    known = POINTERS.keys() | JUDGED_BEFORE | NO_POINTERS
    assert {f"{CONFIG}/{name}" for name in FILE_NAMES.values()} <= known
    keys = {**SMALL_BROKER, "bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1"}
    with Broker.start(tmp_path, **keys) as broker:
        make_topic(broker.address, "orders", 1)
        for properties in ({}, {"DELAY": 1}, {"TIMER_DELAY_MS": 10}):
            assert (
                call(
                    broker.address,
                    send_command("orders", properties={name: str(value) for name, value in properties.items()}),
                ).code
                == 0
            )
        call(broker.address, pull_command("orders", group="g", commit=1))
        call(broker.address, pop_command("orders", group="popping"))
        call(broker.address, pop_command("orders", group="popping-in-order", order=True))
        ask(broker.address, RequestCode.UPDATE_BROKER_CONFIG, b"autoCreateTopicEnable=true")
        until(lambda: broker.in_loop(lambda state: state.store.max_offset("orders", 0)) == 3)
    found = named(tmp_path)
    assert POINTERS.keys() - {f"{CONFIG}/{FILE_NAMES[LmqConsumerOffsets]}"} <= found
    assert found <= known
