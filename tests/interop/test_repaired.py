"""Stores that were damaged and repaired, or salvaged: RocketMQ opens them, reads what reput reads, and goes on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.config.dispatch_rules import DispatchRules
from reput.jobs.repair.repair_job import repair
from reput.jobs.repair.salvage_job import salvage
from reput.jobs.runner import LocalRunner
from reput.kernels.records.placeholders import PLACEHOLDER_TOPIC
from tests.support.damage import overwrite
from tests.support.faulty_files import FaultyFiles
from tests.support.rocketmq import workload
from tests.support.rocketmq.apache import Apache
from tests.support.rocketmq.stores import SMALL, each_store_version
from tests.support.rocketmq.witness import check_agreement, check_queries, open_apache, told_by_apache, told_by_reput

pytestmark = pytest.mark.java

FILE_SIZE = SMALL["mapped_file_size_commit_log"]
OPTIONS = SMALL | {"max_index_num": 130}


def log_files(store: Path) -> list[Path]:
    return [path for path in sorted((store / "commitlog").iterdir()) if any(path.read_bytes())]


def last_record(store: Path) -> None:
    offset = max(reput.read_log(store, ["commit_log_offset"]).read_all()["commit_log_offset"].to_pylist())
    overwrite(log_files(store)[-1], offset % FILE_SIZE, b"\xff" * 60)


def small_files(store: Path) -> None:
    (store / "checkpoint").write_bytes(b"\x7f" * 4096)
    (store / "commitlog/notes.txt").write_text("mine")
    (store / "config").mkdir(exist_ok=True)
    (store / "config/topics.json").write_bytes(b"{")
    (store / "config/topics.json.bak").write_bytes(b"{")


def queues(store: Path) -> None:
    for path in store.glob("consumequeue/order/*/*"):
        path.write_bytes(bytes(path.stat().st_size))
    sorted((store / "index").iterdir())[0].write_bytes(b"short")


def middle(store: Path) -> None:
    """In a file, at its begin and at its end."""
    first, second = log_files(store)[:2]
    overwrite(first, 5_000, bytes(700))
    overwrite(first, FILE_SIZE - 900, b"\xff" * 900)
    overwrite(second, 0, b"\xff" * 100)


def file_gone(store: Path) -> None:
    first, second = log_files(store)[:2]
    overwrite(first, 5_000, bytes(700))
    second.unlink()


def behind_first_file(messages: list[workload.Fields]) -> list[workload.Fields]:
    """What is given of the log's other files: a filler lets RocketMQ's pull go on in the second one."""
    found = [message for message in messages if isinstance(message, dict)]
    return [message for message in found if message["commit_log_offset"] >= FILE_SIZE]


def check_all_but_gaps(store: reput.MessageStore, apache: Apache) -> None:
    """As `check_agreement`; but in a gap of a queue each side says by statuses of its own that nothing is there.

    To RocketMQ a queue whose first messages are lost begins with the gap, until retention has passed it.
    """
    ours, theirs = told_by_reput(store), told_by_apache(apache)
    assert (ours.ends, ours.records) == (theirs.ends, theirs.records)
    assert PLACEHOLDER_TOPIC in {record["topic"] for record in ours.records.values()}
    assert ours.queues.keys() == theirs.queues.keys()
    for queue, found in ours.queues.items():
        wanted = theirs.queues[queue]
        gap = found.ends[0] - wanted.ends[0]
        assert (gap >= 0, found.ends[1], found.units) == (True, wanted.ends[1], wanted.units[gap:]), queue
        assert behind_first_file(found.messages) == behind_first_file(wanted.messages), queue
    check_queries(store, ours)


@each_store_version
@pytest.mark.parametrize("damage", [last_record, small_files, queues, middle, file_gone])
def test_apache_has_all_of_a_store_that_was_repaired_and_goes_on(
    apache: Apache, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    path, options = tmp_path / "store", OPTIONS | {"dispatch_rules": apache.version}
    with reput.MessageStore.open(path, files=FaultyFiles(), **options) as store:
        workload.put(store, workload.messages(120))
    damage(path)
    arguments = {"apply": True, "runner": LocalRunner(1), "rules": DispatchRules(apache.version)}
    result = repair(path, **arguments)
    assert result.is_fine != (damage in (middle, file_gone))
    if result.needs_salvage:
        salvaged = salvage(path, tmp_path / "salvaged", **arguments)
        assert salvaged.is_fine, salvaged.findings
        path = tmp_path / "salvaged"
    ours = shutil.copytree(path, tmp_path / "ours")
    open_apache(apache, path, options)
    with reput.MessageStore.open(ours, files=FaultyFiles(), **options) as store:
        if path.name == "salvaged":
            check_all_but_gaps(store, apache)
        else:
            check_agreement(store, apache)
        assert not any(queue.topic == PLACEHOLDER_TOPIC for queue in store.queues())
    assert all(result["status"] == "PUT_OK" for result in apache.run("put", messages=workload.messages(40, seed=9)))
    theirs = told_by_apache(apache)
    apache.run("close")
    with reput.MessageStore.open(path, files=FaultyFiles(), **options) as store:
        assert not store.recovery.was_killed
        assert store.max_commit_log_offset == theirs.ends[1]
