"""What is tried again and again is told in the log twice."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

import reput
import reput.store.dispatch.by_caller
import reput.store.dispatch.reput
from reput.store.repeated_failure import RepeatedFailure
from tests.support.faulty_files import FaultyFiles, fail_next, no_objection
from tests.support.heard import heard
from tests.support.invariants import SMALL, check_store


def test_an_error_is_told_when_it_begins_and_when_it_is_over() -> None:
    failure = RepeatedFailure("/store", "it does not work", "it works again")
    with heard("reput.store") as log:
        failure.tell(None)
        for number in range(3):
            failure.tell(ValueError(number))
        failure.tell(None)
        failure.tell(None)
        failure.tell(ValueError("once more"))
    assert log.lines == [
        "ERROR it does not work: 0",
        "WARNING /store: it works again",
        "ERROR it does not work: once more",
    ]


@pytest.mark.parametrize("dispatch", ["thread", "caller"])
def test_dispatch_that_waits_for_space_is_told(tmp_path: Path, dispatch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (reput.store.dispatch.reput, reput.store.dispatch.by_caller):
        monkeypatch.setattr(module, "RETRY_WAIT_S", 0.0)
    files = FaultyFiles()
    with (
        heard("reput.store") as log,
        reput.MessageStore.open(tmp_path / "store", files=files, dispatch=dispatch, **SMALL) as store,  # type: ignore[arg-type]
    ):
        files.judge = fail_next("write_runs", errno.ENOSPC, times=3)
        store.put_message(reput.Message("t", b"x"))
        if dispatch == "caller":
            while store.dispatch_behind_bytes:
                store.loop_writer().dispatch()
        store.wait_dispatched()
        log.wait("queues and index have got space again")
    begun, over = log.about(tmp_path)
    assert begun.startswith("ERROR queues and index lag behind the log: ")
    assert over.startswith("WARNING ")
    check_store(tmp_path / "store")


def test_a_checkpoint_that_finds_no_space_is_told(tmp_path: Path) -> None:
    files = FaultyFiles()
    keys = SMALL | {"flush_interval_consume_queue": 1, "flush_consume_queue_thorough_interval": 1}
    with heard("reput.store") as log, reput.MessageStore.open(tmp_path / "store", files=files, **keys) as store:
        files.judge = fail_next("write", errno.ENOSPC, part="/checkpoint", times=1 << 30)
        store.put_message(reput.Message("t", b"x"))
        log.wait("ERROR the checkpoint was not written: ")
        files.judge = no_objection
        store.put_message(reput.Message("t", b"y"))
        log.wait("the checkpoint is written again")
    assert len(log.about(tmp_path)) == 2
