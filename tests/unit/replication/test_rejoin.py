"""A former master that follows the new one: what it gives up is shown, kept, and gone from its log."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest

from reput import Broker, Message, MessageStore, ReplicationError, StoreLockedError
from reput.client.sync import Producer
from reput.jobs.audit.job import audit
from reput.jobs.findings import FindingClass
from reput.jobs.runner import LocalRunner
from reput.replication.follower import Follower
from reput.replication.rejoin import Rejoin, rejoin
from tests.support.broker import SMALL
from tests.support.fake_master import log_of
from tests.support.shares import sampled
from tests.support.sockets import free_ports

LOCAL = {"bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1"}
FILE_SIZE = SMALL["mapped_file_size_commit_log"]
BODY = b"x" * 30_000


def log_bytes(path: Path, end: int) -> bytes:
    return log_of(path, end)[1]


def put_topic(path: Path, count: int, topic: str, body: bytes = b"x") -> int:
    with MessageStore.open(path, **SMALL) as store:
        for number in range(count):
            store.put_message(Message(topic, body + b"%d" % number, keys=[f"{topic}-{number}"]))
        return store.max_commit_log_offset


@contextmanager
def master(path: Path, sends: int) -> Iterator[Broker]:
    (port,) = free_ports(1)
    with Broker.start(path, **SMALL, **LOCAL, ha_listen_port=port) as broker:
        with Producer(broker.namesrv, group="p") as producer:
            for number in range(sends):
                producer.send(Message("new", b"%d" % number))
        yield broker


def tried(path: Path, broker: Broker, *, apply: bool = False) -> Rejoin:
    return rejoin(path, broker.address, apply=apply, runner=LocalRunner())


@sampled(4)
@pytest.mark.parametrize("common", [1, 10, 100])  # messages: the end, and several files before it
@pytest.mark.parametrize("own", [1, 80])
@pytest.mark.parametrize("sends", [0, 1, 50])
def test_a_store_keeps_beside_what_only_it_has_and_follows(tmp_path: Path, common: int, own: int, sends: int) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    end = put_topic(old, common, "both", BODY)
    shutil.copytree(old, new)
    whole = put_topic(old, own, "lost", BODY)
    before = log_bytes(old, whole)
    with master(new, sends) as broker:
        shown = tried(old, broker)
        assert (shown.common_offset, shown.end_offset, shown.kept) == (end, whole, ())
        assert [(one.topic, one.messages) for one in shown.topics] == [("lost", own)]
        assert log_bytes(old, whole) == before
        done = tried(old, broker, apply=True)
        assert done.repair is not None
        assert done.repair.is_fine
        kept = sorted(done.kept)
        first = Path(kept[0]).read_bytes()
        assert first[end % FILE_SIZE :].rstrip(b"\0") == before[end : end - end % FILE_SIZE + FILE_SIZE].rstrip(b"\0")
        with MessageStore.open(old, **SMALL) as store:
            assert store.max_commit_log_offset == end
            follower = Follower(store, broker.address)
            follower.run(Event(), once=True)
            store.wait_dispatched()
            end = follower.state.end_offset
            assert store.query_message("lost", "lost-0") == []
            assert len(store.query_message("both", "both-0")) == 1
        assert log_bytes(old, end) == log_bytes(new, end)
    numbers = {name: SMALL[name] for name in ("max_hash_slot_num", "max_index_num")}
    found = audit(old, runner=LocalRunner(), **numbers).findings  # an index of few entries does not tell them
    assert [one for one in found if one.kind.finding_class is not FindingClass.HARMLESS] == []


def test_sizes_that_no_file_tells_are_given(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    put_topic(old, 3, "both")
    shutil.copytree(old, new)
    put_topic(old, 1, "lost")
    for folder in ("consumequeue", "index"):  # as a power cut may take them
        shutil.rmtree(old / folder)
    names = ("mapped_file_size_consume_queue", "max_hash_slot_num", "max_index_num")
    with master(new, 0) as broker:
        done = rejoin(old, broker.address, apply=True, runner=LocalRunner(), **{name: SMALL[name] for name in names})
    assert done.repair is not None
    assert done.repair.is_fine
    with MessageStore.open(old, **SMALL) as store:
        assert len(store.query_message("both", "both-0")) == 1


def test_nothing_is_given_up_where_the_master_has_it_all(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    end = put_topic(old, 3, "both")
    shutil.copytree(old, new)
    with master(new, 5) as broker:
        done = tried(old, broker, apply=True)
        assert (done.common_offset, done.end_offset, done.topics, done.kept) == (end, end, (), ())


def test_a_store_of_another_history_is_left_alone(tmp_path: Path) -> None:
    end = put_topic(tmp_path / "old", 50, "lost", BODY)
    before = log_bytes(tmp_path / "old", end)
    with (
        master(tmp_path / "new", 5) as broker,
        pytest.raises(ReplicationError, match="has no record in common with that of"),
    ):
        tried(tmp_path / "old", broker, apply=True)
    assert log_bytes(tmp_path / "old", end) == before


def test_a_store_that_is_open_is_not_cut(tmp_path: Path) -> None:
    put_topic(tmp_path / "old", 1, "both")
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    with (
        master(tmp_path / "new", 1) as broker,
        MessageStore.open(tmp_path / "old", **SMALL),
        pytest.raises(StoreLockedError),
    ):
        tried(tmp_path / "old", broker, apply=True)


def test_a_cut_that_was_killed_goes_on(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    end = put_topic(old, 60, "both", BODY)
    shutil.copytree(old, new)
    put_topic(old, 80, "lost", BODY)
    with master(new, 5) as broker:
        files = sorted((old / "commitlog").iterdir())
        newest = files[-1].read_bytes()
        files[-1].write_bytes(bytes(len(newest)))  # the last file is cut first
        done = tried(old, broker, apply=True)
        assert done.repair is not None
        assert done.repair.is_fine
        with MessageStore.open(old, **SMALL) as store:
            assert store.max_commit_log_offset == end
