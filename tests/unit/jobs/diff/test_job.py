"""Diff: what differs between two stores, against a plain comparison of what read_log gives."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reput
from reput.errors import ConfigError, StoreFormatError
from reput.formats.java import body_crc
from reput.formats.record_layout import encode_topic, pack_record
from reput.jobs.diff import job
from reput.jobs.diff.job import DiffResult, diff
from reput.jobs.diff.rows import BucketSet, WantedBuckets
from reput.jobs.rebuild.job import rebuild
from reput.jobs.runner import LocalRunner
from tests.support.damage import flip
from tests.support.examples import examples
from tests.support.hand_log import HOST
from tests.support.runners import DyingRunner
from tests.support.shares import sampled
from tests.support.small_rebuild import PUTS, Put, write_log

SIZES: dict[str, Any] = {
    "mapped_file_size_commit_log": 16 << 10,
    "mapped_file_size_consume_queue": 20 * 20,
    "max_message_size": 4096,
    "max_hash_slot_num": 50,
    "max_index_num": 150,
    "flush_disk_type": "ASYNC_FLUSH",
}
CORPORA = Path(__file__).parents[3] / "golden" / "5.3.3"


def run_diff(left: Path, right: Path, **options: Any) -> DiffResult:
    return diff(left, right, **({"runner": LocalRunner(2), "split_bytes": 3000} | options))


def told(result: DiffResult) -> list[tuple[Any, ...]]:
    """Kind, queue, queue offset and fields of each difference."""
    return [
        (row["kind"], row["queue_id"], row["queue_offset"], tuple(row["fields"] or ()))
        for row in result.table.to_pylist()
    ]


def write(path: Path, puts: Sequence[Put]) -> Path:
    path.mkdir()
    write_log(path, puts)
    return path


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100 messages in two queues."""
    path = tmp_path_factory.mktemp("diff") / "left"
    with reput.MessageStore.open(path, **SIZES) as store:
        for n in range(100):
            store.put_message(reput.Message("orders", b"x" * 100, tags="t", keys=(f"k{n}",), born_timestamp=n), n % 2)
        store.wait_dispatched()
    return path


@sampled(4)
@pytest.mark.parametrize("by", ["log", "queue"])
@pytest.mark.parametrize(
    "case", ["batch", "bcq", "clean", "empty", "killed", "lmq", "prop-crc", "torn", "transactions"]
)
def test_a_store_equals_its_copy(case: str, by: Any, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(CORPORA / case / "store", tmp_path / "copy"))
    result = run_diff(CORPORA / case / "store", copy, by=by)
    assert result.is_equal
    assert result.table.num_rows == 0
    assert result.left_messages == result.right_messages


def plain(left: Path, right: Path, by: str) -> list[tuple[Any, ...]]:
    """The same comparison over dictionaries; for logs in which no key repeats."""
    names = ["topic", "queue_id", "queue_offset", "sys_flag", "born_timestamp", "store_timestamp", "body_crc", "keys"]
    rows: dict[Any, dict[str, Any]] = defaultdict(dict)
    for side, path in (("left", left), ("right", right)):
        for row in reput.read_log(path, [*names, "commit_log_offset", "body"]).read_all().to_pylist():
            key = row["topic"], row["queue_id"], row["queue_offset"]
            rows[row["commit_log_offset"] if by == "log" else key][side] = row
    found = []
    for key in sorted(rows):
        sides = rows[key]
        row = next(iter(sides.values()))
        place = row["queue_id"], row["queue_offset"]
        if len(sides) == 1:
            found.append(("missing" if "left" in sides else "extra", *place))
        elif any(sides["left"][name] != sides["right"][name] for name in [*names, "body"]):
            found.append(("different", *place))
    return found


