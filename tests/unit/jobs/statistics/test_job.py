"""Statistics against a plain count over decoded records."""

from __future__ import annotations

import gc
import math
import weakref
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import reput
from reput.errors import ConfigError, StoreFormatError
from reput.formats.hosts import encode_host
from reput.formats.message import Message
from reput.formats.message_ext import MessageExt
from reput.formats.record import encode_record
from reput.jobs.runner import LocalRunner
from reput.jobs.split_tasks import run_over_splits_in_turns
from reput.jobs.statistics.job import Dimension, statistics
from reput.jobs.statistics.latency import QUANTILES
from tests.support.runners import DyingRunner
from tests.support.shares import sampled

CLEAN = Path(__file__).parents[3] / "golden/5.3.3/clean"
HOST = encode_host("10.0.0.1:10911")


def stored_messages() -> list[MessageExt]:
    """Each record of the clean store, by the offsets that RocketMQ's own reader gave."""
    log = b"".join(path.read_bytes() for path in sorted((CLEAN / "store/commitlog").iterdir()))
    lines = (CLEAN / "truth.txt").read_text().splitlines()
    return [MessageExt(log, int(line.split(" ")[1])) for line in lines if line.startswith("log ")]


def key_of(message: MessageExt, by: tuple[str, ...], bucket_ms: int, time_of: str) -> tuple[Any, ...]:
    host = message.born_host.rpartition(":")[0]
    parts = {"topic": message.topic, "queue": message.queue_id, "tag": message.tags, "host": host}
    ms = message.store_timestamp if time_of == "store" else message.born_timestamp
    start = datetime.fromtimestamp(ms // bucket_ms * bucket_ms / 1000, UTC) if bucket_ms else None
    return (*(parts[name] for name in by), *([start] if bucket_ms else []))


@sampled(3)
@pytest.mark.parametrize(
    ("by", "bucket", "bucket_ms", "time_of"),
    [
        (("topic", "queue", "tag"), "1h", 3_600_000, "store"),
        (("topic", "queue", "tag"), "1s", 1_000, "store"),
        (("tag", "topic"), "2m", 120_000, "born"),
        (("topic",), None, 0, "store"),
        (("queue",), None, 0, "store"),
        (("host", "topic"), "1m", 60_000, "store"),
        ((), "1d", 86_400_000, "store"),
        ((), None, 0, "store"),
    ],
)
@pytest.mark.parametrize("split_bytes", [7_000, 64 << 20])
def test_statistics_equal_a_count_over_decoded_records(
    by: tuple[Dimension, ...], bucket: str | None, bucket_ms: int, time_of: Any, split_bytes: int
) -> None:
    messages, sizes, bodies = Counter[Any](), Counter[Any](), Counter[Any]()
    for message in stored_messages():
        key = key_of(message, by, bucket_ms, time_of)
        messages[key] += 1
        sizes[key] += message.store_size
        bodies[key] += len(message.body)
    result = statistics(
        CLEAN / "store", runner=LocalRunner(threads=2), by=by, bucket=bucket, time_of=time_of, split_bytes=split_bytes
    )
    rows = [tuple(row.values()) for row in result.table.to_pylist()]
    expected = [(*key, messages[key], sizes[key], bodies[key]) for key in messages]
    assert rows == sorted(expected, key=lambda row: [(value is None, value) for value in row])
    assert result.messages == 1000
    assert result.log_bytes == sizes.total()


def test_columns_are_those_asked_for_in_their_order() -> None:
    table = statistics(CLEAN / "store", runner=LocalRunner(), by=("tag", "topic"), time_of="born").table
    assert table.column_names == ["tags", "topic", "born_timestamp", "messages", "bytes", "body_bytes"]
    assert str(table.schema.field("born_timestamp").type) == "timestamp[us, tz=UTC]"


@pytest.mark.parametrize(("by", "bucket"), [(("topic", "queue", "tag"), "1h"), ((), None)])
def test_a_store_without_messages_counts_nothing(by: tuple[Dimension, ...], bucket: str | None, tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    result = statistics(tmp_path, runner=LocalRunner(), by=by, bucket=bucket)
    assert (result.table.num_rows, result.messages, result.log_bytes) == (0, 0, 0)


def test_times_that_cannot_be_shown_are_null_and_come_last(tmp_path: Path) -> None:
    log = b""
    for timestamp in (1 << 60, 7_300_000, -1, -(1 << 60)):
        log += encode_record(
            Message("orders", b"body"), queue_id=0, queue_offset=0, commit_log_offset=len(log),
            store_timestamp=timestamp, store_host=HOST, born_timestamp=0, born_host=HOST,
        )  # fmt: skip
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / ("0" * 20)).write_bytes(log + bytes(1000))
    table = statistics(tmp_path, runner=LocalRunner(), by=()).table
    assert table.column("store_timestamp").to_pylist() == [
        datetime(1969, 12, 31, 23, tzinfo=UTC), datetime(1970, 1, 1, 2, tzinfo=UTC), None,
    ]  # fmt: skip
    assert table.column("messages").to_pylist() == [1, 1, 2]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"by": ("topic", "colour")}, "by=topic,colour: expected each of topic, queue, tag, key and host"),
        ({"largest": -1}, "largest=-1: expected 0 or more"),
        ({"largest": 1 << 63}, "largest 9223372036854775808: expected a whole number, 9223372036854775807 at most"),
        ({"by": ("topic", "topic")}, "at most once"),
        ({"by": ("topic", "hour")}, "by time: bucket, as 1h"),
        ({"bucket": "1 hour"}, "bucket=1 hour: expected a number and s, m, h or d"),
        ({"bucket": "0s"}, "bucket=0s"),
        ({"time_of": "read"}, "time_of=read: expected store or born"),
    ],
)
def test_wrong_options_are_refused(options: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        statistics(CLEAN / "store", runner=LocalRunner(), **options)


def test_a_directory_that_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreFormatError, match="no store"):
        statistics(tmp_path, runner=LocalRunner())


