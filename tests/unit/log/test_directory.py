from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import reput
from reput.errors import StoreError, StoreFormatError
from reput.files import FileLayer
from reput.files.layer import Entry
from reput.formats.checkpoint import Checkpoint, encode_checkpoint
from reput.jobs.archive import archive
from reput.jobs.audit.job import audit
from reput.jobs.backup import backup
from reput.jobs.runner import LocalRunner
from reput.log import LogFile, StoreDirectory
from reput.log.directory import numbered_files

GOLDEN = Path(__file__).parents[2] / "golden" / "5.3.3"
FIRST, SECOND, THIRD = (f"{offset:020d}" for offset in (0, 100, 200))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "commitlog").mkdir()
    for name in (FIRST, SECOND):
        (tmp_path / "commitlog" / name).write_bytes(bytes(100))
    return tmp_path


def test_log_files_have_the_size_that_they_have(store: Path) -> None:
    folder = store / "commitlog"
    (folder / "a-folder").mkdir()  # RocketMQ passes over folders
    assert StoreDirectory(store).log_files() == [
        LogFile(str(folder / FIRST), 0, 100),
        LogFile(str(folder / SECOND), 100, 100),
    ]


def test_an_empty_last_file_counts_as_absent(store: Path) -> None:
    (store / "commitlog" / THIRD).touch()
    assert [file.start_offset for file in StoreDirectory(store).log_files()] == [0, 100]


class ListingBesideAWriter(FileLayer):
    """The first listing lacks a file that was made during it; each listing has one more at the log's end."""

    def __init__(self) -> None:
        self.listings = 0

    def list_directory(self, path: str) -> list[Entry]:
        self.listings += 1
        entries = [entry for entry in super().list_directory(path) if self.listings > 1 or entry.name != SECOND]
        (Path(path) / f"{(2 + self.listings) * 100:020d}").write_bytes(bytes(100))
        return entries


def test_a_file_that_a_listing_beside_a_writer_lacks_is_no_gap(store: Path) -> None:
    (store / "commitlog" / THIRD).write_bytes(bytes(100))
    files = ListingBesideAWriter()
    found = numbered_files(files, str(store / "commitlog"))
    assert [file.start_offset for file in found] == [0, 100, 200]
    assert files.listings == 2


def test_of_files_without_a_byte_none_has_the_usual_size(store: Path) -> None:
    for file in (store / "commitlog").iterdir():
        file.write_bytes(b"")
    with pytest.raises(StoreFormatError, match=rf"{FIRST}: 0 bytes long; restore it"):
        StoreDirectory(store).log_files()


def test_a_file_that_is_longer_than_rocketmq_s_is_refused(store: Path) -> None:
    for number, name in enumerate((FIRST, SECOND)):
        (store / "commitlog" / name).unlink()
        with (store / "commitlog" / f"{number << 32:020d}").open("wb") as file:
            file.truncate(1 << 32)  # sparse
    with pytest.raises(StoreFormatError, match=rf"{FIRST}: 4294967296 bytes long, expected at most 2147483647, which"):
        StoreDirectory(store).log_files()
    with pytest.raises(StoreFormatError, match="expected at most 2147483647"):
        reput.MessageStore.open(store, read_only=True)
    result = audit(store, runner=LocalRunner(1))
    assert [finding.code for finding in result.findings][:2] == ["file-size"] * 2
    assert not result.is_clean


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        ("notes.txt", 3, r"notes\.txt: a foreign file: its name is no offset of 20 digits; move it away"),
        ("100", 100, r"100: a foreign file"),
        ("9" * 20, 100, r"9{20}: a foreign file"),
        (THIRD, 99, rf"{THIRD}: 99 bytes long, but the files beside it 100; restore it from a copy"),
        (FIRST, 0, rf"{FIRST}: 0 bytes long"),
        (f"{300:020d}", 100, rf"after {SECOND} the file {THIRD} is expected, but the next one is 0+300; restore"),
        (f"{150:020d}", 100, r"0+150: its name is no multiple of its 100 bytes"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_name(store: Path, name: str, size: int, message: str) -> None:
    (store / "commitlog" / "x").mkdir()
    (store / "commitlog" / THIRD).write_bytes(bytes(100)) if name == FIRST else None
    (store / "commitlog" / name).write_bytes(bytes(size))
    with pytest.raises(StoreFormatError, match=message) as raised:
        StoreDirectory(store).log_files()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nothing", r"nothing: no such directory; check the path"),
        ("a-file", r"a-file: a file, not a directory; give the directory of a store"),
        ("a-folder", r"a-folder: no store: it has no folder commitlog.*storePathRootDir"),
    ],
)
def test_what_is_no_store_is_refused(tmp_path: Path, path: str, message: str) -> None:
    (tmp_path / "a-file").touch()
    (tmp_path / "a-folder").mkdir()
    with pytest.raises(StoreFormatError, match=message):
        StoreDirectory(tmp_path / path)


