"""Stores of RocketMQ with queues in a RocksDB or a log of DLedger: named, left alone, and what is said to do helps."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import reput
from reput.errors import StoreFormatError
from reput.jobs.audit.job import audit
from reput.jobs.rebuild.job import rebuild
from reput.jobs.runner import LocalRunner
from tests.support.faulty_files import FaultyFiles
from tests.support.invariants import contents
from tests.support.rocketmq import workload
from tests.support.rocketmq.apache import VERSIONS, Apache
from tests.support.rocketmq.stores import SINCE_5, SMALL
from tests.support.rocketmq.witness import check_agreement, open_apache
from tests.support.sockets import free_ports

pytestmark = pytest.mark.java

ROCKSDB = {"storeType": "defaultRocksDB"}


def write(apache: Apache, path: Path, options: dict[str, Any]) -> list[int]:
    """A store with a hundred messages; returns where their records begin."""
    open_apache(apache, path, SMALL | options)
    results = apache.run("put", messages=workload.messages(100))
    assert {result["status"] for result in results} == {"PUT_OK"}
    apache.run("close")
    return [result["commit_log_offset"] for result in results]


def read_by_queues(path: Path) -> list[int]:
    """Commit log offsets of the messages that reput pulls from the queues, in order."""
    offsets = []
    with reput.MessageStore.open(path, read_only=True) as store:
        for topic, queue_id, offset, end in store.queues():
            while offset < end:
                pulled = store.get_message(topic, queue_id, offset)
                offsets += [message.commit_log_offset for message in pulled.messages()]
                offset = pulled.next_begin_offset
    return sorted(offsets)


def assert_clean(path: Path, units: int) -> None:
    """All units are right, and nothing is called foreign."""
    result = audit(path, runner=LocalRunner(threads=1))
    assert [str(finding) for finding in result.findings] == []
    assert result.units == units


@pytest.mark.parametrize("apache", SINCE_5, indirect=True)
def test_of_a_store_with_queues_in_a_rocksdb_the_log_is_read_and_queues_are_built_from_it(
    apache: Apache, tmp_path: Path
) -> None:
    path, built = tmp_path / "store", tmp_path / "built"
    offsets = write(apache, path, ROCKSDB)
    before = contents(path)
    with pytest.raises(StoreFormatError, match=r"consumequeue: the consume queues are in a RocksDB .*reput rebuild"):
        reput.MessageStore.open(path, **SMALL)
    assert read_by_queues(path) == offsets
    assert_clean(path, len(offsets))
    assert reput.read_log(path).read_all()["commit_log_offset"].to_pylist() == offsets
    geometry = {name: SMALL[name] for name in ("mapped_file_size_consume_queue", "max_hash_slot_num", "max_index_num")}
    rebuild(path, built, runner=LocalRunner(threads=1), **geometry)
    assert contents(path) == before
    for name in ("consumequeue", "index"):
        shutil.rmtree(path / name)
        (built / name).rename(path / name)
    ours = shutil.copytree(path, tmp_path / "ours")
    open_apache(apache, path, SMALL)
    with reput.MessageStore.open(ours, files=FaultyFiles(), **SMALL) as store:
        told = check_agreement(store, apache)
    apache.run("close")
    assert sorted(told.records) == offsets
    assert sum(len(queue.messages) for queue in told.queues.values()) == len(offsets)


@pytest.mark.parametrize("apache", ["5.5.0"], indirect=True)
def test_of_a_store_with_queues_in_files_and_in_a_rocksdb_the_files_are_read(apache: Apache, tmp_path: Path) -> None:
    path = tmp_path / "store"
    offsets = write(apache, path, {"rocksdbCQDoubleWriteEnable": True})
    before = contents(path)
    assert read_by_queues(path) == offsets
    assert_clean(path, len(offsets))
    with pytest.raises(StoreFormatError, match="consumequeue: there are units in a RocksDB beside the queue files"):
        reput.MessageStore.open(path, **SMALL)
    assert contents(path) == before


@pytest.mark.parametrize("apache", ["5.5.0"], indirect=True)
def test_queues_in_a_folder_of_their_own_are_read(apache: Apache, tmp_path: Path) -> None:
    path = tmp_path / "store"
    offsets = write(apache, path, ROCKSDB | {"useSeparateStorePathForRocksdbCQ": True})
    assert (path / "consumequeue_rocksdb" / "CURRENT").exists()
    assert read_by_queues(path) == offsets
    assert_clean(path, len(offsets))


@pytest.mark.parametrize("apache", VERSIONS, indirect=True)
def test_a_log_of_dledger_is_named_and_not_touched(apache: Apache, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    peers = f"n0-127.0.0.1:{port}"
    path = tmp_path / "store"
    group = {"enableDLegerCommitLog": True, "dLegerGroup": "g", "dLegerPeers": peers, "dLegerSelfId": "n0"}
    write(apache, path, group)
    before = contents(path)
    for attempt in (
        lambda: reput.read_log(path),
        lambda: reput.MessageStore.open(path, read_only=True),
        lambda: reput.MessageStore.open(path, **SMALL),
        lambda: rebuild(path, tmp_path / "built", runner=LocalRunner(threads=1)),
    ):
        with pytest.raises(StoreFormatError, match=r"dledger-n0/data: a DLedger log .* let a broker without DLedger"):
            attempt()
    assert contents(path) == before
    assert not (tmp_path / "built").exists()
