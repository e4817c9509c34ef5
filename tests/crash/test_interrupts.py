"""KeyboardInterrupt at any moment of a put: neither the next put nor the close may wait for what it left behind."""

from __future__ import annotations

import _thread
import operator
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from types import FrameType

import pytest

import reput
from reput.errors import StoreLockedError, StorePoisonedError, StoreSyncError
from reput.files import DISK, batched_io
from reput.log.failed_sync import failed_sync_path
from reput.store.results import PutMessageStatus
from tests.support.faulty_files import FaultyFiles, Operation
from tests.support.invariants import SMALL, check_store

MESSAGE = reput.Message("t", b"x", keys=["k"])
#: The ways into the log, and one that a kernel does not encode.
PUTS: dict[str, Callable[[reput.MessageStore], object]] = {
    "one": lambda store: store.put_message(MESSAGE),
    "prepared": lambda store: store.put_message(reput.Message("t", b"x", sys_flag=4)),
    "several": lambda store: store.put_messages([MESSAGE] * 2),
    "batch": lambda store: store.put_batch([MESSAGE] * 2),
}


def interrupted(put: Callable[[], object], number: int, part: str = "") -> bool:
    """Run a put with a KeyboardInterrupt at its call of this number; False: there is no such call.

    Those count that are made by, or of, code in a file with `part` in its path. CPython looks for signals where a
    function of Python begins, and where one of C has returned.
    """
    calls = count()

    def judge(frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_return") and part in frame.f_code.co_filename and next(calls) == number:
            raise KeyboardInterrupt

    sys.setprofile(judge)
    try:
        put()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
@pytest.mark.parametrize("name", PUTS)
def test_an_interrupt_at_any_call_of_a_put_stops_neither_the_next_put_nor_the_close(
    tmp_path: Path, name: str, flush_disk_type: str
) -> None:
    options = SMALL | {"flush_disk_type": flush_disk_type, "mapped_file_size_commit_log": 1 << 20}
    with reput.MessageStore.open(tmp_path / "store", **options) as store:
        number = 0
        while interrupted(lambda: PUTS[name](store), number):
            result = store.put_message(MESSAGE)
            assert result.status is PutMessageStatus.PUT_OK, number
            number += 1
        assert number > 10
        store.wait_dispatched()
    check_store(tmp_path / "store", options)


def test_an_interrupt_at_any_call_of_a_put_that_begins_a_log_file_leaves_no_file_out(tmp_path: Path) -> None:
    """An empty one in the middle would be the log's end for the next start."""
    options = SMALL | {"flush_disk_type": "ASYNC_FLUSH"}
    message = reput.Message("t", bytes(SMALL["mapped_file_size_commit_log"] // 2))  # type: ignore[operator]
    with reput.MessageStore.open(tmp_path / "store", files=FaultyFiles(), **options) as store:
        number = 0
        while interrupted(lambda: store.put_message(message), number, "/reput/store/"):
            assert store.put_message(message).status is PutMessageStatus.PUT_OK, number
            number += 1
        assert number > 10
        store.wait_dispatched()
    check_store(tmp_path / "store", options)


def in_one_call(*calls: Callable[[], object]) -> None:
    """Call these without a look for signals between them: as while the system waits for a disk."""
    list(map(operator.call, calls))


def test_an_interrupt_during_a_sync_of_the_log_that_fails_hides_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system tells the error once: the next sync would succeed, and answer what the disk does not have."""
    path = tmp_path / "store"
    store = reput.MessageStore.open(path, **SMALL, flush_interval_consume_queue=60_000)
    store.put_message(MESSAGE)
    store.wait_dispatched()
    with monkeypatch.context() as patched:
        no_descriptor = 1 << 30
        fails = partial(in_one_call, _thread.interrupt_main, partial(os.fsync, no_descriptor))
        patched.setattr(os, "fdatasync", lambda descriptor: fails())
        with pytest.raises(StorePoisonedError, match="commitlog"):
            store.put_message(MESSAGE)
    with pytest.raises(StorePoisonedError):
        store.put_message(MESSAGE)
    assert Path(failed_sync_path(str(path))).exists()
    with pytest.raises(StorePoisonedError):
        store.close()
    assert (path / "abort").exists()


def test_an_interrupt_during_a_sync_of_many_files_that_fails_hides_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, sync_paths = str(tmp_path / "missing"), batched_io.sync_paths

    def interrupted_sync(*arguments: object) -> None:
        in_one_call(partial(sync_paths, *arguments), _thread.interrupt_main)

    monkeypatch.setattr(batched_io, "sync_paths", interrupted_sync)
    with pytest.raises(StoreSyncError, match="missing"):
        DISK.sync_files([path])
    (tmp_path / "missing").touch()
    with pytest.raises(KeyboardInterrupt):
        DISK.sync_files([path])


def test_an_interrupt_while_a_close_waits_for_its_threads_gives_the_lock_back_only_when_they_have_ended(
    tmp_path: Path,
) -> None:
    """They may still write: nobody else may write the same files then."""
    path, files = tmp_path / "store", FaultyFiles()
    is_interrupted, may_go_on = threading.Event(), threading.Event()
    store = reput.MessageStore.open(path, files=files, **SMALL)
    assert store._writer is not None
    is_stopping = store._writer.reput._stopping

    def interrupt_once(number: int, frame: FrameType | None) -> None:
        if not is_interrupted.is_set():
            is_interrupted.set()
            raise KeyboardInterrupt

    def interrupt_the_close(operation: Operation) -> None:
        if operation.kind == "write_runs" and not may_go_on.is_set():
            assert is_stopping.wait(60)
            while not is_interrupted.wait(0.1):  # a signal just before the main thread falls asleep does not wake it
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            assert may_go_on.wait(60)

    files.judge = interrupt_the_close
    store.put_message(MESSAGE)
    handler = signal.signal(signal.SIGINT, interrupt_once)
    try:
        with pytest.raises(KeyboardInterrupt):
            store.close()
    finally:
        signal.signal(signal.SIGINT, handler)
    with pytest.raises(StoreLockedError):
        reput.MessageStore.open(path, **SMALL)
    may_go_on.set()
    store.close()
    check_store(path, SMALL)
    reput.MessageStore.open(path, **SMALL).close()
