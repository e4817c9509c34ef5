"""A store whose queues are in a RocksDB answers a reader as it did with queue files."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import reput
from reput.errors import CorruptConsumeQueueError, StoreFormatError
from reput.jobs.diff.job import diff
from reput.jobs.rebuild.job import rebuild
from reput.jobs.runner import LocalRunner
from reput.log.all_queues import all_queues
from reput.log.directory import StoreDirectory
from tests.support.commands import run_reput
from tests.support.faulty_files import FaultyFiles
from tests.support.invariants import SMALL, contents
from tests.support.rocksdb import units_of, write_units

MESSAGES = 400
FOLDERS = ["consumequeue", "consumequeue_rocksdb"]


@pytest.fixture
def with_files(tmp_path: Path) -> Path:
    path = tmp_path / "files"
    with reput.MessageStore.open(path, files=FaultyFiles(), **SMALL) as store:
        for number in range(MESSAGES):
            topic = "orders" if number % 4 else "items"
            tags = "a" if number % 3 else "b"
            store.put_message(reput.Message(topic, bytes(300), tags=tags, keys=[f"k{number}"]), number % 3)
    return path


def with_database(files: Path, folder: str) -> Path:
    """The store with its units in a database."""
    path = files.with_name("database")
    shutil.copytree(files, path)
    shutil.rmtree(path / "consumequeue")
    write_units(path / folder, units_of(files))
    return path


def told(path: Path) -> list[Any]:
    """Answers of all verbs that read queues, but the store's path."""
    answers: list[Any] = []
    with reput.MessageStore.open(path, read_only=True) as store:
        answers.append(store.queues())
        for topic, queue_id, low, high in store.queues():
            for offset in (-1, low, low + 5, high - 1, high, high + 9):
                for tags in (None, "a", "c"):
                    pulled = store.get_message(topic, queue_id, offset, 32, tags)
                    answers.append((pulled.status, [message.message_id for message in pulled.messages()]))
                answers.append(store.units(topic, queue_id, offset, 3))
                answers.append(store.message_store_timestamp(topic, queue_id, offset))
            answers.append(store.offset_by_time(topic, queue_id, store.message_store_timestamp(topic, queue_id, low)))
        answers.append([store.query_message("orders", f"k{number}") for number in (1, 2, 3)])
        answers.append([(info.topic, info.queues, info.messages) for info in store.runtime_info().topics])
        answers.append(store.recovery.damage)
    return answers


def all_messages(path: Path) -> list[tuple[str, int, int, int]]:
    """Every message, by pulls from the begin of each queue."""
    found = []
    with reput.MessageStore.open(path, read_only=True) as store:
        for topic, queue_id, offset, high in store.queues():
            while offset < high:
                pulled = store.get_message(topic, queue_id, offset)
                found += [(topic, queue_id, one.queue_offset, one.commit_log_offset) for one in pulled.messages()]
                assert pulled.next_begin_offset > offset
                offset = pulled.next_begin_offset
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_reader_is_answered_as_by_queue_files(with_files: Path, folder: str) -> None:
    path = with_database(with_files, folder)
    before = contents(path)
    assert str(told(path)) == str(told(with_files))
    assert all_messages(path) == all_messages(with_files)
    assert len(all_messages(path)) == MESSAGES
    assert contents(path) == before


def test_a_queue_is_read_where_it_reaches_further(with_files: Path) -> None:
    path = with_database(with_files, "consumequeue_rocksdb")
    for topic in ("orders", "items"):
        shutil.copytree(with_files / "consumequeue" / topic, path / "consumequeue" / topic)
    assert all_queues(StoreDirectory(path)).files is StoreDirectory(path).files
    shutil.rmtree(path / "consumequeue" / "items")
    queue = path / "consumequeue" / "orders" / "1"
    for file in sorted(queue.iterdir())[2:]:
        file.unlink()
    assert all_messages(path) == all_messages(with_files)


