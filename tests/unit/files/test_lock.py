from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from reput.errors import StoreError, StoreLockedError
from reput.files import DISK

#: Another program that takes the lock as RocketMQ does, says so, and holds it until its input ends.
HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    print("held", flush=True)
    sys.stdin.read()
except BlockingIOError:
    print("refused")
"""


def holder(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def another_process_says(path: Path) -> str:
    with holder(path) as process:
        answer, _ = process.communicate()
    return answer.strip()


def test_a_held_lock_keeps_other_processes_out_until_it_is_released(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = DISK.lock(str(path))
    assert path.stat().st_size == 4
    assert another_process_says(path) == "refused"
    lock.release()
    assert another_process_says(path) == "held"
    assert path.read_bytes() == b"lock"
    lock.release()


def test_a_lock_of_another_process_is_named_and_survives_our_attempt(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with holder(path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        for _ in range(2):
            with pytest.raises(StoreLockedError, match=rf"process {process.pid} has the store open; stop it, or wait"):
                DISK.lock(str(path))
        process.communicate()
    assert path.read_bytes() == b""
    DISK.lock(str(path)).release()


def test_a_second_lock_in_the_same_process_is_refused_and_the_first_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = DISK.lock(str(path))
    (tmp_path / "same").symlink_to(path)
    for other in (path, tmp_path / "same"):
        with pytest.raises(StoreLockedError, match="this process has the store open already"):
            DISK.lock(str(other))
    assert another_process_says(path) == "refused"
    lock.release()
    DISK.lock(str(path)).release()


def test_two_stores_are_locked_side_by_side(tmp_path: Path) -> None:
    first, second = DISK.lock(str(tmp_path / "a")), DISK.lock(str(tmp_path / "b"))
    first.release()
    assert another_process_says(tmp_path / "b") == "refused"
    second.release()


def test_a_lock_that_cannot_be_made_is_an_error_and_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "none" / "lock"
    with pytest.raises(StoreError, match="cannot create the lock file: No such file or directory"):
        DISK.lock(str(path))
    path.parent.mkdir()
    DISK.lock(str(path)).release()
