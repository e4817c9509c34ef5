"""Lives of a store that a campaign ends at any operation: what runs, and what must hold for the next life."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import reput
from reput.errors import StoreError
from reput.formats.checkpoint import Checkpoint, encode_checkpoint
from reput.formats.metadata import TopicConfig
from reput.jobs.rebuild.job import rebuild
from reput.jobs.runner import LocalRunner
from tests.support.faulty_files import Crash, FaultyFiles, Judge, abandon, disk_is, no_objection
from tests.support.invariants import SMALL, Acknowledged, check_acknowledged, check_store, log_records
from tests.support.lives import batches, further_puts, further_units, passing_time, puts, retention, sink

Check = Callable[[Path], None]


class Scenario(NamedTuple):
    """One kind of life.

    Attributes:
        name: For reports.
        count: Lives it to the end in a folder, checks that, and tells how many operations it had.
        live: Lives it in a folder under a judge; returns the layer, and the check of the folder that is left.
        options: Of its store.
    """

    name: str
    count: Callable[[Path], int]
    live: Callable[[Path, Judge], tuple[FaultyFiles, Check]]
    options: dict[str, object]


def start_again(
    path: Path,
    files: FaultyFiles,
    target: Path,
    options: dict[str, object],
    acknowledged: list[Acknowledged],
    *,
    closes: bool,
    checkpoints: bool = False,
    answers: int = 4,
    disk: Path | None = None,
) -> None:
    """Start what a process has left in the same machine, put and get answers, end, and cut the power.

    Args:
        path: The store.
        files: The layer of that process.
        target: What the disk has after the cut.
        options: Of the store.
        acknowledged: What was answered here is added.
        closes: End by a clean exit, and not by a kill.
        checkpoints: Let the checkpoint vouch for what was there, and for what was put.
        answers: How many are got.
        disk: What the power cut leaves a part of; the store itself if None.
    """
    again = FaultyFiles()
    again.goes_on_after(files)
    store = reput.MessageStore.open(path, files=again, **options)
    for number in range(answers):
        key, body = f"again-{number}", bytes([number]) * 200
        result = store.put_message(reput.Message("again", body, keys=[key]))
        acknowledged.append(
            Acknowledged("again", 0, result.queue_offset, result.commit_log_offset, key, body)
        )  # fmt: skip
    store.wait_dispatched()
    if checkpoints:
        assert store._writer.housekeeping.run_once(thorough=True)
    if closes:
        store.close()
    abandon(store, again)
    again.cut_power(disk or path, target)


def _puts(flush_disk_type: str, path: Path, judge: Judge) -> tuple[FaultyFiles, Check]:
    life, files = puts.live(path, flush_disk_type, judge)
    promised = life.acknowledged

    def check(left: Path) -> None:
        """A power cut may take what was not synced; a kill may not."""
        life.acknowledged = promised if flush_disk_type == "SYNC_FLUSH" or left == path else []
        puts.check_next_life(life, left)

    return files, check


def _batches(path: Path, judge: Judge) -> tuple[FaultyFiles, Check]:
    life, files = batches.live(path, "SYNC_FLUSH", judge)
    return files, lambda left: puts.check_next_life(life, left)


def _further_puts(path: Path, judge: Judge) -> tuple[FaultyFiles, Check]:
    life, files = further_puts.live(path, "SYNC_FLUSH", judge)
    return files, lambda left: further_puts.check_next_life_of(life, left)


def _further_units(path: Path, judge: Judge) -> tuple[FaultyFiles, Check]:
    files = FaultyFiles(judge)
    acknowledged, _ = further_units.live(path, files)
    return files, lambda left: further_units.check_next_life(left, acknowledged)


def _count_further_units(path: Path) -> int:
    files = FaultyFiles()
    further_units.live(path, files)
    return len(files.operations)


def _passing_time(path: Path, judge: Judge) -> tuple[FaultyFiles, Check]:
    files, acknowledged = passing_time.live(path, judge)
    # A power cut may take what was not synced; a kill may not.
    return files, lambda left: passing_time.check_next_life(left, acknowledged if left == path else [])


def _sink(path: Path, judge: Judge) -> tuple[FaultyFiles, Check]:
    return sink.live(path, judge)[0], sink.check_next_life


def _deletion(is_behind: bool, path: Path, judge: Judge) -> tuple[FaultyFiles, Check]:
    store, files = retention.filled(path, is_behind=is_behind)
    files.start(judge)
    with suppress(Crash, StoreError):
        store.delete_expired()
    abandon(store, files)
    return files, retention.check_next_life


def _topics(path: Path, judge: Judge) -> tuple[FaultyFiles, Check]:
    """Topics are made and changed; each is what it was before or after the last change."""
    files, done = FaultyFiles(judge), 0
    store = None
    with suppress(Crash, StoreError):
        store = reput.MessageStore.open(path, files=files, **SYNCED)
        for number in range(_TOPIC_CHANGES):
            store.update_topic(_topic(number))
            store.put_message(reput.Message(_topic(number).topic_name, b"x"))
            done = number + 1
        store.close()
    if store is not None:
        abandon(store, files)
    files.abandon()

    def check(left: Path) -> None:
        with reput.MessageStore.open(left, files=FaultyFiles(), **SYNCED) as store:
            tables = [{_topic(n).topic_name: _topic(n) for n in range(count)} for count in (done, done + 1)]
            assert dict(store.topics) in tables, "a topic is lost, or half changed"
            assert store.max_commit_log_offset > 0 or not done
            store.update_topic(_topic(0))
        check_store(left)

    return files, check


_TOPIC_CHANGES = 6


def _topic(number: int) -> TopicConfig:
    return TopicConfig(f"topic-{number % 4}", read_queue_nums=number + 1)


def _count_topics(path: Path) -> int:
    files, check = _topics(path, no_objection)
    check(path)
    return len(files.operations)


def _rebuild(path: Path, judge: Judge) -> tuple[FaultyFiles, Check]:
    """Queues and index of a closed store are rebuilt in place; whatever is left, the next start has all of them."""
    life, _ = puts.live(path, "SYNC_FLUSH", no_objection)
    files = FaultyFiles(judge)
    files.all_is_durable(path)
    with suppress(Crash, StoreError), disk_is(files):
        rebuild(path, None, runner=LocalRunner(1))
    files.abandon()

    def check(left: Path) -> None:
        shutil.rmtree(left / "rebuild.unfinished", ignore_errors=True)
        puts.check_next_life(life, left)

    return files, check


def _count_rebuild(path: Path) -> int:
    files, check = _rebuild(path, no_objection)
    assert not (path / "rebuild.unfinished").exists()
    check(path)
    return len(files.operations)


def _recovery(path: Path, judge: Judge) -> tuple[FaultyFiles, Check]:
    """A start after a kill that left a torn record, and whole ones behind it that were never synced: old bytes.

    They are cut, and never come back: not even where later records end just where an old one begins.
    """
    life, files = puts.live(path, "SYNC_FLUSH", no_objection)
    before = FaultyFiles()
    store = reput.MessageStore.open(path, files=before, **life.options)
    for _ in range(_OLD):
        store.put_message(reput.Message("old", bytes(_OLD_BODY), keys=["old"]))
    store.wait_dispatched()
    abandon(store, before)
    for folder in ("consumequeue/old", "index"):  # nothing of these records was synced
        shutil.rmtree(path / folder)
    (path / "checkpoint").write_bytes(encode_checkpoint(Checkpoint(0, 0, 0)))
    first = next(record for record in log_records(path) if record.queue[0] == "old")
    log_file = path / "commitlog" / f"{first.offset - first.offset % 4096:020d}"
    with log_file.open("r+b") as opened:
        opened.seek(first.offset % 4096 + 100)
        opened.write(b"torn")
    files = FaultyFiles(judge)
    files.all_is_durable(path)
    store = None
    with suppress(Crash, StoreError):
        store = reput.MessageStore.open(path, files=files, **life.options)
        store.put_message(reput.Message("old", bytes(_OLD_BODY - 3), keys=["new"]))
        store.put_message(reput.Message("old", bytes(_OLD_BODY), keys=["old"]))
        store.close()
    if store is not None:
        abandon(store, files)
    files.abandon()

    def check(left: Path) -> None:
        with reput.MessageStore.open(left, files=FaultyFiles(), **life.options) as store:
            check_acknowledged(store, life.acknowledged)
        found = [record for record in check_store(left) if record.queue[0] == "old"]
        assert len(found) <= 2, "records came back that a start had cut"

    return files, check


_OLD, _OLD_BODY = 8, 150


def _count_recovery(path: Path) -> int:
    files, check = _recovery(path, no_objection)
    check(path)
    return len(files.operations)


SYNCED = puts.OPTIONS | {"flush_disk_type": "SYNC_FLUSH"}
SCENARIOS = (
    Scenario(
        "puts, synced",
        lambda path: puts.count_operations(path, "SYNC_FLUSH"),
        partial(_puts, "SYNC_FLUSH"),
        SYNCED,
    ),
    Scenario(
        "puts, not synced",
        lambda path: puts.count_operations(path, "ASYNC_FLUSH"),
        partial(_puts, "ASYNC_FLUSH"),
        puts.OPTIONS | {"flush_disk_type": "ASYNC_FLUSH"},
    ),
    Scenario("batches", lambda path: batches.count_operations(path, "SYNC_FLUSH"), _batches, SYNCED),
    Scenario("several at once", lambda path: further_puts.count_operations(path, "SYNC_FLUSH"), _further_puts, SYNCED),
    Scenario("seconds pass, not synced", passing_time.count_operations, _passing_time, passing_time.OPTIONS),
    Scenario("extensions and light queues", _count_further_units, _further_units, further_units.OPTIONS),
    Scenario("sink commits", sink.count_operations, _sink, SMALL),
    Scenario(
        "retention",
        lambda path: len(retention.operations_of_a_deletion(path)),
        partial(_deletion, False),
        retention.OPTIONS,
    ),
    Scenario(
        "retention while dispatch is behind",
        lambda path: len(retention.operations_of_a_deletion(path, is_behind=True)),
        partial(_deletion, True),
        retention.OPTIONS,
    ),
    Scenario("config files", _count_topics, _topics, SYNCED),
    Scenario("a rebuild in place", _count_rebuild, _rebuild, SYNCED),
    Scenario("a recovery over old bytes", _count_recovery, _recovery, SYNCED),
)
