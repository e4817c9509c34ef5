"""File sizes: those of the store's own files, or asked for by a text that can be followed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import reput
from tests.support.commands import SMALL_FILES, Run, content_of


@pytest.mark.parametrize("broker_conf", [False, True])
def test_a_put_into_a_store_that_is_there_takes_the_sizes_of_its_files(
    store: Path, tmp_path: Path, run_reput: Run, broker_conf: bool
) -> None:
    (tmp_path / "broker.conf").write_text("brokerName=a\n")
    options = ("--config", tmp_path / "broker.conf") if broker_conf else ()
    answer = run_reput("put", store, "--topic", "orders", "--body", "x", "--key", "new", *options)
    assert answer.status == 0, answer.err
    assert {path.stat().st_size for path in (store / "commitlog").iterdir()} == {65536}
    assert {path.stat().st_size for path in (store / "consumequeue").rglob("0" * 20)} == {2000}
    assert {path.stat().st_size for path in (store / "index").iterdir()} == {8440}
    assert "new" in run_reput("query", store, "--topic", "orders", "--key", "new").out
    assert run_reput("delete-expired", store, *options).status == 0


def test_a_log_elsewhere_and_batch_queues_and_extensions_tell_their_sizes(tmp_path: Path, run_reput: Run) -> None:
    sizes = ("--set", "mappedFileSizeConsumeQueueExt=6400", "--set", "mapperFileSizeBatchConsumeQueue=4600")
    log = ("--set", f"storePathCommitLog={tmp_path}/log", "--set", "enableConsumeQueueExt=true")
    put = ("put", tmp_path / "s", "--topic", "t", "--body", "x", "--tags", "a", *log)
    assert run_reput(*put, *SMALL_FILES, *sizes).status == 0
    answer = run_reput(*put)
    assert answer.status == 0, answer.err
    assert {path.stat().st_size for path in (tmp_path / "log").iterdir()} == {65536}
    assert {path.stat().st_size for path in (tmp_path / "s/consumequeue_ext").rglob("0" * 20)} == {6400}


@pytest.mark.parametrize("command", [("put", "--topic", "orders", "--body", "x"), ("delete-expired",)])
def test_the_odd_size_of_an_only_queue_file_that_was_cut_is_not_taken(
    store: Path, run_reput: Run, command: tuple[str, ...]
) -> None:
    shutil.rmtree(store / "consumequeue/orders/1")
    (store / "config/reputShutdown.json").unlink()
    (file,) = (store / "consumequeue/orders/0").iterdir()
    os.truncate(file, 60)
    before = content_of(store)
    name, *arguments = command
    answer = run_reput(name, store, *arguments)
    assert (answer.status, answer.err.count("\n")) == (2, 1)
    assert f"{file}: damaged at offset 60" in answer.err
    assert content_of(store) == before


def test_an_index_that_does_not_tell_its_numbers_is_asked_for_and_every_reader_takes_them(
    tmp_path: Path, run_reput: Run
) -> None:
    path = tmp_path / "s"
    assert run_reput("put", path, "--topic", "t", "--body", "x", "--key", "k", *SMALL_FILES).status == 0
    (index,) = (path / "index").iterdir()
    data = bytearray(index.read_bytes())
    index.write_bytes(data[:36] + (1).to_bytes(4, "big") + bytes(8400))  # as it is made, with no entry yet
    numbers = ("--set", "maxHashSlotNum=100", "--set", "maxIndexNum=400")
    for command, *arguments in (
        ("get", "--topic", "t"),
        ("query", "--commit-log-offset", "0"),
        ("info",),
        ("top", "--once", "--interval", "0"),
        ("dump", "--what", "index"),
        ("put", "--topic", "t", "--body", "x"),
    ):
        answer = run_reput(command, path, *arguments)
        assert (answer.status, answer.out) == (2, "")
        assert "--set maxHashSlotNum=N --set maxIndexNum=N" in answer.err
        assert run_reput(command, path, *arguments, *numbers).status == 0
    answer = run_reput("info", path, "--set", "listenPort=1")
    assert (
        answer.err
        == "reput: --set listenPort: this command only reads, and takes maxHashSlotNum and maxIndexNum only\n"
    )


def test_sizes_that_contradict_the_files_are_refused_with_what_to_write(store: Path, run_reput: Run) -> None:
    for setting, told in (
        ("mappedFileSizeCommitLog=131072", "give mappedFileSizeCommitLog=65536 (to a command: --set)"),
        ("mappedFileSizeConsumeQueue=4000", "give mappedFileSizeConsumeQueue=2000 (to a command: --set)"),
    ):
        answer = run_reput("put", store, "--topic", "orders", "--body", "x", "--set", setting)
        assert answer.status == 2
        assert told in answer.err
    with reput.MessageStore.open(store, read_only=True) as opened:
        assert opened.max_offset("orders", 0) == 4
