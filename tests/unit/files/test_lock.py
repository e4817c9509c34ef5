from __future__ import annotations

import errno
import os
import shutil
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


def test_whoever_reads_the_lock_file_and_closes_it_does_not_release_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = DISK.lock(str(path))
    shutil.copy(path, tmp_path / "copy")
    assert another_process_says(path) == "refused"
    lock.release()
    assert another_process_says(path) == "held"


def test_a_second_process_names_the_one_that_holds_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = DISK.lock(str(path))
    code = "import sys; from reput.files import DISK; DISK.lock(sys.argv[1])"
    ended = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert f"{path}: process {os.getpid()} has the store open; stop it" in ended.stderr
    lock.release()


def test_a_forked_child_neither_keeps_nor_releases_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = DISK.lock(str(path))
    tail, head = os.pipe()
    child = os.fork()
    if not child:
        lock.release()  # not this process's
        os.close(head)
        os.read(tail, 1)  # until the parent closes its end
        os._exit(0)
    os.close(tail)
    try:
        assert another_process_says(path) == "refused"
        lock.release()
        assert another_process_says(path) == "held"
    finally:
        os.close(head)
        os.waitpid(child, 0)


def test_an_old_object_of_a_child_does_not_release_the_childs_own_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = DISK.lock(str(path))
    tail, head = os.pipe()
    child = os.fork()
    if not child:
        os.close(head)
        os.read(tail, 1)  # until the parent has released its lock
        own = DISK.lock(str(path))
        lock.release()
        says = another_process_says(path)
        own.release()
        os._exit(0 if says == "refused" else 1)
    os.close(tail)
    lock.release()
    os.close(head)
    assert os.waitpid(child, 0)[1] == 0


def test_a_full_disk_has_room_for_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def is_full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "lock"
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", is_full)
        lock = DISK.lock(str(path))
    assert path.read_bytes() == b""
    assert another_process_says(path) == "refused"
    lock.release()


def test_a_lock_knows_another_file_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = DISK.lock(str(path))
    assert lock.is_in_place()
    path.unlink()
    assert lock.is_in_place()  # nobody else has one
    other = DISK.lock(str(path))
    assert not lock.is_in_place()
    assert other.is_in_place()
    other.release()
    lock.release()
