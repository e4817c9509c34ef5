"""Stores with parts that reput does not read: what is a plain log is read, and the rest is named with what to do."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import reput
from reput.config.message_store import MessageStoreConfig
from reput.errors import CorruptConsumeQueueError, StoreFormatError
from reput.jobs.rebuild.job import rebuild
from reput.jobs.runner import LocalRunner
from tests.support.commands import run_reput
from tests.support.faulty_files import FaultyFiles
from tests.support.invariants import SMALL, check_rebuild, check_store, contents


def dledger(path: Path) -> None:
    (path / "dledger-n0" / "data").mkdir(parents=True)
    (path / "dledger-n0" / "data" / f"{0:020d}").write_bytes(b"\0\0\0\1" + bytes(4092))


def rocksdb_of_5_3(path: Path) -> None:
    for file in sorted((path / "consumequeue").rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    (path / "consumequeue" / "CURRENT").write_text("MANIFEST-000001\n")


def rocksdb_of_5_5(path: Path) -> None:
    rocksdb_of_5_3(path)
    (path / "consumequeue" / "CURRENT").unlink()
    rocksdb_beside_files(path)


def rocksdb_beside_files(path: Path) -> None:
    (path / "consumequeue_rocksdb").mkdir()
    (path / "consumequeue_rocksdb" / "CURRENT").write_text("MANIFEST-000001\n")


def rocksdb_for_features(path: Path) -> None:
    (path / "rocksdbstore").mkdir()
    (path / "rocksdbstore" / "CURRENT").write_text("MANIFEST-000001\n")


def empty_dledger(path: Path) -> None:
    (path / "dledger-n0" / "data").mkdir(parents=True)


def tiered(path: Path) -> None:
    (path / "config" / "tieredStoreMetadata.json").write_text("{}")


def compaction(path: Path) -> None:
    (path / "compaction" / "compactionLog" / "t" / "0").mkdir(parents=True)


def position_checkpoint(path: Path) -> None:
    (path / "compaction").mkdir()
    (path / "compaction" / "position-checkpoint").touch()


def index_in_rocksdb(path: Path) -> None:
    rocksdb_for_features(path)
    (path / "rocksdbstore" / "000013.sst").write_bytes(b"rows")
    for file in (path / "index").iterdir():
        file.unlink()


class Case(NamedTuple):
    """What an operator's store is made by, and which ways in are open: "" or what the refusal says.

    `said` is the line about what a store that is open read-only does not show, and `queues` whether it shows queues.
    """

    make: Callable[[Path], None]
    read_log: str = ""
    read_only: str = ""
    writing: str = ""
    info: str = ""
    said: str = ""
    queues: bool = True


DLEDGER = r"dledger-n0/data: a DLedger log .*without DLedger.*storePathCommitLog"
ROCKSDB = r"the consume queues are in a RocksDB .*reput rebuild.*pip install 'reput\[rocksdb\]'"
BESIDE = r"consumequeue_rocksdb: there are units in a RocksDB beside .*pip install 'reput\[rocksdb\]'"
INDEX = "rocksdbstore: there are no index files.*RocksDB.*reput rebuild"
CASES = [
    Case(dledger, DLEDGER, DLEDGER, DLEDGER),
    Case(rocksdb_of_5_3, "", "", f"consumequeue: {ROCKSDB}", "RocksDB", said=f"consumequeue: {ROCKSDB}", queues=False),
    Case(
        rocksdb_of_5_5,
        "",
        "",
        f"consumequeue_rocksdb: {ROCKSDB}",
        "RocksDB",
        said=f"consumequeue_rocksdb: {ROCKSDB}",
        queues=False,
    ),
    Case(rocksdb_beside_files, "", "", BESIDE, "RocksDB", said=BESIDE),
    Case(index_in_rocksdb, info="RocksDB", said=INDEX),
    Case(rocksdb_for_features),
    Case(empty_dledger),
    Case(tiered, info="a tiered store"),
    Case(compaction, info="cleanup.policy=COMPACTION"),
    Case(position_checkpoint),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.make.__name__)
def test_the_plain_log_is_read_and_what_is_not_is_named_and_nothing_is_changed(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)  # as without the extra `rocksdb`
    path = tmp_path / "store"
    with reput.MessageStore.open(path, files=FaultyFiles(), **SMALL) as store:
        for number in range(20):
            store.put_message(reput.Message("t", bytes(300), keys=[f"k{number}"]))
    queues = contents(path / "consumequeue")
    case.make(path)
    before = contents(path)

    if case.read_log:
        for attempt in (
            lambda: reput.read_log(path),
            lambda: rebuild(path, tmp_path / "rebuilt", runner=LocalRunner(threads=1)),
        ):
            with pytest.raises(StoreFormatError, match=case.read_log):
                attempt()
        older = reput.read_log(path, commit_log_path=path / "commitlog")
        assert older.read_all().num_rows == 20
    else:
        assert reput.read_log(path).read_all().num_rows == 20
        rebuild(path, tmp_path / "rebuilt", runner=LocalRunner(threads=1), mapped_file_size_consume_queue=160)
        assert contents(tmp_path / "rebuilt" / "consumequeue") == queues

    if case.read_only:
        with pytest.raises(StoreFormatError, match=case.read_only):
            reput.MessageStore.open(path, read_only=True)
    else:
        caplog.clear()
        with reput.MessageStore.open(path, read_only=True) as store:
            assert store.max_offset("t", 0) == (20 if case.queues else 0)
            message = store.look_message_by_offset(0)
            assert message is not None
            assert message.topic == "t"
        said = [record.getMessage() for record in caplog.records]
        assert len(said) == bool(case.said)
        assert re.search(case.said, "".join(said))

    answer = run_reput("info", path)
    if case.read_log:
        assert answer.status == 2
        assert "DLedger" in answer.err
    else:
        assert answer.status == 0, answer.err
        assert case.info in answer.out
        assert bool(case.info) == bool(run_reput("info", path, "--json").object()["foreign_parts"])

    if case.writing:
        with pytest.raises(StoreFormatError, match=case.writing):
            reput.MessageStore.open(path, files=FaultyFiles(), **SMALL)
        assert contents(path) == before
    else:
        assert contents(path) == before
        with reput.MessageStore.open(path, files=FaultyFiles(), **SMALL) as store:
            store.put_message(reput.Message("t", b"more"))


def test_the_data_folder_of_a_dledger_is_no_commit_log(tmp_path: Path) -> None:
    dledger(tmp_path / "store")
    with pytest.raises(StoreFormatError, match=DLEDGER):
        reput.read_log(tmp_path / "store", commit_log_path=tmp_path / "store" / "dledger-n0" / "data")


@pytest.fixture
def small_store(tmp_path: Path) -> Path:
    """20 messages in files of other sizes than RocketMQ's defaults."""
    path = tmp_path / "store"
    with reput.MessageStore.open(path, files=FaultyFiles(), **SMALL) as store:
        for number in range(20):
            store.put_message(reput.Message("t", bytes(300), keys=[f"k{number}"]))
    return path


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("config", [None, MessageStoreConfig()])
def test_sizes_that_are_not_given_are_those_of_the_files(
    small_store: Path, tmp_path: Path, config: MessageStoreConfig | None, killed: bool
) -> None:
    if killed:
        (small_store / "abort").touch()
    with reput.MessageStore.open(small_store, files=FaultyFiles(), config=config) as store:
        for key in SMALL.keys() - {"mapper_file_size_batch_consume_queue"}:  # there are no such queues
            assert getattr(store.config, key) == SMALL[key], key
        for number in range(20, 60):
            store.put_message(reput.Message("t", bytes(300), keys=[f"k{number}"]))
        store.wait_dispatched()
        assert [store.query_message("t", f"k{number}")[0].queue_offset for number in range(60)] == list(range(60))
    assert len(check_store(small_store)) == 60
    check_rebuild(small_store, tmp_path / "rebuilt")