@pytest.mark.parametrize("split_bytes", [7_000, 64 << 20])
def test_a_message_counts_for_each_of_its_keys(split_bytes: int) -> None:
    counts = Counter[Any]()
    for message in stored_messages():
        counts.update((message.topic, key) for key in set(message.keys) or {None})
    result = statistics(
        CLEAN / "store", runner=LocalRunner(2), by=("topic", "key"), bucket=None, split_bytes=split_bytes
    )
    rows = result.table.select(["topic", "key", "messages"]).to_pylist()
    assert {(row["topic"], row["key"]): row["messages"] for row in rows} == counts
    assert result.messages == 1000
    assert sum(result.disk.topics["bytes"].to_pylist()) == result.log_bytes


def test_many_groups_of_a_scan_are_counted_as_few_are(tmp_path: Path) -> None:
    """So many that their numbers are ranked, and that the product of their counts passes an int64."""
    hosts = [encode_host(f"10.0.{number // 250}.{number % 250}:4000") for number in range(2000)]
    log = b""
    for number, host in enumerate(hosts):
        log += encode_record(
            Message(f"t-{number}", b"", tags=f"a{number}", keys=[f"k{number}", f"k{number}", "same"]),
            queue_id=number, queue_offset=0, commit_log_offset=len(log), store_timestamp=number**5,
            store_host=HOST, born_timestamp=0, born_host=host,
        )  # fmt: skip
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / ("0" * 20)).write_bytes(log + bytes(1000))
    table = statistics(
        tmp_path, runner=LocalRunner(1), by=("topic", "queue", "tag", "key", "host"), bucket="1s", latency=True
    ).table
    assert table.num_rows == 4000
    assert table["messages"].to_pylist() == [1] * 4000
    row = table.filter(pc.and_(pc.equal(table["topic"], "t-1999"), pc.equal(table["key"], "k1999"))).to_pylist()[0]
    assert (row["queue_id"], row["tags"], row["born_host"]) == (1999, "a1999", "10.0.7.249")
    assert 1999**5 <= row["latency_p50_ms"] <= 1999**5 * (1 + 1 / 128)


