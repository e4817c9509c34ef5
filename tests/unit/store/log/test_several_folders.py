"""A commit log on several disks: `storePathCommitLog` with commas; read-only, full and missing folders."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

import reput
from reput.errors import ConfigError, CorruptRecordError, StoreFormatError
from reput.formats.record_layout import BODY
from reput.jobs.rebuild.job import rebuild
from reput.jobs.runner import LocalRunner
from tests.support.commands import run_reput
from tests.support.damage import flip
from tests.support.faulty_files import FaultyFiles, abandon
from tests.support.invariants import SMALL, contents

FILE_SIZE = 4096


def folders(tmp_path: Path, *names: str) -> str:
    return ",".join(str(tmp_path / name) for name in names)


def names(folder: Path) -> list[int]:
    """The numbers of a folder's files."""
    return [int(path.name) // FILE_SIZE for path in sorted(folder.iterdir())]


def open_store(path: Path, logs: str, **options: object) -> reput.MessageStore:
    given = SMALL | {"files": FaultyFiles(), "store_path_commit_log": logs} | options
    return reput.MessageStore.open(path, **given)  # type: ignore[arg-type]


def put_flagged(store: reput.MessageStore, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        store.put_message(reput.Message("t", bytes(1000), keys=[f"k{number}"], flag=number))
    store.wait_dispatched()


def flags(path: Path, logs: str) -> list[int]:
    return reput.read_log(path, ["flag"], commit_log_path=logs).read_all()["flag"].to_pylist()


def test_new_files_go_to_each_folder_in_its_turn_and_are_read_by_everything(tmp_path: Path) -> None:
    path, logs = tmp_path / "store", folders(tmp_path, "b", "a", "c")
    with open_store(path, logs) as store:
        put_flagged(store, 15)
    # By their place in the log, over the sorted folders; three records fill a file (`MultiPathMappedFileQueue`).
    assert [names(tmp_path / name) for name in "abc"] == [[0, 3], [1, 4], [2]]
    with open_store(path, logs) as store:
        put_flagged(store, 15, first=15)
        assert [store.get_message("t", 0, n, 1).messages()[0].flag for n in range(30)] == list(range(30))
        (message,) = store.query_message("t", "k17")
        assert message.flag == 17
    before = contents(tmp_path)
    assert flags(path, logs) == list(range(30))
    with open_store(path, logs, read_only=True) as store:
        assert store.max_offset("t", 0) == 30
    for command in (
        ("info", path),
        ("dump", path),
        ("stats", path),
        ("get", path, "--topic", "t", "--queue-id", "0"),
        ("query", path, "--topic", "t", "--key", "k3"),
    ):
        answer = run_reput(*command, "--commit-log-path", logs)
        assert answer.status == 0, answer.err
    rebuild(path, tmp_path / "rebuilt", runner=LocalRunner(threads=1), commit_log_path=logs)
    assert contents(tmp_path / "rebuilt" / "consumequeue") == contents(path / "consumequeue")
    assert {name: data for name, data in contents(tmp_path).items() if not name.startswith("rebuilt")} == before


def test_a_killed_store_is_recovered_over_all_folders(tmp_path: Path) -> None:
    path, logs, files = tmp_path / "store", folders(tmp_path, "a", "b"), FaultyFiles()
    store = open_store(path, logs, files=files)
    put_flagged(store, 10)
    abandon(store, files)
    with open_store(path, logs) as store:
        assert store.max_offset("t", 0) == 10
        put_flagged(store, 5, first=10)
    assert flags(path, logs) == list(range(15))


def test_a_read_only_folder_gets_no_new_file(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_store(path, folders(tmp_path, "old")) as store:
        put_flagged(store, 5)
    (tmp_path / "new").mkdir()
    logs = folders(tmp_path, "old", "new")
    with open_store(path, logs, read_only_commit_log_store_paths=folders(tmp_path, "old")) as store:
        put_flagged(store, 10, first=5)
    assert (names(tmp_path / "old"), names(tmp_path / "new")) == ([0, 1], [2, 3, 4])
    assert flags(path, logs) == list(range(15))
    with pytest.raises(ConfigError, match="no file could be made"):
        open_store(path, logs, read_only_commit_log_store_paths=logs)


def test_a_full_folder_is_passed_over_and_keeps_no_file_of_that_name(tmp_path: Path) -> None:
    path, logs = tmp_path / "store", folders(tmp_path, "a", "b")

    def full(operation: object) -> None:
        if operation.kind == "allocate" and "/b/" in operation.path:  # type: ignore[attr-defined]
            raise OSError(errno.ENOSPC, "No space left on device")

    files = FaultyFiles(full)
    with open_store(path, logs, files=files) as store:
        put_flagged(store, 10)
    assert (names(tmp_path / "a"), names(tmp_path / "b")) == ([0, 1, 2, 3], [])
    unlinked = max(o.number for o in files.operations if o.kind == "unlink" and "/b/" in o.path)
    assert any(o.kind == "sync_directory" and o.path.endswith("/b") and o.number > unlinked for o in files.operations)
    with open_store(path, logs) as store:
        put_flagged(store, 10, first=10)
    assert names(tmp_path / "b") == [5]
    assert flags(path, logs) == list(range(20))


def test_a_folder_that_is_not_mounted_is_named_and_nothing_is_changed(tmp_path: Path) -> None:
    path, logs = tmp_path / "store", folders(tmp_path, "a", "b")
    with open_store(path, logs) as store:
        put_flagged(store, 10)
    (tmp_path / "b").rename(tmp_path / "away")
    before = contents(tmp_path)
    for read_only in (True, False):
        with pytest.raises(StoreFormatError, match="/b: no such directory"):
            open_store(path, logs, read_only=read_only)
    with pytest.raises(StoreFormatError, match=r"after 0{20} the file 0{16}4096 is expected"):
        flags(path, folders(tmp_path, "a"))
    with pytest.raises(StoreFormatError, match="/b: no such directory"):
        flags(path, logs)
    assert contents(tmp_path) == before


def test_damage_is_told_from_the_end_by_a_later_file_in_another_folder(tmp_path: Path) -> None:
    path, logs = tmp_path / "store", folders(tmp_path, "a", "b")
    with open_store(path, logs) as store:
        offsets = [store.put_message(reput.Message("t", bytes(1000))).commit_log_offset for _ in range(5)]
    file = tmp_path / "a" / f"{0:020d}"
    flip(file, offsets[2] + BODY)
    with pytest.raises(CorruptRecordError, match=f"a whole record follows at offset {offsets[3]} of 0+{FILE_SIZE}"):
        flags(path, logs)


def test_a_file_that_lies_in_two_folders_is_refused(tmp_path: Path) -> None:
    path, logs = tmp_path / "store", folders(tmp_path, "a", "b")
    with open_store(path, logs) as store:
        put_flagged(store, 5)
    (tmp_path / "b" / f"{0:020d}").write_bytes((tmp_path / "a" / f"{0:020d}").read_bytes())
    for attempt in (lambda: flags(path, logs), lambda: open_store(path, logs)):
        with pytest.raises(StoreFormatError, match=r"the same file lies in .*/b; find out"):
            attempt()
