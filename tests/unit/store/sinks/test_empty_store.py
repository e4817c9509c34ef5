"""A command that is refused leaves no new store, and no command removes one that has messages or is in use."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import reput
from reput.config.message_store import MessageStoreConfig
from reput.errors import StoreError
from reput.files import DISK
from reput.store.sinks.empty_store import no_empty_store
from reput.store.sinks.import_sink import ImportSink
from tests.support.commands import run_reput

CONFIG = MessageStoreConfig(mapped_file_size_commit_log=4096)
SOURCE = Path(__file__).parents[3] / "golden/5.3.3/clean/store"


def fail(path: Path, deed: Callable[[Path], None] = lambda path: None) -> None:
    """Make a store, do something, and fail."""
    failing = no_empty_store(path, CONFIG, DISK)
    failing.__enter__()
    reput.MessageStore.open(path, config=CONFIG).close()
    deed(path)
    error = StoreError("refused")
    assert not failing.__exit__(StoreError, error, None)


def put_first(path: Path) -> None:
    with reput.MessageStore.open(path, config=CONFIG) as store:
        store.put_message(reput.Message("t", b"x"))


def test_a_new_store_without_a_message_goes(tmp_path: Path) -> None:
    fail(tmp_path / "store")
    assert os.listdir(tmp_path) == []


def test_an_empty_folder_of_the_user_stays_and_is_empty_again(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir(mode=0o700)
    fail(tmp_path / "store")
    assert os.listdir(tmp_path / "store") == []
    assert (tmp_path / "store").stat().st_mode & 0o777 == 0o700


def test_a_store_with_a_message_stays(tmp_path: Path) -> None:
    fail(tmp_path / "store", put_first)
    assert reput.read_log(tmp_path / "store").read_all().num_rows == 1


def test_a_store_that_was_there_stays(tmp_path: Path) -> None:
    reput.MessageStore.open(tmp_path / "store", config=CONFIG).close()
    fail(tmp_path / "store")
    assert (tmp_path / "store/checkpoint").exists()


def test_a_store_that_is_open_stays(tmp_path: Path) -> None:
    opened: list[reput.MessageStore] = []
    fail(tmp_path / "store", lambda path: opened.append(reput.MessageStore.open(path, config=CONFIG)))
    opened[0].put_message(reput.Message("t", b"x"))
    opened[0].close()


def test_a_store_that_another_import_stages_for_stays(tmp_path: Path) -> None:
    sinks: list[ImportSink] = []
    fail(tmp_path / "store", lambda path: sinks.append(ImportSink(path, CONFIG, "other", files=DISK)))
    with sinks[0]:
        assert (tmp_path / "store/reputStaging/import-other").exists()


@pytest.mark.parametrize(
    "command",
    [
        ("import", "bad.parquet", "store"),
        ("replay", SOURCE, "store", "--set", "maxMessageSize=1"),
        ("put", "store", "--topic", "t", "--body", "x" * 200, "--set", "mappedFileSizeCommitLog=4096",
         "--set", "maxMessageSize=100"),
    ],
    ids=lambda command: command[0],
)  # fmt: skip
def test_a_refused_command_leaves_nothing(
    command: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    parquet.write_table(pa.table({"topic": ["t"], "body": [b"x"], "tags": ["a\x01b"]}), "bad.parquet")
    assert run_reput(*command).status == 2
    assert os.listdir(tmp_path) == ["bad.parquet"]


def test_a_put_on_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, position: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    answer = run_reput("put", tmp_path / "store", "--topic", "t", "--body", "x")
    assert (answer.status, "cannot" in answer.err) == (2, True)
    assert os.listdir(tmp_path) == []