@settings(max_examples=examples(25))
@given(
    st.lists(PUTS.filter(lambda one: one.has_unit), max_size=40),
    st.lists(st.tuples(st.integers(0, 39), st.sampled_from(["gone", "body", "keys", "time", "more"])), max_size=6),
    st.sampled_from(["log", "queue"]),
    st.integers(500, 9000),
)
def test_differences_are_those_of_a_plain_comparison(
    tmp_path_factory: pytest.TempPathFactory, puts: list[Put], changes: list[tuple[int, str]], by: Any, split_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("diff")
    other = list(puts)
    for number, change in changes:
        if number < len(other):
            one = other[number]
            other[number : number + 1] = {
                "gone": [],
                "body": [replace(one, body=one.body + b"!")],
                "keys": [replace(one, keys=("other",))],
                "time": [replace(one, timestamp=one.timestamp + 1)],
                "more": [one, one],
            }[change]
    left, right = write(path / "left", puts), write(path / "right", other)
    result = run_diff(left, right, by=by, split_bytes=split_bytes)
    expected = plain(left, right, by)
    assert [(row["kind"], row["queue_id"], row["queue_offset"]) for row in result.table.to_pylist()] == expected
    kinds = [kind for kind, *_ in expected]
    assert (result.missing, result.extra, result.different) == tuple(
        kinds.count(kind) for kind in ("missing", "extra", "different")
    )
    again = run_diff(left, right, by=by, split_bytes=1 << 20, runner=LocalRunner(1))
    assert again.table == result.table
    swapped = run_diff(right, left, by=by)
    assert (swapped.missing, swapped.extra, swapped.different) == (result.extra, result.missing, result.different)


@pytest.mark.parametrize(
    ("field", "position"),
    [
        ("flag", 19), ("born_timestamp", 47), ("born_host", 55), ("store_timestamp", 63), ("store_host", 71),
        ("reconsume_times", 75), ("prepared_transaction_offset", 83), ("body", 100), ("body_crc", 11),
    ],
)  # fmt: skip
def test_each_field_that_differs_is_named_and_may_be_ignored(
    field: str, position: int, left: Path, tmp_path: Path
) -> None:
    right = Path(shutil.copytree(left, tmp_path / "right"))
    flip(right / "commitlog" / "00000000000000000000", position)
    result = run_diff(left, right)
    assert told(result) == [("different", 0, 0, (field,))]
    assert not result.is_equal
    if field in job.IGNORABLE:
        assert run_diff(left, right, ignore=[field]).is_equal
    if field == "prepared_transaction_offset":
        assert run_diff(left, right, by="queue").is_equal


def test_messages_that_were_put_again_elsewhere_are_equal_by_queue(left: Path, tmp_path: Path) -> None:
    right = tmp_path / "right"
    names = ["topic", "queue_id", "tags", "keys", "properties", "body", "born_timestamp", "born_host"]
    messages = reput.read_log(left).read_all().sort_by([("queue_id", "ascending"), ("queue_offset", "ascending")])
    with reput.MessageStore.open(right, **SIZES) as store:
        store.put_arrow(messages.select(names))
    assert not run_diff(left, right).is_equal
    result = run_diff(left, right, by="queue", ignore=["store_timestamp", "store_host"])
    assert result.is_equal, result.table.to_pylist()[:3]


def with_properties(text: bytes, path: Path) -> Path:
    """A store with one message, with this text of properties."""
    log = path / "commitlog"
    log.mkdir(parents=True)
    magic, topic = encode_topic("orders")
    record = pack_record(magic, body_crc(b"x"), 0, 0, 0, 0, 0, 1, HOST, 1, HOST, 0, 0, b"x", topic, text)
    (log / "0".zfill(20)).write_bytes(record.ljust(4096, b"\0"))
    return path


MAP = b"TAGS\1a\2KEYS\1k\2region\1eu\2"


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        (b"region\1eu\2TAGS\1a\2KEYS\1k\2", []),
        (MAP[:-1], []),
        (b"TAGS\1b\2" + MAP, []),  # the last one counts
        (MAP + b"empty\1\2none\2\1x\2", []),  # no pairs
        (MAP + b"TAGS\1b\2", [("TAGS", "a", "b")]),
        (MAP.replace(b"eu", b"us"), [("region", "eu", "us")]),
        (MAP.replace(b"region", b"r\xff"), [("region", "eu", None), ("r\ufffd", None, "eu")]),
        (MAP + b"long\1" + b"y" * 300, [("long", None, "y" * 100 + "…")]),
        (b"", [("KEYS", "k", None), ("TAGS", "a", None), ("region", "eu", None)]),
    ],
)
def test_by_queue_properties_are_a_map_and_by_log_bytes(
    text: bytes, pairs: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    left, right = with_properties(MAP, tmp_path / "left"), with_properties(text, tmp_path / "right")
    for by in ("queue", "log"):
        result = run_diff(left, right, by=by)
        is_equal = not pairs and by == "queue"
        assert result.is_equal is is_equal
        assert [tuple(row["fields"]) for row in result.table.to_pylist()] == ([] if is_equal else [("properties",)])
        found = [tuple(pair.values()) for row in result.table.to_pylist() for pair in row["properties"]]
        assert sorted(found, key=str) == sorted(pairs, key=str)
        assert run_diff(left, right, by=by, ignore=["properties"]).is_equal


def test_with_a_host_its_family_is_ignored(left: Path, tmp_path: Path) -> None:
    right = tmp_path / "right"
    names = ["topic", "queue_id", "tags", "keys", "properties", "body", "born_timestamp", "born_host"]
    messages = reput.read_log(left).read_all().sort_by([("queue_id", "ascending"), ("queue_offset", "ascending")])
    with reput.MessageStore.open(right, broker_ip1="::1", **SIZES) as store:
        store.put_arrow(messages.select(names))
    [fields] = {tuple(row["fields"]) for row in run_diff(left, right, by="queue").table.to_pylist()}
    assert set(fields) == {"sys_flag", "store_timestamp", "store_host"}
    assert run_diff(left, right, by="queue", ignore=["store_timestamp", "store_host"]).is_equal


@pytest.mark.parametrize("by", ["log", "queue"])
def test_a_message_that_differs_is_found_although_retention_deleted_those_before(
    by: Any, left: Path, tmp_path: Path
) -> None:
    right = Path(shutil.copytree(left, tmp_path / "right"))
    first, second, *_ = sorted((right / "commitlog").iterdir())
    first.unlink()
    flip(second, 100)  # in the body of its first record
    rows = reput.read_log(left, ["commit_log_offset", "queue_id", "queue_offset"]).read_all().to_pylist()
    before = [row for row in rows if row["commit_log_offset"] < int(second.name)]
    changed = rows[len(before)]
    expected = [("missing", row["queue_id"], row["queue_offset"]) for row in before]
    expected.append(("different", changed["queue_id"], changed["queue_offset"]))
    result = run_diff(left, right, by=by)
    assert sorted((row["kind"], row["queue_id"], row["queue_offset"]) for row in result.table.to_pylist()) == sorted(
        expected
    )


def test_records_that_cannot_be_read_are_missing_and_told(left: Path, tmp_path: Path) -> None:
    right = Path(shutil.copytree(left, tmp_path / "right"))
    flip(right / "commitlog" / "00000000000000000000", 3)
    result = run_diff(left, right)
    assert told(result) == [("missing", 0, 0, ())]
    assert [damage.begin for damage in result.right_damages] == [0]
    assert not run_diff(right, Path(shutil.copytree(right, tmp_path / "copy"))).is_equal


def test_repeated_queue_offsets_find_their_equals(tmp_path: Path) -> None:
    puts = [Put(body=b"x" * n, queue_step=-1 if n == 5 else 0) for n in range(9)]
    left, right = write(tmp_path / "left", puts), write(tmp_path / "right", puts[:4] + puts[5:])
    result = run_diff(left, right, by="queue")
    assert result.left_messages - result.right_messages == 1
    assert (result.missing - result.extra, result.is_equal) == (1, False)


def test_a_rebuild_is_compared_by_the_units_of_its_queues(left: Path, tmp_path: Path) -> None:
    right = tmp_path / "rebuilt"
    rebuild(left, right, runner=LocalRunner(1), index=False)
    result = run_diff(left, right)
    assert (result.is_equal, result.of_queues, result.left_messages) == (True, True, 100)
    queue = right / "consumequeue" / "orders" / "1" / "00000000000000000400"
    flip(queue, 59)
    assert told(run_diff(left, right)) == [("different", 1, 22, ())]
    (queue.parent / "00000000000000000000").unlink()
    flip(queue, 59)
    result = run_diff(left, right)
    assert (result.missing, result.extra, result.different) == (20, 0, 0)


def test_batch_queues_of_a_rebuild_are_compared_by_their_units(tmp_path: Path) -> None:
    left, right = tmp_path / "left", tmp_path / "rebuilt"
    with reput.MessageStore.open(left, **SIZES) as store:
        store.update_topic(reput.TopicConfig("batches", 1, 1, attributes={"queue.type": "BatchCQ"}))
        for _ in range(4):
            items = [reput.Message("batches", b"x") for _ in range(3)]
            store.put_batch(reput.MessageExtBatch.of(items, unique_key="U"))
        store.wait_dispatched()
    rebuild(left, right, runner=LocalRunner(1), index=False)
    result = run_diff(left, right)
    assert (result.is_equal, result.of_queues, result.left_messages) == (True, True, 4)
    queue = right / "batchconsumequeue" / "batches" / "0" / "00000000000000000000"
    flip(queue, 2 * 46 + 37)  # its number of messages
    assert told(run_diff(left, right)) == [("different", 0, 6, ())]
    queue.unlink()
    result = run_diff(left, right)
    assert (result.missing, result.extra, result.different) == (4, 0, 0)


def test_all_are_counted_and_the_first_ones_told_whatever_the_rounds(
    left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = tmp_path / "right"
    with reput.MessageStore.open(right, **SIZES):
        pass
    monkeypatch.setattr(job, "_ROUND_ROWS", 10)
    by_rounds = run_diff(left, right, by="queue", max_rows=7)
    monkeypatch.undo()
    at_once = run_diff(left, right, by="queue", max_rows=7)
    assert replace(by_rounds, seconds=0) == replace(at_once, seconds=0)
    assert (by_rounds.missing, by_rounds.table.num_rows) == (100, 7)


def test_a_comparison_that_was_killed_goes_on_and_finds_the_same(left: Path, tmp_path: Path) -> None:
    right = Path(shutil.copytree(left, tmp_path / "right"))
    flip(right / "commitlog" / "00000000000000000000", 100)
    expected = run_diff(left, right)
    killed = 0
    for tasks in range(1, 30, 4):
        try:
            run_diff(left, right, work_dir=tmp_path / "work", runner=DyingRunner(tasks))
        except KeyboardInterrupt:
            killed += 1
        assert replace(run_diff(left, right, work_dir=tmp_path / "work"), seconds=0) == replace(expected, seconds=0)
    assert killed > 3


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 1 << 51)), min_size=1, max_size=20),
    st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 1 << 51)), max_size=20),
)
def test_a_set_of_buckets_has_those_that_are_wanted(
    wanted: list[tuple[int, int]], asked: list[tuple[int, int]]
) -> None:
    names = tuple((b"topic", n) for n in range(6))
    queues, buckets = np.array(wanted, np.int64).T
    found = BucketSet(WantedBuckets(names[:4], queues % 4, buckets))
    queues, buckets = np.array([*asked, *wanted], np.int64).T
    inside = found.has(names[::-1], queues, buckets).tolist()
    known = {(n % 4, bucket) for n, bucket in wanted}
    assert inside == [(5 - n, bucket) in known for n, bucket in [*asked, *wanted]]


def test_wrong_arguments_are_refused(left: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'body' cannot be left out; what can: commit_log_offset"):
        run_diff(left, left, ignore=["body"])
    with pytest.raises(ConfigError, match="'time' is neither"):
        run_diff(left, left, by="time")
    with pytest.raises(StoreFormatError, match="no such directory"):
        run_diff(left, tmp_path / "nothing")
    with pytest.raises(ConfigError, match="lies inside the store"):
        run_diff(left, left, work_dir=left / "work")
