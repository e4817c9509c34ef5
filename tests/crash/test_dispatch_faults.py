"""Dispatch by another process: whatever ends it, and whatever happens to the log, the files equal live dispatch's."""

from __future__ import annotations

import errno
import random
import shutil
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

import reput
from reput.config.message_store import MessageStoreConfig
from reput.errors import DataLossError, StoreError, StoreFullError
from reput.log.directory import StoreDirectory
from reput.log.dispatch_marks import read_marks
from reput.store.dispatch.log_dispatch import LogDispatch
from tests.support.dispatched import derived, put
from tests.support.faulty_files import Crash, FaultyFiles, Judge, crash_at, fail_next, no_objection
from tests.support.further_units import BOTH, bit_maps
from tests.support.shares import Share, in_shares
from tests.support.small_rebuild import Put, write_log

OPTIONS = {name: value for name, value in BOTH.items() if name != "bit_maps"}
CONFIG = MessageStoreConfig.from_mapping(OPTIONS)
#: So small that each batch ends with a log file.
BATCH_BYTES = 1


def dispatch(store: Path, output: Path, files: FaultyFiles | None = None) -> LogDispatch:
    return LogDispatch(StoreDirectory(store), str(output), CONFIG, files=files or FaultyFiles(), bit_maps=bit_maps)


def drain(dispatcher: LogDispatch) -> int:
    """Dispatch what there is; returns the number of batches."""
    batches = 0
    while dispatcher.run_once(BATCH_BYTES) is not None:
        batches += 1
    dispatcher.close()
    return batches


@pytest.fixture
def store(tmp_path: Path) -> Path:
    put(tmp_path / "store", 0, 40)
    return tmp_path / "store"


def run_until(store: Path, output: Path, number: int) -> FaultyFiles:
    """A dispatcher that dies instead of its operation of this number."""
    files = FaultyFiles(crash_at(number))
    with suppress(Crash):
        drain(dispatch(store, output, files))
    files.abandon()
    return files


@in_shares(3)
def test_a_crash_or_a_power_cut_at_any_operation_leaves_each_record_dispatched_once(
    store: Path, tmp_path: Path, share: Share
) -> None:
    expected = derived(store)
    healthy = FaultyFiles()
    assert drain(dispatch(store, tmp_path / "healthy", healthy)) > 2
    assert derived(tmp_path / "healthy") == expected
    count = len(healthy.operations)
    assert count > 100
    for number in share.of(range(0, count, 3)):
        output = tmp_path / f"{number}" / "output"
        output.parent.mkdir()
        files = run_until(store, output, number)
        if number % 2:
            files.cut_power(output, tmp_path / f"{number}" / "cut", random.Random(number))
            output = tmp_path / f"{number}" / "cut"
        drain(dispatch(store, output))
        assert derived(output) == expected, f"died at {number}: {healthy.operations[number]}"
        shutil.rmtree(output.parent)


def test_a_full_disk_ends_a_batch_and_the_next_try_goes_on(store: Path, tmp_path: Path) -> None:
    files = FaultyFiles()
    dispatcher = dispatch(store, tmp_path / "output", files)
    dispatcher.run_once(BATCH_BYTES)
    for kind in ("write_runs", "create", "allocate"):
        files.judge = fail_next(kind, errno.ENOSPC)
        with pytest.raises(StoreFullError):
            dispatcher.run_once(BATCH_BYTES)
    drain(dispatcher)
    assert derived(tmp_path / "output") == derived(store)


def test_a_log_that_grows_is_followed_over_restarts(store: Path, tmp_path: Path) -> None:
    output = tmp_path / "output"
    dispatcher = dispatch(store, output)
    for end in (41, 60, 90):
        while dispatcher.run_once() is not None:
            pass
        assert dispatcher.run_once() is None
        assert derived(output) == derived(store)
        put(store, end - 1, end)
        if end == 60:
            dispatcher.close()
            dispatcher = dispatch(store, output)
    drain(dispatcher)
    assert derived(output) == derived(store)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_log_that_was_cut_and_went_on_otherwise_is_dispatched_again_from_the_newest_common_mark(
    restarts: bool, store: Path, tmp_path: Path
) -> None:
    output, before = tmp_path / "output", tmp_path / "before"
    shutil.copytree(store, before)
    put(store, 40, 70)
    dispatcher = dispatch(store, output)
    while dispatcher.run_once(BATCH_BYTES) is not None:
        pass
    shutil.rmtree(store)
    before.rename(store)
    put(store, 100, 120)
    if restarts:
        dispatcher.close()
        dispatcher = dispatch(store, output)
    drain(dispatcher)
    assert derived(output) == derived(store)


