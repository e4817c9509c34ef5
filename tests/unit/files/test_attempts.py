"""Attempts: what a coordinator that is gone has begun writes nothing any more, or is waited for."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from reput.errors import StoreLockedError, StoreStateError
from reput.files import DISK, attempts
from reput.files.attempts import attempt, begin_attempts, end_attempts

WRITER = """
import sys
from reput.files import DISK
from reput.files.attempts import attempt
with attempt(sys.argv[1], DISK):
    print("begun", flush=True)
    sys.stdin.readline()
    with open(sys.argv[2], "w") as file:
        file.write("written")
"""


def test_an_attempt_writes_while_its_permit_is_there_and_nothing_afterwards(tmp_path: Path) -> None:
    folder, written = str(tmp_path / "attempts"), []
    permit = begin_attempts(folder, DISK)
    with attempt(permit, DISK), attempt(permit, DISK):  # a task and its second try
        written.append(1)
    end_attempts(folder, DISK)
    assert not Path(folder).exists()
    with pytest.raises(StoreStateError, match="does not wait for it any more"), attempt(permit, DISK):
        written.append(2)
    assert written == [1]
    end_attempts(folder, DISK)


def test_a_task_of_an_earlier_batch_does_not_begin_while_the_next_batch_is_written(tmp_path: Path) -> None:
    folder = str(tmp_path / "attempts")
    earlier = begin_attempts(folder, DISK)
    end_attempts(folder, DISK)
    permit = begin_attempts(folder, DISK)
    with pytest.raises(StoreStateError), attempt(earlier, DISK):
        raise AssertionError("it must not begin")
    with attempt(permit, DISK):
        pass


def test_a_permit_that_is_removed_while_an_attempt_takes_its_lock_refuses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "attempts"
    permit = begin_attempts(str(folder), DISK)
    lock = type(DISK).lock

    def closed_meanwhile(self: object, path: str) -> object:
        Path(permit).unlink()
        return lock(DISK, path)

    monkeypatch.setattr(type(DISK), "lock", closed_meanwhile)
    with pytest.raises(StoreStateError), attempt(permit, DISK):
        raise AssertionError("it must not begin")


def test_the_next_coordinator_waits_for_an_attempt_in_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, target = str(tmp_path / "attempts"), tmp_path / "target"
    permit = begin_attempts(folder, DISK)
    command = [sys.executable, "-c", WRITER, permit, str(target)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        assert writer.stdout.readline() == "begun\n"
        monkeypatch.setattr(attempts, "_TIMEOUT_S", 0.0)
        with pytest.raises(StoreLockedError):
            end_attempts(folder, DISK)
        assert not target.exists()
        monkeypatch.undo()
        seen: list[bool] = []
        waiting = threading.Thread(target=lambda: (end_attempts(folder, DISK), seen.append(target.exists())))
        waiting.start()
        print(file=writer.stdin, flush=True)
        waiting.join(60)
    assert seen == [True]
