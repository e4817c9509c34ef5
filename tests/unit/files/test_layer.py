from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reput.errors import StoreError, StoreFullError
from reput.files import DISK, Entry, File, FileLayer
from reput.files.os_errors import failure, write_failure


class SyncRecorder(FileLayer):
    """The real layer, which also remembers which folders it synced."""

    def __init__(self) -> None:
        self.synced: list[str] = []

    def sync_directory(self, path: str) -> None:
        super().sync_directory(path)
        self.synced.append(path)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path)


def test_a_file_is_created_with_its_size_as_a_hole(folder: str) -> None:
    with DISK.open(f"{folder}/file", writable=True, create=True, size=1 << 30) as file:
        assert file.size == 1 << 30
    assert DISK.list_directory(folder) == [Entry("file", 1 << 30, False, 0)]


def test_opening_again_keeps_what_is_there(folder: str) -> None:
    for size in (100, 50, 200):
        with DISK.open(f"{folder}/file", writable=True, create=True, size=size) as file:
            file.write(0, b"abc")
    assert DISK.read_bytes(f"{folder}/file") == b"abc" + bytes(197)


def test_a_missing_file_is_named(folder: str) -> None:
    with pytest.raises(StoreError, match=r"/none: cannot open: No such file or directory"):
        DISK.open(f"{folder}/none")
    with pytest.raises(StoreError, match=r"/none/file: cannot create: No such file or directory"):
        DISK.open(f"{folder}/none/file", writable=True, create=True)


def test_what_is_no_file_is_refused_and_nobody_waits_at_a_pipe(folder: str) -> None:
    os.mkfifo(f"{folder}/pipe")
    os.symlink("/dev/zero", f"{folder}/zeros")
    for path in (f"{folder}/pipe", f"{folder}/zeros", folder):
        with pytest.raises(StoreError, match="cannot open: expected a file, found a folder, device or pipe"):
            DISK.open(path)
    os.symlink("/proc/self/mem", f"{folder}/memory")  # it can be opened to write, and no byte can be written
    Path(f"{folder}/usual").touch()
    os.symlink("usual", f"{folder}/link")
    os.symlink("/etc/passwd", f"{folder}/more")
    special = {entry.name: entry.is_special for entry in DISK.list_directory(folder)}
    assert special == {"link": True, "memory": True, "more": False, "pipe": True, "usual": False, "zeros": True}
    with pytest.raises(StoreError, match="Illegal seek"):
        DISK.read_runs([f"{folder}/pipe"], np.zeros(1, np.int64), np.ones(1, np.int64))


def test_a_small_file_that_is_large_is_not_read(folder: str) -> None:
    DISK.open(f"{folder}/file", writable=True, create=True, size=1 << 40).close()
    with pytest.raises(StoreError, match="expected at most 268435456 bytes, found 1099511627776"):
        DISK.read_bytes(f"{folder}/file")