def test_a_size_that_is_given_and_differs_is_refused_also_where_it_is_the_default(small_store: Path) -> None:
    before = contents(small_store)
    default = MessageStoreConfig()
    for key in SMALL.keys() - {"mapper_file_size_batch_consume_queue"}:
        with pytest.raises(StoreFormatError, match=r"bytes, but|maxHashSlotNum"):
            reput.MessageStore.open(small_store, files=FaultyFiles(), **{key: getattr(default, key)})
    assert contents(small_store) == before


def test_the_only_queue_file_tells_no_size_where_it_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with reput.MessageStore.open(path, **SMALL) as store:
        for _ in range(5):
            store.put_message(reput.Message("t", b"x"))
    (file,) = (path / "consumequeue/t/0").iterdir()
    os.truncate(file, 60)
    before = contents(path)
    with pytest.raises(CorruptConsumeQueueError, match=re.escape(str(file.parent))):
        reput.MessageStore.open(path)
    assert contents(path) == before


def test_files_of_another_size_are_read_as_they_are_and_written_only_if_that_is_said(small_store: Path) -> None:
    path, before = small_store, contents(small_store)
    with reput.MessageStore.open(path, read_only=True) as store:
        assert (store.max_offset("t", 0), len(store.query_message("t", "k7"))) == (20, 1)
    assert run_reput("info", path).status == 0
    for key, size in SMALL.items():
        if key == "mapper_file_size_batch_consume_queue":  # there are no such queues
            continue
        other = SMALL | {key: 2 * size}
        with pytest.raises(StoreFormatError, match=r"bytes, but") as caught:
            reput.MessageStore.open(path, files=FaultyFiles(), **other)
        assert str(size) in str(caught.value) or "maxHashSlotNum, maxIndexNum" in str(caught.value)
    assert contents(path) == before
