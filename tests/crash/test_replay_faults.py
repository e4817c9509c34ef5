"""A process or a machine that ends at every operation of a replay: what comes after it puts each message once."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

import reput
from reput.config.message_store import FlushDiskType, MessageStoreConfig
from reput.files import DISK
from reput.log.sink_commits import read_sinks
from reput.store.recovery.sink_intent import write_sinks
from reput.store.sinks.replay import Replayed
from reput.store.sinks.replay import replay as run_replay
from tests.support.faulty_files import Crash, FaultyFiles, Judge, Operation, crash_at, no_objection
from tests.support.hand_clock import HandClock
from tests.support.hand_log import HandLog
from tests.support.invariants import SMALL, check_store, log_records
from tests.support.shares import Share, in_shares

CONFIG = MessageStoreConfig.from_mapping(SMALL, MessageStoreConfig(flush_disk_type=FlushDiskType.SYNC_FLUSH))
#: Batches of 15 messages: the log has one each 7 ms.
SPEED = 0.1


@pytest.fixture
def log(tmp_path: Path) -> HandLog:
    log = HandLog(tmp_path / "source", 4096)
    log.append(40)
    return log


def replay(log: HandLog, target: Path, files: FaultyFiles) -> Replayed:
    return run_replay(log.path, target, speed=SPEED, config=CONFIG, clock=HandClock(), files=files)


def live(log: HandLog, target: Path, judge: Judge) -> FaultyFiles:
    files = FaultyFiles(judge)
    with suppress(Crash):
        replay(log, target, files)
    files.abandon()
    return files


def bodies_in(target: Path) -> list[str]:
    return [body.decode() for body in reput.read_log(target, ["body"]).read_all()["body"].to_pylist()]


@in_shares(3)
def test_a_crash_or_a_power_cut_at_any_operation_and_each_message_comes_once(
    log: HandLog, tmp_path: Path, share: Share
) -> None:
    healthy = live(log, tmp_path / "healthy", no_objection)
    expected = list(log.bodies.values())
    assert bodies_in(tmp_path / "healthy") == expected
    for number in share.of(range(0, len(healthy.operations), 13)):
        path, without_power = tmp_path / f"crash-{number}", tmp_path / f"cut-{number}"
        live(log, path, crash_at(number)).cut_power(path, without_power)
        for left in (without_power, path):
            replay(log, left, FaultyFiles())
            check_store(left)
            assert bodies_in(left) == expected
            shutil.rmtree(left)


def test_a_batch_that_cannot_be_taken_back_is_completed(log: HandLog, tmp_path: Path) -> None:
    target, writes = tmp_path / "target", []

    def judge(operation: Operation) -> None:
        if operation.kind == "write" and "commitlog" in operation.path:
            writes.append(operation)
            if len(writes) > 4:
                raise Crash

    live(log, target, judge)
    begun = len(log_records(target))
    assert begun % 15, "the kill came in the middle of a batch"
    # Another store program opens it, which knows nothing of intents, and appends a message.
    sinks = read_sinks(DISK, str(target))
    assert sinks.intent is not None
    write_sinks(DISK, str(target), replace(sinks, intent=None))
    with reput.MessageStore.open(target, **SMALL) as store:
        store.put_message(reput.Message("orders", b"a broker's"))
    write_sinks(DISK, str(target), sinks)
    (target / "lock").write_bytes(b"lock")
    replay(log, target, FaultyFiles())
    expected = list(log.bodies.values())
    assert bodies_in(target) == [*expected[:begun], "a broker's", *expected[begun:]]
    check_store(target)