def test_a_folder_is_listed_by_name(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(bytes(5000))
    (tmp_path / "a").mkdir()
    (tmp_path / "c").symlink_to("nowhere")
    listed = DISK.list_directory(str(tmp_path))
    assert [(entry.name, entry.is_directory) for entry in listed] == [("a", True), ("b", False), ("c", False)]
    assert [entry.name for entry in listed if entry.is_broken_link] == ["c"]
    assert listed[1].size == 5000
    with pytest.raises(StoreError, match=r"none: cannot list: No such file or directory"):
        DISK.list_directory(str(tmp_path / "none"))


def test_hidden_files_are_passed_over_and_folders_are_not(tmp_path: Path) -> None:
    for name in (".nfs000000000001a2b300000001", ".file", "file", "a.file"):
        (tmp_path / name).touch()
    (tmp_path / ".link").symlink_to("nowhere")
    os.mkfifo(tmp_path / ".pipe")
    (tmp_path / ".topic").mkdir()  # a store takes topics of any characters
    assert [entry.name for entry in DISK.list_directory(str(tmp_path))] == [".topic", "a.file", "file"]


def test_only_a_folder_without_a_hidden_file_is_empty(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    assert DISK.is_empty(str(tmp_path / "folder"))
    assert not DISK.is_empty(str(tmp_path / "file"))
    (tmp_path / "folder" / ".hidden").touch()
    assert not DISK.is_empty(str(tmp_path / "folder"))
    with pytest.raises(StoreError, match=r"none: cannot list: No such file or directory"):
        DISK.is_empty(str(tmp_path / "none"))


def test_files_are_looked_up(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "same").hardlink_to(tmp_path / "file")
    file, same = str(tmp_path / "file"), str(tmp_path / "same")
    assert DISK.exists(file)
    assert not DISK.exists(f"{file}.none")
    assert DISK.is_directory(str(tmp_path))
    assert not DISK.is_directory(file)
    assert DISK.file_size(file) == 3
    assert DISK.identity(file) == DISK.identity(same) != DISK.identity(str(tmp_path))
    assert DISK.disk_free(file) > 0
    with pytest.raises(StoreError, match="none: cannot look up: No such file or directory"):
        DISK.file_size(f"{file}.none")


def test_a_file_system_without_a_size_has_room_for_everything() -> None:
    """As a tmpfs without a limit."""
    memory = os.memfd_create("memory")
    try:
        assert os.statvfs(memory).f_bavail == 0
        assert DISK.disk_free(f"/proc/self/fd/{memory}") > 1 << 60
    finally:
        os.close(memory)


def test_every_new_folder_is_synced_into_the_one_above_it(folder: str) -> None:
    files = SyncRecorder()
    files.make_directories(f"{folder}/a/b/c")
    assert files.is_directory(f"{folder}/a/b/c")
    above = folder.rpartition("/")[0]  # the folder itself may be what a process made before it was killed
    assert files.synced == [above, folder, f"{folder}/a", f"{folder}/a/b"]
    files.make_directories(f"{folder}/a/b/c")
    assert len(files.synced) == 4


def test_the_name_of_a_folder_that_somebody_else_made_need_not_be_synced(folder: str, tmp_path: Path) -> None:
    files = SyncRecorder()
    files.sync_name(folder)
    assert files.synced == [folder.rpartition("/")[0]]
    closed = tmp_path / "closed"
    (closed / "store").mkdir(parents=True)
    closed.chmod(0o311)
    files.sync_name(str(closed / "store"))  # neither an error nor, for who may not read it, a sync
    assert files.synced[1:] == [str(closed)] * os.access(closed, os.R_OK)


def test_a_file_in_the_way_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StoreError, match="cannot make a folder"):
            DISK.make_directories(str(path))


def test_renaming_syncs_both_folders(tmp_path: Path) -> None:
    files = SyncRecorder()
    files.make_directories(str(tmp_path / "to"))
    (tmp_path / "source").write_bytes(b"new")
    (tmp_path / "to" / "target").write_bytes(b"old")
    files.synced.clear()
    files.rename(str(tmp_path / "source"), str(tmp_path / "to" / "target"))
    assert (tmp_path / "to" / "target").read_bytes() == b"new"
    assert sorted(files.synced) == [str(tmp_path), str(tmp_path / "to")]


def test_removing_syncs_the_folder(tmp_path: Path) -> None:
    files = SyncRecorder()
    (tmp_path / "file").touch()
    (tmp_path / "tree" / "deep").mkdir(parents=True)
    (tmp_path / "tree" / "deep" / "file").touch()
    files.unlink(str(tmp_path / "file"))
    files.remove_tree(str(tmp_path / "tree"))
    assert files.synced == [str(tmp_path), str(tmp_path)]
    assert files.list_directory(str(tmp_path)) == []
    for remove in (files.unlink, files.remove_tree):
        with pytest.raises(StoreError, match="none: cannot remove"):
            remove(str(tmp_path / "none"))


def test_paths_below_the_current_folder_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    DISK.make_directories("a/b")
    DISK.write_atomically("file", b"abc")
    DISK.rename("file", "other")
    DISK.unlink("other")
    assert os.listdir() == ["a"]


def test_a_file_is_replaced_atomically(tmp_path: Path) -> None:
    files = SyncRecorder()
    path = tmp_path / "checkpoint"
    (tmp_path / "checkpoint.tmp").write_bytes(b"left by a crash, and longer")
    for content in (b"first", b"second"):
        files.write_atomically(str(path), content)
        assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["checkpoint"]
    assert files.synced[-1] == str(tmp_path)


class _Watched(FileLayer):
    """Notes who may read a file that is being written, before anything is in it and at its end."""

    def __init__(self) -> None:
        self.modes: list[int] = []

    def open(self, path: str, **options: Any) -> File:  # type: ignore[override]
        file = super().open(path, **options)
        self.modes.append(os.fstat(file.fileno()).st_mode & 0o777)
        return file


@pytest.mark.parametrize("before", [None, 0o644, 0o640, 0o600, 0o400])
@pytest.mark.parametrize("is_private", [False, True])
def test_who_may_read_a_file_that_is_replaced_stays_as_it_is_and_nobody_else_ever_may(
    tmp_path: Path, before: int | None, *, is_private: bool
) -> None:
    """Whoever opens the new file before it is private reads what is written into it afterwards."""
    path, files = tmp_path / "broker.conf", _Watched()
    if before is not None:
        path.write_bytes(b"secret")
        path.chmod(before)
    files.write_atomically(str(path), b"another", is_private=is_private)
    kept = 0o600 if is_private else 0o644 if before is None else before
    assert path.stat().st_mode & 0o777 == kept
    assert [mode & ~kept & 0o077 for mode in files.modes] == [0]


def test_a_file_becomes_executable(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("#!/bin/sh\n")
    DISK.make_executable(str(tmp_path / "run"))
    assert os.access(tmp_path / "run", os.X_OK)


FULL = """
import os, resource, sys
from reput.errors import StoreFullError
from reput.files import DISK
os.chdir(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
with DISK.open("file", writable=True, create=True) as file:
    file.write(0, b"whole")
    for deed in (
        lambda: file.write(9_000, bytes(2_000)),
        lambda: file.allocate(0, 20_000),
        lambda: file.grow(20_000),
        lambda: DISK.open("created", writable=True, create=True, size=20_000),
        lambda: DISK.write_atomically("replaced", bytes(20_000)),
    ):
        try:
            deed()
            print("no error")
        except StoreFullError as error:
            print(error)
"""


def test_a_limit_of_the_file_size_is_an_error_and_leaves_no_file_behind(tmp_path: Path) -> None:
    (tmp_path / "replaced").write_bytes(b"old")
    done = subprocess.run([sys.executable, "-c", FULL, tmp_path], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert [line.partition(" bytes needed, ")[0] for line in lines] == [
        "file: cannot write at 9000: 2000",
        "file: cannot allocate at 0: 20000",
        "file: cannot grow to 20000 bytes: 20000",
        "created: cannot grow to 20000 bytes: 20000",
        "replaced.tmp: cannot write at 0: 20000",
    ]
    assert all(line.endswith("raise the limit (ulimit -f), or use smaller files") for line in lines)
    assert sorted(os.listdir(tmp_path)) == ["file", "replaced"]
    assert (tmp_path / "replaced").read_bytes() == b"old"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_no_space_is_told_with_what_is_needed_and_free(code: int) -> None:
    error = write_failure(OSError(code, os.strerror(code)), "/none/yet/file", "create", 77)
    assert isinstance(error, StoreFullError)
    assert str(error).startswith("/none/yet/file: cannot create: 77 bytes needed, ")


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.EACCES, "permission denied; check owner and mode of it and of its folder"),
        (errno.EPERM, "operation not permitted; check its owner, and whether it was made immutable"),
        (errno.EROFS, "the file system is mounted read-only; mount it writable, or give a path on another one"),
        (errno.EIO, "Input/output error"),
        (errno.ENOSPC, "No space left on device"),
    ],
)
def test_a_refusal_names_the_file_and_what_to_do(code: int, advice: str) -> None:
    error = failure(OSError(code, os.strerror(code)), "/store/lock", "open")
    assert type(error) is StoreError
    assert str(error) == f"/store/lock: cannot open: {advice}"


