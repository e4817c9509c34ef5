"""A start after a failed sync, in the same running machine: what it reads the disk need not have.

A life in which one sync fails ends by a close that fails, or by a kill. The next one sees in the page cache what was
lost, goes on, answers, and ends; then the power is cut, and the disk has what was synced and nothing else.
"""

from __future__ import annotations

import errno
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

import reput
from reput.config.message_store import MessageStoreConfig
from reput.errors import StoreError, StorePoisonedError, StoreSyncError
from reput.log import StoreDirectory
from reput.log.failed_sync import FAILED_SYNC_FILE, failed_sync_path
from reput.store.dispatch.log_dispatch import LogDispatch
from tests.support.faulty_files import FaultyFiles, Operation, abandon, fail_next
from tests.support.invariants import SMALL, Acknowledged, check_acknowledged, check_store, contents
from tests.support.lives import puts
from tests.support.scenarios import SCENARIOS, start_again
from tests.support.shares import Share, in_shares

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

OPTIONS = SMALL | {"sync_flush_timeout": 2000, "flush_interval_consume_queue": 60_000}


def put_acknowledged(store: reput.MessageStore, topic: str, count: int, first: int = 0) -> list[Acknowledged]:
    found = []
    for number in range(first, first + count):
        key, body = f"{topic}-{number}", bytes([number + 1]) * 300
        result = store.put_message(reput.Message(topic, body, keys=[key]))
        found.append(Acknowledged(topic, 0, result.queue_offset, result.commit_log_offset, key, body))
    return found


def check_left(path: Path, acknowledged: list[Acknowledged]) -> None:
    """What a power cut has left has all that was answered."""
    with reput.MessageStore.open(path, files=FaultyFiles(), **OPTIONS) as store:
        check_acknowledged(store, acknowledged)
        put_acknowledged(store, "last", 3)
    check_store(path)


def put_and_close(store: reput.MessageStore, acknowledged: list[Acknowledged]) -> None:
    """A failed sync of the log meets a put, of anything else the close."""
    acknowledged += put_acknowledged(store, "second", 1)
    store.wait_dispatched()
    store.close()


def put_and_delete(store: reput.MessageStore, acknowledged: list[Acknowledged]) -> None:
    """A failed sync of the queues meets retention; nobody may trust the next one, which succeeds."""
    acknowledged += put_acknowledged(store, "second", 1)
    store.wait_dispatched()
    with pytest.raises(StoreSyncError):
        store.delete_expired()
    with pytest.raises(StoreSyncError):
        store.delete_expired()
    with pytest.raises(StoreSyncError):
        store.put_message(reput.Message("second", b"refused"))
    store.close()


@pytest.mark.parametrize("closes", [True, False], ids=["then a close", "then a kill"])
@pytest.mark.parametrize(
    ("deed", "part"),
    [
        (put_and_close, "/commitlog/"),
        (put_and_close, "/consumequeue/"),
        (put_and_close, "/index/"),
        (put_and_close, "/checkpoint"),
        (put_and_close, "/config/"),
        (put_and_delete, "/consumequeue/"),
    ],
)
def test_what_is_answered_after_a_failed_sync_survives_a_power_cut(
    tmp_path: Path, deed: Callable[[reput.MessageStore, list[Acknowledged]], None], part: str, closes: bool
) -> None:
    path, files = tmp_path / "store", FaultyFiles()
    store = reput.MessageStore.open(path, files=files, **OPTIONS, file_reserved_time=0)
    acknowledged = put_acknowledged(
        store, "first", 18
    )  # the next one fills the index file: nobody writes to it any more
    store.wait_dispatched()
    files.judge = fail_next("sync", errno.EIO, part=str(path) + part)
    with pytest.raises(StoreError):
        deed(store, acknowledged)
    abandon(store, files)
    assert Path(failed_sync_path(str(path))).exists()
    start_again(path, files, tmp_path / "left", OPTIONS, acknowledged, closes=closes)
    assert not Path(failed_sync_path(str(path))).exists()
    check_left(tmp_path / "left", acknowledged)


def test_a_start_whose_own_sync_fails_leaves_the_mark_for_the_next_one(tmp_path: Path) -> None:
    """What a kill left may be lost already: the system tells it to the first who syncs, and to nobody else."""
    path, files = tmp_path / "store", FaultyFiles()
    store = reput.MessageStore.open(path, files=files, **OPTIONS, flush_disk_type="ASYNC_FLUSH")
    acknowledged = put_acknowledged(store, "first", 5)
    store.wait_dispatched()
    abandon(store, files)
    before = contents(path, "commitlog")
    starts = [FaultyFiles(fail_next("sync", errno.EIO, part="/commitlog/")) for _ in range(2)]
    for files_before, starting in zip([files, *starts], starts, strict=False):
        starting.goes_on_after(files_before)
        with pytest.raises(StoreSyncError, match="commitlog"):
            reput.MessageStore.open(path, files=starting, **OPTIONS)
        starting.abandon()
        assert Path(failed_sync_path(str(path))).exists()
    assert contents(path, "commitlog") == before
    start_again(path, starts[-1], tmp_path / "left", OPTIONS, acknowledged, closes=False)
    check_left(tmp_path / "left", acknowledged)