@pytest.mark.parametrize("copy", [backup, archive])
@pytest.mark.parametrize(
    "use",
    [
        reput.read_log,
        reput.MessageStore.open,
        lambda path: reput.MessageStore.open(path, read_only=True),
        lambda path: audit(path, runner=LocalRunner(1)),
        lambda path: backup(path, f"{path}-2", runner=LocalRunner(1)),
        lambda path: archive(path, f"{path}-2", runner=LocalRunner(1)),
    ],
)
def test_a_copy_of_a_store_is_no_store(tmp_path: Path, copy: Callable[..., Any], use: Callable[[str], Any]) -> None:
    """It has the store's folder `config`, and so seemed to be a store without a message."""
    with reput.MessageStore.open(tmp_path / "store", mapped_file_size_commit_log=1 << 16) as store:
        store.put_messages([reput.Message("orders", bytes(1000))] * 100)
    path = str(tmp_path / "copy")
    copy(tmp_path / "store", path, runner=LocalRunner(1))
    before = {file: file.read_bytes() for file in Path(path).rglob("*") if file.is_file()}
    with pytest.raises(StoreFormatError, match=f"no store: .*`reput restore {path} FOLDER`"):
        use(path)
    assert {file: file.read_bytes() for file in Path(path).rglob("*") if file.is_file()} == before
    assert not Path(f"{path}-2").exists()


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "config"])
def test_a_store_without_messages_may_lack_any_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    directory = StoreDirectory(tmp_path)
    assert directory.log_files() == directory.queues() == directory.index_files() == []
    assert directory.checkpoint() is None
    assert not directory.was_killed


def test_the_commit_log_may_be_elsewhere(store: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("root")
    directory = StoreDirectory(root, commit_log_path=store / "commitlog")
    assert [file.start_offset for file in directory.log_files()] == [0, 100]
    with pytest.raises(StoreFormatError, match="elsewhere: no such directory"):
        StoreDirectory(store, commit_log_path=store / "elsewhere")


def _audit(path: Path, *, commit_log_path: Path) -> object:
    return audit(path, commit_log_path=commit_log_path, runner=LocalRunner())


def _make(path: Path, *, commit_log_path: Path) -> object:
    return reput.MessageStore.open(path / "new", store_path_commit_log=str(commit_log_path))


@pytest.mark.parametrize("use", [StoreDirectory, _audit, _make])
def test_a_store_named_as_the_folder_of_its_log_is_refused_with_the_folder_to_name(
    store: Path, use: Callable[..., object]
) -> None:
    (store / "checkpoint").write_bytes(bytes(4096))  # no foreign file, to be moved away
    with pytest.raises(StoreFormatError, match=f"{store}: the log is not in this folder .*; name {store}/commitlog$"):
        use(store, commit_log_path=store)


def test_a_log_beside_another_log_may_be_read(store: Path) -> None:
    (store / FIRST).write_bytes(bytes(100))
    assert len(StoreDirectory(store, commit_log_path=store).log_files()) == 1


def test_a_relative_path_becomes_absolute(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(store)
    directory = StoreDirectory(".")
    assert directory.path == str(store)
    assert directory.name == store.name
    assert all(os.path.isabs(file.path) for file in directory.log_files())


def test_queues_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for queue in ("10", "9", "empty-folder", "notes", "09"):
        (tmp_path / "consumequeue" / "orders" / queue).mkdir(parents=True)
    (tmp_path / "consumequeue" / "orders" / "09" / FIRST).write_bytes(bytes(100))  # it would be queue 9, too
    for queue in ("9", "10"):
        for name in (FIRST, SECOND):
            (tmp_path / "consumequeue" / "orders" / queue / name).write_bytes(bytes(100))
    (tmp_path / "consumequeue" / "orders" / "11").mkdir()
    queues = StoreDirectory(tmp_path).queues()
    assert [(queue.topic, queue.queue_id, len(queue.paths), queue.file_size) for queue in queues] == [
        ("orders", 9, 2, 100),
        ("orders", 10, 2, 100),
    ]


def test_index_files_come_oldest_first_and_a_foreign_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    for name in ("20240102000000000", "20240101000000000"):
        (tmp_path / "index" / name).write_bytes(bytes(60))
    directory = StoreDirectory(tmp_path)
    assert [(Path(file.path).name, file.size) for file in directory.index_files()] == [
        ("20240101000000000", 60),
        ("20240102000000000", 60),
    ]
    (tmp_path / "index" / "2024").touch()
    with pytest.raises(StoreFormatError, match="2024: no index file"):
        directory.index_files()


def test_checkpoint_and_abort_are_told(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_bytes(encode_checkpoint(Checkpoint(3, 2, 1)))
    (tmp_path / "abort").touch()
    directory = StoreDirectory(tmp_path)
    assert directory.checkpoint() == Checkpoint(3, 2, 1)
    assert directory.was_killed


def test_a_folder_that_cannot_be_listed_is_named(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    directory = StoreDirectory(store)
    monkeypatch.setattr(os, "scandir", refuse)  # the tests may run as root, who may read everything
    with pytest.raises(StoreError, match="commitlog: cannot list: permission denied; check owner and mode"):
        directory.log_files()


@pytest.mark.parametrize(
    ("case", "log_files", "queues", "index_files", "was_killed"),
    [("clean", 4, 24, 2, False), ("killed", 5, 24, 2, True), ("retention", 2, 12, 2, False), ("empty", 0, 0, 0, False)],
)
def test_directories_of_rocketmq_are_understood(
    case: str, log_files: int, queues: int, index_files: int, was_killed: bool
) -> None:
    directory = StoreDirectory(GOLDEN / case / "store")
    found = len(directory.log_files()), len(directory.queues()), len(directory.index_files()), directory.was_killed
    assert found == (log_files, queues, index_files, was_killed)