@pytest.mark.parametrize("by", [("topic", "tag"), ()])
@pytest.mark.parametrize("split_bytes", [7_000, 64 << 20])
def test_latencies_are_quantiles_of_store_less_born(by: tuple[Dimension, ...], split_bytes: int) -> None:
    latencies: dict[Any, list[int]] = {}
    for message in stored_messages():
        key = key_of(message, by, 0, "store")
        latencies.setdefault(key, []).append(message.store_timestamp - message.born_timestamp)
    result = statistics(
        CLEAN / "store", runner=LocalRunner(2), by=by, bucket=None, latency=True, split_bytes=split_bytes
    )
    assert result.table.num_rows == len(latencies)
    for row in result.table.to_pylist():
        expected = sorted(latencies[tuple(row.values())[: len(by)]])
        assert row["messages"] == len(expected)
        for name, part in QUANTILES.items():
            exact = expected[max(math.ceil(len(expected) * part), 1) - 1]
            assert exact <= row[name] <= exact + abs(exact) / 128


@pytest.mark.parametrize("split_bytes", [7_000, 64 << 20])
@pytest.mark.parametrize("largest", [0, 1, 7, 5000])
def test_the_largest_bodies_are_exact(largest: int, split_bytes: int) -> None:
    result = statistics(CLEAN / "store", runner=LocalRunner(2), largest=largest, split_bytes=split_bytes)
    ordered = sorted(stored_messages(), key=lambda message: (-len(message.body), message.commit_log_offset))
    expected = [(len(message.body), message.topic, message.commit_log_offset) for message in ordered[:largest]]
    rows = result.largest.select(["body_bytes", "topic", "commit_log_offset"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == expected


def test_the_largest_bodies_of_many_scans_are_exact(tmp_path: Path) -> None:
    """Each scan gives only what is larger than what is there; equal ones are the older."""
    sizes = [5 + int(n >= 40_000 and n % 30 == 0) for n in range(70_000)]
    with reput.MessageStore.open(tmp_path) as store:
        store.put_arrow(pa.table({"topic": ["orders"] * len(sizes), "body": [b"." * size for size in sizes]}))
    rows = statistics(tmp_path, runner=LocalRunner(1), largest=3000).largest.to_pylist()
    offsets = reput.read_log(tmp_path, ["commit_log_offset"]).read_all()["commit_log_offset"].to_pylist()
    expected = sorted(zip(sizes, offsets, strict=True), key=lambda pair: (-pair[0], pair[1]))[:3000]
    assert [(row["body_bytes"], row["commit_log_offset"]) for row in rows] == expected


class TestDamage:
    @pytest.fixture
    def damaged(self, tmp_path: Path) -> tuple[Path, list[int]]:
        """A log of 40 records: a header of one is broken, and a body of another; and where they lie."""
        log, offsets = b"", []
        for number in range(40):
            offsets.append(len(log))
            log += encode_record(
                Message("orders", b"body %d" % number), queue_id=0, queue_offset=number, commit_log_offset=len(log),
                store_timestamp=1, store_host=HOST, born_timestamp=0, born_host=HOST,
            )  # fmt: skip
        data = bytearray(log + bytes(1000))
        data[offsets[10] + 4] ^= 1
        data[offsets[30] + 88] ^= 1
        (tmp_path / "commitlog").mkdir()
        (tmp_path / "commitlog" / ("0" * 20)).write_bytes(data)
        return tmp_path, offsets

    @pytest.mark.parametrize("split_bytes", [300, 1000, 64 << 20])
    @pytest.mark.parametrize(("check_crc", "rows"), [(False, [10]), (True, [10, 30])])
    def test_is_told_and_counted_nowhere(
        self, damaged: tuple[Path, list[int]], check_crc: bool, rows: list[int], split_bytes: int
    ) -> None:
        store, offsets = damaged
        result = statistics(store, runner=LocalRunner(2), check_crc=check_crc, split_bytes=split_bytes)
        assert [(damage.begin, damage.end) for damage in result.damages] == [(offsets[i], offsets[i + 1]) for i in rows]
        assert result.messages == 40 - len(rows)
        assert [f"damaged at offset {offsets[i]}" in text for i, text in zip(rows, result.findings, strict=True)] == [
            True
        ] * len(rows)


def test_disk_use_of_an_apache_store_adds_up_to_the_log() -> None:
    result = statistics(CLEAN / "store", runner=LocalRunner(2), by=("queue",))
    sizes = Counter[str]()
    for message in stored_messages():
        sizes[message.topic] += message.store_size
    assert {row["topic"]: row["bytes"] for row in result.disk.topics.to_pylist()} == sizes
    assert sum(result.disk.parts["messages"].to_pylist()) == 1000
    assert result.disk.files.num_rows == len(list((CLEAN / "store/commitlog").iterdir()))


def test_a_job_that_was_killed_does_only_what_is_missing(tmp_path: Path) -> None:
    ran: list[object] = []

    class Dying(LocalRunner):
        """Dies before the fifth task, if it may."""

        def run(self, task: Any, items: Any, *, description: str, progress: Any = None) -> list[Any]:
            def one(item: Any) -> Any:
                if len(ran) == 4:
                    raise KeyboardInterrupt
                ran.append(item)
                return task(item)

            return super().run(one, items, description=description, progress=progress)

    asked: Any = {"by": ("topic", "key"), "latency": True, "split_bytes": 7_000}
    whole = statistics(CLEAN / "store", runner=LocalRunner(1), **asked)
    with pytest.raises(KeyboardInterrupt):
        statistics(CLEAN / "store", runner=Dying(1), work_dir=tmp_path / "work", **asked)
    ran.append("killed")
    resumed = statistics(CLEAN / "store", runner=Dying(1), work_dir=tmp_path / "work", **asked)
    assert ran[4] == "killed"
    assert not {str(item) for item in ran[:4]} & {str(item) for item in ran[5:]}
    assert (resumed.table, resumed.largest, resumed.disk) == (whole.table, whole.largest, whole.disk)
    assert list((tmp_path / "work").iterdir()) == []


class PuttingRunner(DyingRunner):
    """Puts messages when the store is listed, and before each task."""

    def __init__(self, store: reput.MessageStore, tasks: int) -> None:
        super().__init__(tasks)
        self._store = store

    def run(self, task: Any, items: Any, *, description: str, progress: Any = None) -> list[Any]:
        def one(item: Any) -> Any:
            if description != "list the store":
                self._store.put_messages([Message("later", b"x" * 50)] * 30)
            return task(item)

        return super().run(one, items, description=description, progress=progress)


@pytest.mark.parametrize("tasks", [1, 3, 99])
def test_a_store_that_is_written_counts_up_to_where_its_log_ended_even_after_a_kill(tasks: int, tmp_path: Path) -> None:
    asked: Any = {"by": ("topic", "tag"), "split_bytes": 3_000, "work_dir": tmp_path / "work"}
    with reput.MessageStore.open(tmp_path / "store", mapped_file_size_commit_log=1 << 14) as store:
        store.put_messages([Message("orders", b"x" * 200, tags="t")] * 200)
        expected = statistics(tmp_path / "store", runner=LocalRunner(1), by=("topic", "tag"))
        try:
            found = statistics(tmp_path / "store", runner=PuttingRunner(store, tasks), **asked)
        except KeyboardInterrupt:
            found = statistics(tmp_path / "store", runner=PuttingRunner(store, 99), **asked)
    assert (found.table, found.messages, found.log_bytes) == (expected.table, 200, expected.log_bytes)
    assert found.disk.parts == expected.disk.parts


def test_outcomes_of_tasks_are_merged_as_they_come_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    in_turns = partial(run_over_splits_in_turns, at_once=3)
    monkeypatch.setattr("reput.jobs.statistics.job.run_over_splits_in_turns", in_turns)
    living: list[int] = []
    tables: list[weakref.ref[Any]] = []

    class Watching(LocalRunner):
        def run(self, task: Any, items: Any, **options: Any) -> Any:
            gc.collect()
            living.append(sum(table() is not None for table in tables))
            results: list[Any] = super().run(task, items, **options)
            tables.extend(weakref.ref(result.table) for result in results if hasattr(result, "table"))
            return results

    whole = statistics(CLEAN / "store", runner=LocalRunner(1), latency=True)
    result = statistics(CLEAN / "store", runner=Watching(1), latency=True, split_bytes=7_000)
    assert len(tables) > 20
    assert max(living) <= 3  # the turn before, which the generator still has
    assert result.table == whole.table
    assert result.largest == whole.largest
    assert result.disk == whole.disk