def test_a_hard_link_is_one_more_name_of_a_file_and_durable(tmp_path: Path) -> None:
    files, source, target = SyncRecorder(), tmp_path / "source", tmp_path / "folder/target"
    source.write_bytes(b"abc")
    target.parent.mkdir()
    files.link(str(source), str(target))
    assert source.samefile(target)
    assert files.synced == [str(target.parent)]
    with pytest.raises(StoreError, match="cannot link to"):
        files.link(str(source), str(target))


@pytest.mark.parametrize(
    ("limit", "use", "available"),
    [
        (None, "", 3 << 20),
        ("max\n", "5", 3 << 20),
        ("3000\n", "1000\n", 2000),
        ("1000\n", "2000\n", 0),
        ("nothing", "5", 0),
    ],
)
def test_memory_is_what_the_machine_has_and_the_container_allows(
    limit: str | None, use: str, available: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 0 < DISK.available_memory() <= DISK.physical_memory()
    memory, most, used = tmp_path / "meminfo", tmp_path / "limit", tmp_path / "use"
    memory.write_text("MemTotal:       9000 kB\nMemAvailable:   3072 kB\nHugePages_Total:       0\n")
    if limit is not None:
        most.write_text(limit)
        used.write_text(use)
    monkeypatch.setattr("reput.files.layer._MEMORY", str(memory))
    monkeypatch.setattr("reput.files.layer._MEMORY_LIMITS", ((str(most), str(used)),))
    assert DISK.available_memory() == available
    monkeypatch.setattr("reput.files.layer._MEMORY", str(tmp_path / "none"))
    assert DISK.available_memory() == 0
