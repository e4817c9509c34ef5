"""Dispatch by tasks: whatever operation a dispatcher or a power cut ends at, the next one leaves what is right."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import reput
from reput.config.message_store import MessageStoreConfig
from reput.errors import ReputError
from reput.files import DISK
from reput.files.attempts import end_attempts
from reput.jobs.dispatch import plan
from reput.jobs.runner import LocalRunner
from reput.log.directory import StoreDirectory
from reput.log.tail import LogTail
from reput.spark.dispatch.dispatcher import BatchDispatcher, Target
from reput.store.dispatch.log_dispatch import LogDispatch
from tests.support.dispatched import derived
from tests.support.faulty_files import Crash, FaultyFiles, crash_at, disk_is, no_objection
from tests.support.further_units import BOTH
from tests.support.shares import Share, in_shares

OPTIONS = {name: value for name, value in BOTH.items() if name != "bit_maps"}
CONFIG = MessageStoreConfig.from_mapping(OPTIONS)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "LEAST_BYTES", 1500)
    monkeypatch.setattr(plan, "MOST_BYTES", 2 * 4096)
    monkeypatch.setattr(plan, "SPLIT_BYTES", 3000)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with reput.MessageStore.open(path, **OPTIONS) as opened:
        for number in range(70):
            properties = {"INNER_MULTI_DISPATCH": "%LMQ%a"} if number % 5 == 0 else {}
            body, keys = bytes([number]) * (40 + number * 37 % 200), [f"k{number}"]
            message = reput.Message(f"topic-{number % 2}", body, tags="t", keys=keys, properties=properties)
            opened.put_message(message, number % 3)
    return path


@contextmanager
def dispatcher(store: Path, output: Path) -> Iterator[BatchDispatcher]:
    """BatchDispatcher as a start makes it; its work is outside of the output, as a power cut leaves nothing of it."""
    directory, work = StoreDirectory(store), str(output) + ".work"
    end_attempts(f"{work}/attempts", DISK)
    log, target = LogDispatch(directory, str(output), CONFIG), Target(str(output), CONFIG, work)
    one = BatchDispatcher(log, LogTail(directory), target, with_tasks=True, scans_ahead=True)
    try:
        yield one
    finally:
        one.close()


def drain(store: Path, output: Path) -> None:
    with dispatcher(store, output) as one:
        while one.run_once(LocalRunner(1)) is not None:
            pass


def run(store: Path, output: Path, files: FaultyFiles) -> None:
    with suppress(Crash, ReputError), disk_is(files):
        drain(store, output)
    files.abandon()


@in_shares(3)
def test_a_crash_or_a_power_cut_at_any_operation_leaves_each_record_dispatched_once(
    store: Path, tmp_path: Path, share: Share
) -> None:
    expected, healthy = derived(store), FaultyFiles(no_objection)
    run(store, tmp_path / "healthy", healthy)
    assert derived(tmp_path / "healthy") == expected
    operations = healthy.operations
    assert sum("attempts" in operation.path for operation in operations) > 10
    for number in share.of(range(0, len(operations), 5)):
        output = tmp_path / f"{number}" / "output"
        output.parent.mkdir()
        files = FaultyFiles(crash_at(number))
        run(store, output, files)
        if number % 2 and output.exists():
            files.cut_power(output, tmp_path / f"{number}" / "cut", random.Random(number))
            output = tmp_path / f"{number}" / "cut"
        drain(store, output)
        assert derived(output) == expected, f"died at {number}: {operations[number]}"
        shutil.rmtree(tmp_path / f"{number}")