def test_the_begin_of_a_queue_is_that_of_the_log(with_files: Path) -> None:
    path = with_database(with_files, "consumequeue")
    for store in (path, with_files):
        for file in sorted((store / "commitlog").iterdir())[:9]:
            file.unlink()
    assert str(told(path)) == str(told(with_files))
    with reput.MessageStore.open(path, read_only=True) as opened:
        assert all(queue.min_offset > 0 for queue in opened.queues())


@pytest.mark.parametrize("folder", FOLDERS)
def test_units_of_a_database_are_compared_with_rebuilt_ones(with_files: Path, folder: str, tmp_path: Path) -> None:
    path, built = with_database(with_files, folder), tmp_path / "built"
    rebuild(path, built, runner=LocalRunner(threads=1), mapped_file_size_consume_queue=160)
    assert contents(built / "consumequeue") == contents(with_files / "consumequeue")
    result = diff(path, built, runner=LocalRunner(threads=1))
    assert (result.is_equal, result.of_queues, result.left_messages) == (True, True, MESSAGES)


def test_without_the_package_a_comparison_of_units_says_what_to_install(
    with_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, built = with_database(with_files, "consumequeue"), tmp_path / "built"
    rebuild(path, built, runner=LocalRunner(threads=1))
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    with pytest.raises(StoreFormatError, match=r"RocksDB.*pip install 'reput\[rocksdb\]'"):
        diff(path, built, runner=LocalRunner(threads=1))
    assert diff(path, with_files, runner=LocalRunner(threads=1)).is_equal


@pytest.mark.parametrize("is_hidden", [False, True])
def test_a_tail_is_refused_as_it_would_wait_for_ever(
    with_files: Path, is_hidden: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = with_database(with_files, "consumequeue")
    if is_hidden:
        monkeypatch.setitem(sys.modules, "rocksdict", None)
    with reput.MessageStore.open(path, read_only=True) as store:
        for topic in ("orders", "new"):
            with pytest.raises(StoreFormatError, match="a tail follows queue files"):
                store.tail(topic)


@pytest.mark.parametrize("damaged", ["CURRENT", "*.sst"])
def test_a_damaged_database_is_told_in_one_line_and_the_log_is_read(with_files: Path, damaged: str) -> None:
    path = with_database(with_files, "consumequeue")
    (file,) = (path / "consumequeue").glob(damaged)
    file.write_bytes(b"\xff" * file.stat().st_size)
    with pytest.raises(CorruptConsumeQueueError, match=r"consumequeue.*the RocksDB of the queues: ") as caught:
        reput.MessageStore.open(path, read_only=True)
    assert "\n" not in str(caught.value)
    assert reput.read_log(path).read_all().num_rows == MESSAGES
    answer = run_reput("info", path)
    assert (answer.status, answer.err.count("\n")) == (1, 1)


def test_the_commands_answer_from_a_database(with_files: Path) -> None:
    path = with_database(with_files, "consumequeue")
    info = run_reput("info", path, "--json").object()
    assert [queue["max_offset"] for queue in info["queues"]] == [34, 33, 33, 100, 100, 100]
    got = run_reput("get", path, "--topic", "orders", "--queue-id", "1", "--offset", "5", "--json")
    assert got.status == 0
    assert '"status": "FOUND"' in got.err
    assert run_reput("query", path, "--topic", "orders", "--key", "k1", "--json").object()["keys"] == ["k1"]


def test_the_commands_say_what_is_not_read(with_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = with_database(with_files, "consumequeue")
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    info = run_reput("info", path)
    assert (info.status, info.err) == (0, "")
    assert "pip install 'reput[rocksdb]'" in info.out
    got = run_reput("get", path, "--topic", "orders", "--queue-id", "1")
    assert "the queues of this store are not read; `reput dump" in got.err
    assert run_reput("query", path, "--topic", "orders", "--key", "k1", "--json").object()["keys"] == ["k1"]
    for statement in (["--topics", "orders", "--key", "k1"], ["--sql", "select * from messages"]):
        assert run_reput("query", path, *statement, "--json").status == 0
    dump = run_reput("dump", path, "--what", "queue", "--topic", "orders")
    assert "there is no topic" not in dump.err
