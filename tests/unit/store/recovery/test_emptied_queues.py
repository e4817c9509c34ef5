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
from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE
from reput.formats.consume_queue import UNIT_SIZE
from reput.jobs.audit.job import AuditResult, audit
from reput.jobs.rebuild.job import rebuild
from reput.jobs.repair import repair, salvage
from reput.jobs.runner import LocalRunner
from tests.support.damage import overwrite
from tests.support.plants import SIZES, stored

END = 30
#: Folder of a kind of queue, and the attributes of a topic that has such queues.
KINDS: dict[str, dict[str, str]] = {"consumequeue": {}, "batchconsumequeue": {"queue.type": "BatchCQ"}}
DAMAGES: dict[str, Callable[[Path, str], object]] = {
    "all queues": lambda store, kind: shutil.rmtree(store / kind),
    "one queue": lambda store, kind: shutil.rmtree(store / kind / "rare/0"),
    "its units": lambda store, kind: overwrite(store / kind / f"rare/0/{0:020}", 0, bytes(2000)),
    "its last units": lambda store, kind: overwrite(store / kind / f"rare/0/{0:020}", LEFT[kind], bytes(1000)),
}
#: Bytes of the units of half its messages.
LEFT = {"consumequeue": END // 2 * UNIT_SIZE, "batchconsumequeue": END // 2 // 3 * BATCH_UNIT_SIZE}
#: What mends a store, and whether it was killed before.
MENDED_BY = [
    ("a start", False), ("a start", True), ("two starts", True), ("repair", False), ("repair", True),
    ("rebuild", False), ("salvage", True),
]  # fmt: skip


def topic(name: str, kind: str) -> reput.TopicConfig:
    return reput.TopicConfig(name, 1, 1, attributes=KINDS[kind])


def put_three(store: reput.MessageStore, name: str, body: bytes) -> None:
    """Three messages: one record, or three where the topic has consume queues."""
    store.put_batch(reput.MessageExtBatch.of([reput.Message(name, body) for _ in range(3)], unique_key="U"))


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def base(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("emptied") / "store"
    with reput.MessageStore.open(path, **SIZES) as store:
        store.update_topic(topic("rare", kind))
        for _ in range(END // 3):
            put_three(store, "rare", b"r")
        store.put_messages([reput.Message("often", b"o" * 100) for _ in range(1500)])
        store.wait_dispatched()
        for file in sorted((path / "commitlog").iterdir())[:-2]:
            os.utime(file, (1, 1))
        store.delete_expired()
        shutil.copytree(path, path.with_name("killed"))
    return path


def audited(store: Path) -> AuditResult:
    return audit(store, runner=LocalRunner(1), file_reserved_time=0)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(("mended_by", "was_killed"), MENDED_BY)
def test_a_queue_without_messages_goes_on_where_it_was(
    base: Path, tmp_path: Path, kind: str, damage: str, was_killed: bool, mended_by: str
) -> None:
    path = tmp_path / "store"
    shutil.copytree(base.with_name("killed") if was_killed else base, path)
    DAMAGES[damage](path, kind)
    lost = [finding for finding in audited(path).findings if finding.code == "queue-offset-lost"]
    (found,) = [finding for finding in lost if finding.topic == "rare"]
    left = END // 2 if damage == "its last units" else 0
    assert (Path(found.path), found.queue_offset, found.count) == (path / kind / "rare/0", left, END - left)
    match mended_by:
        case "two starts":
            with reput.MessageStore.open(path) as store:
                (queue,) = (queue for queue in store.queues() if queue.topic == "rare")
                assert (queue.min_offset, queue.max_offset) == (END, END)
            before = files_of(path / kind / "rare")
            reput.MessageStore.open(path).close()
            assert files_of(path / kind / "rare") == before
        case "repair":
            repair(path, apply=True, runner=LocalRunner(1))
        case "rebuild":
            rebuild(path, None, runner=LocalRunner(1))
        case "salvage":
            damaged, path = path, tmp_path / "salvaged"
            salvage(damaged, path, apply=True, runner=LocalRunner(1))
    if mended_by != "a start":
        assert audited(path).is_clean
    with reput.MessageStore.open(path) as store:
        waiting = store.get_message("rare", 0, END, 32)
        assert (waiting.status, waiting.next_begin_offset) == (reput.GetMessageStatus.OFFSET_OVERFLOW_ONE, END)
        put_three(store, "rare", b"new")
        store.wait_dispatched()
        assert store.get_message("rare", 0, waiting.next_begin_offset, 32).next_begin_offset == END + 3
        (queue,) = (queue for queue in store.queues() if queue.topic == "rare")
        assert (queue.min_offset, queue.max_offset) == (END, END + 3)
    assert audited(path).is_clean
    with reput.MessageStore.open(path) as store:
        assert [message.queue_offset for message in store.get_message("rare", 0, END, 32).messages()][:1] == [END]
        assert store.put_message(reput.Message("rare", b"newer"), 0).queue_offset == END + 3


@pytest.mark.parametrize("mended_by", ["a start", "repair", "rebuild", "salvage"])
def test_a_topic_that_topics_json_lacks_keeps_its_kind_of_queues(
    base: Path, tmp_path: Path, kind: str, mended_by: str
) -> None:
    path = tmp_path / "store"
    shutil.copytree(base, path)
    file = path / "config/topics.json"
    topics = json.loads(file.read_text())
    del topics["topicConfigTable"]["rare"]
    file.write_text(json.dumps(topics))
    (path / "config/topics.json.bak").unlink(missing_ok=True)
    shutil.rmtree(path / kind)
    match mended_by:
        case "repair":
            repair(path, apply=True, runner=LocalRunner(1))
        case "rebuild":
            rebuild(path, None, runner=LocalRunner(1))
        case "salvage":
            damaged, path = path, tmp_path / "salvaged"
            salvage(damaged, path, apply=True, runner=LocalRunner(1))
    with reput.MessageStore.open(path) as store:
        assert store.max_offset("rare", 0) == END
    (other,) = KINDS.keys() - {kind}
    assert ((path / kind / "rare/0").is_dir(), (path / other / "rare/0").exists()) == (True, False)


def files_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def put_offset(store: Path, name: str, offset: int) -> None:
    text = json.dumps({"offsetTable": {f"{name}@g": {"0": offset}}})
    (store / "config/consumerOffset.json").write_text(text)


@pytest.mark.parametrize("mended_by", ["a start", "repair"])
def test_files_of_an_older_copy_yield_to_what_is_recorded(tmp_path: Path, kind: str, mended_by: str) -> None:
    sizes = SIZES | {
        "mapped_file_size_consume_queue": 9 * UNIT_SIZE, "mapper_file_size_batch_consume_queue": 3 * BATCH_UNIT_SIZE,
    }  # fmt: skip
    path, queue = tmp_path / "store", tmp_path / "store" / kind / "rare/0"
    with reput.MessageStore.open(path, **sizes) as store:
        store.update_topic(topic("rare", kind))
        for _ in range(END // 3):
            put_three(store, "rare", b"r")
        store.put_messages([reput.Message("often", b"o" * 100) for _ in range(1500)])
        store.wait_dispatched()
        older = files_of(queue)
        for file in sorted((path / "commitlog").iterdir())[:-2]:
            os.utime(file, (1, 1))
        store.delete_expired()
    (last,) = queue.iterdir()
    last.unlink()
    assert len(older) == 4
    for file, data in older.items():
        if file != last:
            file.write_bytes(data)
    (found,) = (finding for finding in audited(path).findings if finding.code == "queue-offset-lost")
    assert (found.queue_offset, found.count) == (27, 3)
    if mended_by == "repair":
        repair(path, apply=True, runner=LocalRunner(1))
    for n in range(2):
        with reput.MessageStore.open(path) as store:
            put_three(store, "rare", b"new")
            store.wait_dispatched()
            assert store.max_offset("rare", 0) == END + 3 * n + 3
            assert store.get_message("rare", 0, END, 32).messages()[0].queue_offset == END
        assert audited(path).is_clean


def test_a_group_tells_where_a_queue_goes_on_whose_files_and_record_are_lost(
    base: Path, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "store"
    shutil.copytree(base, path)
    shutil.rmtree(path / kind / "rare")
    (path / "config/reputShutdown.json").unlink()
    put_offset(path, "rare", END)
    assert "queue-offset-lost" in {finding.code for finding in audited(path).findings}
    for _ in range(2):
        with reput.MessageStore.open(path) as store:
            assert store.get_message("rare", 0, END, 32).next_begin_offset == END
    with reput.MessageStore.open(path) as store:
        assert store.put_message(reput.Message("rare", b"new"), 0).queue_offset == END


def test_a_group_at_0_says_nothing_of_a_queue_that_never_had_a_message(base: Path, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "store"
    shutil.copytree(base, path)
    with reput.MessageStore.open(path, **SIZES) as store:
        store.update_topic(topic("quiet", kind))
    put_offset(path, "quiet", 0)
    assert "queue-offset-lost" not in {finding.code for finding in audited(path).findings}
    with reput.MessageStore.open(path) as store:
        assert "quiet" not in {queue.topic for queue in store.queues()}
        assert store.put_message(reput.Message("quiet", b"new"), 0).queue_offset == 0


def test_groups_ahead_of_a_slaves_queue_hide_no_message_that_is_to_come(base: Path, tmp_path: Path, kind: str) -> None:
    master, slave = tmp_path / "master", tmp_path / "slave"
    for path in (master, slave):
        shutil.copytree(base, path)
    end = sum(len(record.data) for record in stored(slave))
    with reput.MessageStore.open(master, **SIZES) as store:
        store.put_messages([reput.Message("rare", b"new%d" % n) for n in range(10)])
    put_offset(slave, "rare", END + 8)  # as it copied them from its master
    with reput.MessageStore.open(slave, **SIZES) as store:
        store.replica_writer().append(np.frombuffer(b"".join(record.data for record in stored(master))[end:], np.uint8))
        store.wait_dispatched()
        assert len(store.get_message("rare", 0, END, 32).messages()) == 10


@pytest.mark.parametrize("started_before", ["no", "closed", "killed"])
def test_nor_do_they_hide_the_first_messages_of_a_queue_that_a_slave_does_not_have_yet(
    base: Path, tmp_path: Path, kind: str, started_before: str
) -> None:
    master, slave = tmp_path / "master", tmp_path / "slave"
    for path in (master, slave):
        shutil.copytree(base, path)
        with reput.MessageStore.open(path, **SIZES) as store:
            store.update_topic(topic("fresh", kind))
    end = sum(len(record.data) for record in stored(slave))
    with reput.MessageStore.open(master, **SIZES) as store:
        store.put_messages([reput.Message("fresh", b"new%d" % n) for n in range(10)])
    put_offset(slave, "fresh", 8)
    if started_before != "no":
        with reput.MessageStore.open(slave, **SIZES):
            shutil.copytree(slave, tmp_path / "killed")
    slave = tmp_path / "killed" if started_before == "killed" else slave
    with reput.MessageStore.open(slave, **SIZES) as store:
        store.replica_writer().append(np.frombuffer(b"".join(record.data for record in stored(master))[end:], np.uint8))
        store.wait_dispatched()
        assert len(store.get_message("fresh", 0, 0, 32).messages()) == 10
        (queue,) = (queue for queue in store.queues() if queue.topic == "fresh")
        assert (queue.min_offset, queue.max_offset) == (0, 10)
    assert audited(slave).is_clean