def test_the_log_of_another_store_is_refused_and_nothing_changes(store: Path, tmp_path: Path) -> None:
    output = tmp_path / "output"
    drain(dispatch(store, output))
    expected = derived(output)
    shutil.rmtree(store)
    put(store, 500, 505)
    with pytest.raises(DataLossError, match="says that dispatch ended: give another output"):
        dispatch(store, output)
    assert derived(output) == expected


def test_records_that_retention_deleted_before_they_were_dispatched_are_told(store: Path, tmp_path: Path) -> None:
    output = tmp_path / "output"
    dispatcher = dispatch(store, output)
    dispatcher.run_once(BATCH_BYTES)
    put(store, 40, 80)
    for path in sorted((store / "commitlog").iterdir())[:3]:
        path.unlink()
    with pytest.raises(DataLossError, match=r"the log was to be read on from \d+, and there is no such file"):
        dispatcher.run_once(BATCH_BYTES)


def test_files_of_messages_that_retention_deleted_go_too(store: Path, tmp_path: Path) -> None:
    output = tmp_path / "output"
    drain(dispatch(store, output))
    with reput.MessageStore.open(store, files=FaultyFiles(), file_reserved_time=0, **BOTH) as opened:
        assert opened.delete_expired().consume_queue_files
    put(store, 40, 60)
    drain(dispatch(store, output))
    assert derived(output) == derived(store)
    assert read_marks(str(output), FaultyFiles())[0].index is not None


def test_a_failure_amid_a_gap_or_its_removal_changes_no_unit(tmp_path: Path) -> None:
    """The record's queue offset is some queue files ahead, and the queue's next records contradict it."""
    store, ahead = tmp_path / "store", 70
    order = [Put(body=b"x" * 60, timestamp=1_700_000_000_000 + number) for number in range(8)]
    wrong = replace(order[3], queue_step=ahead)
    goes_on = [replace(put, queue_step=step - ahead - 1) for step, put in enumerate(order[4:])]
    begin = [*order[:3], *[replace(order[0], queue_id=1)] * 60]  # else the log has no room for as many messages
    logs = [begin, [*begin, wrong], [*begin, wrong, *goes_on]]

    def run(output: Path, files: FaultyFiles, judge: Judge) -> None:
        """Dispatch each log; `judge` looks at what comes after the first one."""
        write_log(store, logs[0])
        dispatcher = dispatch(store, output, files)
        while dispatcher.run_once() is not None:
            pass
        files.operations.clear()
        files.judge = judge
        for log in logs[1:]:
            write_log(store, log)
            failures = 0
            while True:
                try:
                    if dispatcher.run_once() is None:
                        break
                except StoreError:
                    failures += 1
                    assert failures == 1
        dispatcher.close()

    healthy = FaultyFiles()
    run(tmp_path / "healthy", healthy, no_objection)
    expected = derived(tmp_path / "healthy")
    kinds = Counter(operation.kind for operation in healthy.operations if "consumequeue" in operation.path)
    assert {"create", "unlink"} <= kinds.keys()
    for kind, count in kinds.items():
        if kind not in ("create", "allocate", "write", "unlink", "zero"):
            continue
        for number in range(count):
            output = tmp_path / f"{kind}-{number}"
            code = errno.EIO if kind == "unlink" else errno.ENOSPC
            run(output, FaultyFiles(), fail_next(kind, code, part="consumequeue", after=number))
            assert derived(output) == expected, (kind, number)
            shutil.rmtree(output)
