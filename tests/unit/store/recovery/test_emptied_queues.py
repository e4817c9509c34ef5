"""A queue whose messages have expired goes on at its next offset, also where its files are lost."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import reput
from reput.jobs.audit.job import audit
from reput.jobs.repair import repair
from reput.jobs.runner import LocalRunner
from tests.support.damage import overwrite
from tests.support.plants import SIZES, stored

END = 30
DAMAGES: dict[str, Callable[[Path], object]] = {
    "all queues": lambda store: shutil.rmtree(store / "consumequeue"),
    "the topic": lambda store: shutil.rmtree(store / "consumequeue/rare"),
    "its units": lambda store: overwrite(store / f"consumequeue/rare/0/{0:020}", 0, bytes(2000)),
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("emptied") / "store"
    with reput.MessageStore.open(path, **SIZES) as store:
        store.put_messages([reput.Message("rare", b"r") for _ in range(END)])
        store.put_messages([reput.Message("often", b"o" * 100) for _ in range(1500)])
        store.wait_dispatched()
        for file in sorted((path / "commitlog").iterdir())[:-2]:
            os.utime(file, (1, 1))
        store.delete_expired()
        shutil.copytree(path, path.with_name("killed"))
    return path


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("was_killed", [False, True])
@pytest.mark.parametrize("is_repaired", [False, True])
def test_a_queue_without_messages_goes_on_where_it_was(
    base: Path, tmp_path: Path, damage: str, was_killed: bool, is_repaired: bool
) -> None:
    path = tmp_path / "store"
    shutil.copytree(base.with_name("killed") if was_killed else base, path)
    DAMAGES[damage](path)
    assert "queue-offset-lost" in {finding.code for finding in audit(path, runner=LocalRunner(1)).findings}
    if is_repaired:
        repair(path, apply=True, runner=LocalRunner(1))
    with reput.MessageStore.open(path) as store:
        assert store.put_message(reput.Message("rare", b"new"), 0).queue_offset == END


def put_offset(store: Path, topic: str, offset: int) -> None:
    text = json.dumps({"offsetTable": {f"{topic}@g": {"0": offset}}})
    (store / "config/consumerOffset.json").write_text(text)


def test_a_group_at_0_says_nothing_of_a_queue_that_never_had_a_message(base: Path, tmp_path: Path) -> None:
    path = tmp_path / "store"
    shutil.copytree(base, path)
    with reput.MessageStore.open(path, **SIZES) as store:
        store.update_topic(reput.TopicConfig("quiet", 1, 1))
    put_offset(path, "quiet", 0)
    assert "queue-offset-lost" not in {finding.code for finding in audit(path, runner=LocalRunner(1)).findings}
    with reput.MessageStore.open(path) as store:
        assert "quiet" not in {queue.topic for queue in store.queues()}
        assert store.put_message(reput.Message("quiet", b"new"), 0).queue_offset == 0


def test_groups_ahead_of_a_slaves_queue_hide_no_message_that_is_to_come(base: Path, tmp_path: Path) -> None:
    master, slave = tmp_path / "master", tmp_path / "slave"
    for path in (master, slave):
        shutil.copytree(base, path)
        with reput.MessageStore.open(path, **SIZES) as store:
            store.update_topic(reput.TopicConfig("rare", 1, 1))
    end = sum(len(record.data) for record in stored(slave))
    with reput.MessageStore.open(master, **SIZES) as store:
        store.put_messages([reput.Message("rare", b"new%d" % n) for n in range(10)])
    put_offset(slave, "rare", END + 8)  # as it copied them from its master
    with reput.MessageStore.open(slave, **SIZES) as store:
        store.replica_writer().append(np.frombuffer(b"".join(record.data for record in stored(master))[end:], np.uint8))
        store.wait_dispatched()
        assert len(store.get_message("rare", 0, END, 32).messages()) == 10


@pytest.mark.parametrize("starts", [1, 2])
def test_nor_do_they_hide_the_first_messages_of_a_queue_that_a_slave_does_not_have_yet(
    base: Path, tmp_path: Path, starts: int
) -> None:
    master, slave = tmp_path / "master", tmp_path / "slave"
    for path in (master, slave):
        shutil.copytree(base, path)
        with reput.MessageStore.open(path, **SIZES) as store:
            store.update_topic(reput.TopicConfig("fresh", 1, 1))
    end = sum(len(record.data) for record in stored(slave))
    with reput.MessageStore.open(master, **SIZES) as store:
        store.put_messages([reput.Message("fresh", b"new%d" % n) for n in range(10)])
    put_offset(slave, "fresh", 8)
    for _ in range(starts - 1):
        reput.MessageStore.open(slave, **SIZES).close()
    with reput.MessageStore.open(slave, **SIZES) as store:
        store.replica_writer().append(np.frombuffer(b"".join(record.data for record in stored(master))[end:], np.uint8))
        store.wait_dispatched()
        assert len(store.get_message("fresh", 0, 0, 32).messages()) == 10
