"""Restores to a point in time: the log ends there, and everything else fits it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import reput
from reput.errors import ConfigError
from reput.files import DISK, FileLayer
from reput.formats.checkpoint import decode_checkpoint
from reput.formats.consume_queue import SCHEDULE_TOPIC
from reput.formats.metadata import ConsumerOffsets, DelayOffsets, LmqConsumerOffsets, encode_metadata
from reput.formats.pop_messages import REVIVE_GROUP
from reput.formats.record_layout import STORE_TIMESTAMP
from reput.formats.sink_commit import SinkBatch, SinkCommit, Sinks, decode_sinks, encode_sinks
from reput.jobs.backup.backup_job import Backup, backup
from reput.jobs.backup.restore_job import Restored, restore
from reput.jobs.runner import LocalRunner
from reput.log.metadata import metadata_path, read_metadata
from tests.support.damage import overwrite
from tests.support.faulty_files import FaultyFiles
from tests.support.invariants import SMALL, check_store, log_records
from tests.support.retained import RoomyFiles, age, check_retained
from tests.support.rocketmq import workload

OPTIONS: dict[str, Any] = SMALL | {"mapped_file_size_commit_log": 8192}
INDEX = {name: SMALL[name] for name in ("max_hash_slot_num", "max_index_num")}
#: Store time of the first message, ms; each later one is stored a second later.
BEGIN = 1_700_000_000_000


def opened(path: Path, files: FileLayer | None = None) -> reput.MessageStore:
    return reput.MessageStore.open(path, files=files or FaultyFiles(), **OPTIONS)


def put_timed(store: reput.MessageStore, count: int, begin: int = BEGIN, step: int = 1000) -> list[int]:
    """Put messages to four queues; their commit log offsets."""
    offsets = []
    for n in range(count):
        with patch("time.time", lambda n=n: (begin + n * step) / 1000):
            message = reput.Message("orders", b"x" * (n * 7 % 300), keys=(f"k-{n}",))
            offsets.append(store.put_message(message, queue_id=n % 4).commit_log_offset)
    return offsets


def take(store: Path, target: Path) -> Backup:
    return backup(store, str(target), runner=LocalRunner(2), split_bytes=1000)


def make(target: Path, store: Path, **options: Any) -> Restored:
    result = restore(str(target), store, **({"runner": LocalRunner(2), "sizes": INDEX} | options))
    assert result.is_clean, result.findings
    return result


def times_of(store: Path) -> list[int]:
    return [record.row["store_timestamp"] for record in log_records(store)]


def ends_of(store: Path) -> dict[tuple[str, int], int]:
    with opened(store) as again:
        return {(queue.topic, queue.queue_id): queue.max_offset for queue in again.queues()}


@pytest.mark.parametrize("by", ["time", "between", "offset", "inside"])
def test_the_log_ends_at_the_point_and_queues_and_index_fit_it(by: str, tmp_path: Path) -> None:
    with opened(tmp_path / "store") as store:
        offsets = [*put_timed(store, 90), 1 << 40]
    take(tmp_path / "store", tmp_path / "target")
    for kept in (1, 31, 90):
        folder = tmp_path / str(kept)
        folder.mkdir()
        restore_the_first(kept, by, offsets, folder)


def restore_the_first(kept: int, by: str, offsets: Sequence[int], folder: Path) -> None:
    """Restore the first messages of a store with 90."""
    restored, store = folder / "restored", folder.parent / "store"
    until = {
        "time": {"until_ms": BEGIN + (kept - 1) * 1000},
        "between": {"until_ms": BEGIN + kept * 1000 - 1},
        "offset": {"until_offset": offsets[kept]},
        "inside": {"until_offset": offsets[kept - 1] + 1},
    }[by]
    made = make(folder.parent / "target", restored, **until)
    assert log_records(restored) == log_records(store)[:kept]
    last = BEGIN + (kept - 1) * 1000
    assert (made.messages, made.last_store_timestamp, made.forgotten_sinks) == (kept, last, ())
    checkpoint = decode_checkpoint((restored / "checkpoint").read_bytes())
    assert checkpoint.physic_msg_timestamp == last
    assert not (folder / "restored.unfinished").exists()
    check_store(restored, OPTIONS)
    with opened(restored) as again:
        assert not again.recovery.was_killed
        assert put_timed(again, 1, BEGIN + 10**6) == [made.end_offset]
        assert again.query_message("orders", f"k-{kept - 1}", 32)
        assert not again.query_message("orders", f"k-{kept}", 32)
    check_store(restored, OPTIONS)


def test_a_clock_that_was_set_back_hides_no_message_before_the_last_one_in_time(tmp_path: Path) -> None:
    with opened(tmp_path / "store") as store:
        offsets = put_timed(store, 11)[4:6]
    late = (BEGIN + 10**9).to_bytes(8, "big")
    for offset in offsets:
        overwrite(tmp_path / f"store/commitlog/{0:020}", offset + STORE_TIMESTAMP, late)
    take(tmp_path / "store", tmp_path / "target")
    made = make(tmp_path / "target", tmp_path / "restored", until_ms=BEGIN + 7_000)
    assert made.messages == 8
    assert times_of(tmp_path / "restored")[5] == BEGIN + 10**9
    assert times_of(tmp_path / "restored") == times_of(tmp_path / "store")[:8]


def test_the_first_backup_that_goes_as_far_is_taken_unless_one_is_named(tmp_path: Path) -> None:
    path, target = tmp_path / "store", tmp_path / "target"
    names = []
    for n in range(3):
        with opened(path) as store:
            put_timed(store, 10, BEGIN + n * 10_000)
        names.append(take(path, target).name)
    ends = itertools.count()
    for until, expected in (
        ({"until_ms": BEGIN + 9_000}, names[0]),
        ({"until_ms": BEGIN + 9_001}, names[1]),
        ({"until_ms": BEGIN + 9_001, "backup": names[2]}, names[2]),
        ({"until_ms": BEGIN + 10**6}, names[2]),
        ({"until_offset": 1}, names[0]),
        ({"until_offset": 1 << 40}, names[2]),
    ):
        assert make(target, tmp_path / str(next(ends)), **until).backup == expected


def test_a_point_before_the_first_message_and_two_points_are_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "store") as store:
        put_timed(store, 3)
    take(tmp_path / "store", tmp_path / "target")
    for until, text in (
        ({"until_ms": BEGIN - 1}, "no message before 2023-11-14T22:13:19"),
        ({"until_offset": 0}, "no message before offset 0"),
        ({"until_ms": BEGIN, "until_offset": 1}, "leave --until or --until-offset out"),
    ):
        with pytest.raises(ConfigError, match=text):
            make(tmp_path / "target", tmp_path / "restored", **until)
        assert not list(tmp_path.glob("restored*"))


@pytest.mark.parametrize("retained", [False, True])
def test_queues_whose_messages_were_all_later_go_on_where_they_were(retained: bool, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with opened(path, RoomyFiles()) as store:
        store.update_topic(workload.BATCH_TOPIC)
        workload.put(store, workload.inner_batches(10))
        put_timed(store, 8)
        for n in range(12):
            with patch("time.time", lambda n=n: (BEGIN + n) / 1000):
                store.put_message(reput.Message("later", b"x" * 1500))
        store.wait_dispatched()
    expected = ends_of(path)
    if retained:
        age(path, 2)
        with opened(path, RoomyFiles()) as store:
            assert store.delete_expired().commit_log_files
    with opened(path, RoomyFiles()) as store:
        put_timed(store, 1, BEGIN + 100_000)
        point = put_timed(store, 1, BEGIN + 100_000)[0]
        put_timed(store, 8, BEGIN + 200_000)
        workload.put(store, workload.inner_batches(3))
        store.put_message(reput.Message("new", b"x"))
        store.wait_dispatched()
    take(path, tmp_path / "target")
    made = make(tmp_path / "target", tmp_path / "restored", until_offset=point)
    assert (made.begin_offset > 0) is retained
    assert ends_of(tmp_path / "restored") == expected | {("orders", 0): 3}
    if not retained:
        check_store(tmp_path / "restored", OPTIONS)
    with opened(tmp_path / "restored", RoomyFiles()) as again:
        if retained:
            check_retained(again, tmp_path / "restored")
        assert again.put_message(reput.Message("orders", b"x"), queue_id=1).queue_offset == 2


def stored_with(path: Path, *contents: object) -> None:
    for content in contents:
        Path(metadata_path(str(path), type(content))).write_bytes(encode_metadata(content))


def test_offsets_of_consumers_and_delay_levels_end_where_their_queues_do(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with opened(path) as store:
        put_timed(store, 20)
        for n in range(3):
            with patch("time.time", lambda n=n: (BEGIN + 50_000 + n) / 1000):
                store.put_message(reput.Message(SCHEDULE_TOPIC, b"x"), queue_id=1)
    orders = {"orders@g": {0: 5, 1: 2, 3: 4}, "gone@g": {0: 7}}
    stored_with(
        path,
        ConsumerOffsets(orders),
        LmqConsumerOffsets({"orders@l": {0: 9}}, {"%LMQ%x@l": 3}),
        DelayOffsets({1: 0, 2: 3}),
    )
    take(path, tmp_path / "target")
    whole = make(tmp_path / "target", tmp_path / "whole")
    assert whole.messages == 23
    assert offsets_of(tmp_path / "whole")[0] == orders
    make(tmp_path / "target", tmp_path / "restored", until_ms=BEGIN + 50_000)
    assert offsets_of(tmp_path / "restored") == (
        {"orders@g": {0: 5, 1: 2, 3: 4}, "gone@g": {0: 0}},
        {"orders@l": {0: 5}},
        {"%LMQ%x@l": 0},
        {1: 0, 2: 0},  # nothing of it is in a topic
    )
    make(tmp_path / "target", tmp_path / "earlier", until_ms=BEGIN + 10_000)
    assert offsets_of(tmp_path / "earlier")[0] == {"orders@g": {0: 3, 1: 2, 3: 2}, "gone@g": {0: 0}}
    assert offsets_of(tmp_path / "earlier")[3] == {1: 0, 2: 0}


def test_the_first_check_point_of_pop_after_a_cut_does_not_count_as_done(tmp_path: Path) -> None:
    """The offset of a revive queue is that of the last check point done, not of the next one."""
    path = tmp_path / "store"
    with opened(path) as store:
        offsets = put_timed(store, 12)
    stored_with(path, ConsumerOffsets({f"orders@{REVIVE_GROUP}": {0: 2, 1: 0}, "orders@g": {0: 3}}))
    take(path, tmp_path / "target")
    make(tmp_path / "target", tmp_path / "restored", until_offset=offsets[6])  # two messages of the queues 0 and 1
    consumers = read_metadata(str(tmp_path / "restored"), ConsumerOffsets, DISK)
    assert consumers is not None
    assert consumers.offset_table == {f"orders@{REVIVE_GROUP}": {0: 1, 1: 0}, "orders@g": {0: 2}}


def offsets_of(path: Path) -> Sequence[object]:
    consumers = read_metadata(str(path), ConsumerOffsets, DISK)
    light = read_metadata(str(path), LmqConsumerOffsets, DISK)
    levels = read_metadata(str(path), DelayOffsets, DISK)
    assert consumers is not None
    assert light is not None
    assert levels is not None
    return consumers.offset_table, light.offset_table, light.lmq_offset_table, levels.offset_table


def test_a_sink_whose_last_batch_was_cut_off_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with opened(path) as store:
        offsets = put_timed(store, 9)
    early = SinkCommit(SinkBatch("early", 4), offsets[0], offsets[3], 3, BEGIN)
    late = SinkCommit(SinkBatch("late", 7), offsets[3], offsets[6], 3, BEGIN)
    (path / "config/reputSinks.json").write_bytes(encode_sinks(Sinks({"early": early, "late": late})))
    take(path, tmp_path / "target")
    made = make(tmp_path / "target", tmp_path / "restored", until_offset=offsets[5])
    assert made.forgotten_sinks == ("late",)
    file = tmp_path / "restored/config/reputSinks.json"
    assert decode_sinks(file.read_bytes(), str(file)).commits == {"early": early}


def test_a_damaged_json_file_is_a_finding_and_stays_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with opened(path) as store:
        put_timed(store, 9)
    (path / "config/consumerOffset.json").write_bytes(b"{")
    assert take(path, tmp_path / "target").findings
    made = restore(
        str(tmp_path / "target"), tmp_path / "restored", runner=LocalRunner(1), sizes=INDEX, until_ms=BEGIN + 3_000
    )
    assert {finding.code for finding in made.findings} == {"config-damaged"}
    assert os.path.getsize(tmp_path / "restored/config/consumerOffset.json") == 1


@pytest.mark.parametrize("rows", [40, 60])
def test_a_topic_that_was_deleted_after_the_point_has_its_messages(rows: int, tmp_path: Path) -> None:
    """60: the deletion is at the point. A deletion before it stays, and so does one in a log that is not cut."""
    with opened(tmp_path / "store") as store:
        with patch("time.time", lambda: BEGIN / 1000):
            store.put_message(reput.Message("gone", b"old"))
        store.delete_topic_config(["gone"])
        put_timed(store, 60)
        store.delete_topic_config(["orders"])
        with patch("time.time", lambda: BEGIN / 1000 + 70):
            store.put_message(reput.Message("later", b"x"))
    take(tmp_path / "store", tmp_path / "target")
    for name, options, count in (
        ("earlier", {"until_ms": BEGIN + (rows - 1) * 1000}, rows),
        ("whole", {"until_ms": BEGIN + 80_000}, 0),
    ):
        make(tmp_path / "target", tmp_path / name, **options)
        with opened(tmp_path / name) as restored:
            queues = [queue for queue in restored.queues() if queue.topic == "orders"]
            assert sum(queue.max_offset - queue.min_offset for queue in queues) == count
            assert list(restored.topic_metadata.begin_offset_table or {}) == ["gone"] + ["orders"] * (not count)
            assert restored.get_message("gone", 0, 0).status is reput.GetMessageStatus.OFFSET_TOO_SMALL