def test_a_mark_that_cannot_be_left_hides_nothing(tmp_path: Path) -> None:
    path, files = tmp_path / "store", FaultyFiles()
    store = reput.MessageStore.open(path, files=files, **OPTIONS)
    put_acknowledged(store, "first", 1)

    def fails(operation: Operation) -> None:
        if operation.kind == "sync" or operation.path == failed_sync_path(str(path)):
            raise OSError(errno.EIO, "broken")

    files.judge = fails
    with pytest.raises(StorePoisonedError, match="commitlog"):
        store.put_message(reput.Message("first", b"x"))
    with pytest.raises(StorePoisonedError, match="commitlog"):
        store.close()


@in_shares(3)
def test_a_sync_that_fails_at_any_operation_of_a_life_loses_nothing_that_the_next_one_answers(
    tmp_path: Path, share: Share
) -> None:
    for number in share.of(range(0, 10_000, 2)):  # the campaign does all
        path, left = tmp_path / str(number), tmp_path / f"{number}-left"
        life, files = puts.live(path, "SYNC_FLUSH", fail_next("sync", errno.EIO, after=number))
        if [operation.kind for operation in files.operations].count("sync") <= number:
            break
        start_again(path, files, left, life.options, life.acknowledged, closes=number % 4 == 0)
        puts.check_next_life(life, left)
    assert number > 10


def test_the_mark_is_there_before_a_put_is_refused_whose_caller_may_end_the_process(tmp_path: Path) -> None:
    files, answered, is_marked = FaultyFiles(), list[Acknowledged](), threading.Event()
    options = {"flush_disk_type": "ASYNC_FLUSH", "flush_interval_commit_log": 1, "flush_commit_log_least_pages": 0}
    store = reput.MessageStore.open(tmp_path / "store", files=files, **OPTIONS, **options)
    put_acknowledged(store, "first", 1)

    def fail_and_look(operation: Operation) -> None:
        if operation.kind == "sync" and "/commitlog/" in operation.path:
            raise OSError(errno.EIO, "failed")
        if operation.kind == "create" and operation.path.endswith(FAILED_SYNC_FILE):
            answered.extend(put_acknowledged(store, "meanwhile", 1))
            is_marked.set()

    files.judge = fail_and_look
    put_acknowledged(store, "second", 1)
    assert is_marked.wait(60)
    with pytest.raises(StorePoisonedError):
        store.close()
    assert len(answered) == 1


@in_shares(3)
def test_a_sync_that_fails_at_any_operation_of_sink_commits_loses_nothing_that_the_next_start_trusts(
    tmp_path: Path, share: Share
) -> None:
    """A commit is one when its log is synced: a failed sync of its queues is no error, and must be told."""
    (scenario,) = [scenario for scenario in SCENARIOS if scenario.name == "sink commits"]
    for number in share.of(range(0, 10_000, 2)):
        path, left = tmp_path / str(number), tmp_path / f"{number}-left"
        files, check = scenario.live(path, fail_next("sync", errno.EIO, after=number))
        if [operation.kind for operation in files.operations].count("sync") <= number:
            break
        start_again(path, files, left, scenario.options, [], closes=True, answers=0)
        check(left)
    assert number > 10


@pytest.mark.parametrize("part", ["/consumequeue/", "/index/"])
def test_a_failed_sync_of_the_process_that_dispatches_is_told_to_the_next_start_of_the_store(
    tmp_path: Path, part: str
) -> None:
    path, files = tmp_path / "store", FaultyFiles()
    store = reput.MessageStore.open(path, files=files, dispatch="external", **OPTIONS)
    acknowledged = put_acknowledged(store, "first", 12)
    config = MessageStoreConfig.from_mapping(OPTIONS)
    dispatcher = LogDispatch(StoreDirectory(path, files=files), str(path), config, in_store=True, files=files)
    files.judge = fail_next("sync", errno.EIO, part=str(path) + part)
    with pytest.raises(StoreSyncError, match=part):
        dispatcher.run_once()
    dispatcher.close()
    store.close()
    assert Path(failed_sync_path(str(path))).exists()
    start_again(path, files, tmp_path / "left", OPTIONS, acknowledged, closes=True)
    check_left(tmp_path / "left", acknowledged)


def test_no_put_passes_a_log_file_made_ahead_whose_sync_has_failed(tmp_path: Path) -> None:
    """Made once more it would seem to be on the disk."""
    files = FaultyFiles()
    store = reput.MessageStore.open(tmp_path / "store", files=files, **OPTIONS)
    put_acknowledged(store, "first", 8)
    files.judge = fail_next("sync", errno.EIO, part="/commitlog/")
    with pytest.raises(StoreSyncError):
        store._log.make_ready()
    with pytest.raises(StoreSyncError):
        put_acknowledged(store, "second", 1)
    with pytest.raises(StoreSyncError):
        store.close()
    assert Path(failed_sync_path(str(tmp_path / "store"))).exists()


def test_a_disk_that_has_space_again_lets_no_put_pass_a_sync_that_fails_at_that_moment(tmp_path: Path) -> None:
    """Another thread's failure comes between any two steps, here behind the question whether there was one."""
    store = reput.MessageStore.open(tmp_path / "store", files=FaultyFiles(), **OPTIONS, flush_disk_type="ASYNC_FLUSH")
    log, error = store._log, StorePoisonedError("failed")

    def fail_behind_the_question(frame: FrameType, event: str, _: object) -> None:
        if event == "return" and frame.f_code.co_name == "failure" and log.failure is None:
            log.failure = error

    sys.setprofile(fail_behind_the_question)
    try:
        log.refuse_while_full(None)
    finally:
        sys.setprofile(None)
    assert log.failure is error
    with pytest.raises(StorePoisonedError):
        put_acknowledged(store, "first", 1)
    with pytest.raises(StorePoisonedError):
        store.close()
