"""Statistics against a plain count over decoded records."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from reput.errors import ConfigError, StoreFormatError
from reput.formats.message import Message, MessageExt
from reput.formats.record import encode_host, encode_record
from reput.jobs.runner import LocalRunner
from reput.jobs.statistics import Dimension, statistics

CLEAN = Path(__file__).parents[2] / "golden/5.3.3/clean"
HOST = encode_host("10.0.0.1:10911")


def stored_messages() -> list[MessageExt]:
    """Each record of the clean store, by the offsets that RocketMQ's own reader gave."""
    log = b"".join(path.read_bytes() for path in sorted((CLEAN / "store/commitlog").iterdir()))
    lines = (CLEAN / "truth.txt").read_text().splitlines()
    return [MessageExt(log, int(line.split(" ")[1])) for line in lines if line.startswith("log ")]


def key_of(message: MessageExt, by: tuple[str, ...], bucket_ms: int, time_of: str) -> tuple[Any, ...]:
    parts = {"topic": message.topic, "queue": message.queue_id, "tag": message.tags}
    ms = message.store_timestamp if time_of == "store" else message.born_timestamp
    start = datetime.fromtimestamp(ms // bucket_ms * bucket_ms / 1000, UTC) if bucket_ms else None
    return (*(parts[name] for name in by), *([start] if bucket_ms else []))


@pytest.mark.parametrize(
    ("by", "bucket", "bucket_ms", "time_of"),
    [
        (("topic", "queue", "tag"), "1h", 3_600_000, "store"),
        (("topic", "queue", "tag"), "1s", 1_000, "store"),
        (("tag", "topic"), "2m", 120_000, "born"),
        (("topic",), None, 0, "store"),
        (("queue",), None, 0, "store"),
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
        ({"by": ("topic", "host")}, "by=topic,host: expected each of topic, queue and tag"),
        ({"by": ("topic", "topic")}, "at most once"),
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
