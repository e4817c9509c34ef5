"""When retention deletes: RocketMQ's rules, a file at a time."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest

from reput.config.message_store import MessageStoreConfig
from reput.jobs.statistics.disk_use import DiskUse, disk_use
from reput.log.directory import LogFile

PARTS = pa.table(
    {
        "start_offset": [0, 100, 100, 200, 0],
        "topic": ["a", "a", "b", "c", "a"],
        "messages": [1, 2, 3, 4, 5],
        "bytes": [10, 20, 30, 5, 35],
        "body_bytes": [1, 2, 3, 4, 5],
    }
)


def use(folder: Path, *written: str, hours: str = "04", reserved: int = 72, zone: timezone = UTC) -> DiskUse:
    """The disk use of three files of 100 bytes that were last written to at these times."""
    files = []
    for number, moment in enumerate(written):
        path = folder / f"{number * 100:020d}"
        path.write_bytes(bytes(100))
        os.utime(path, (datetime.fromisoformat(moment).timestamp(),) * 2)
        files.append(LogFile(str(path), number * 100, 100))
    config = MessageStoreConfig(delete_when=hours, file_reserved_time=reserved)
    return disk_use(files, PARTS, config, zone=zone)


def times(found: DiskUse, name: str) -> list[str | None]:
    return [moment and f"{moment:%m-%d %H:%M}" for moment in found.files[name].to_pylist()]


def test_a_file_expires_after_its_reserved_time_and_goes_in_the_next_hour_of_deletion(tmp_path: Path) -> None:
    found = use(tmp_path, "2026-01-01T03:30Z", "2026-01-01T04:30Z", "2026-01-01T05:00Z")
    assert times(found, "expires") == ["01-04 03:30", "01-04 04:30", "01-04 05:00"]
    assert times(found, "deleted") == ["01-04 04:00", "01-04 04:30", None]


def test_a_file_waits_for_the_ones_before_it(tmp_path: Path) -> None:
    found = use(tmp_path, "2026-01-05T04:10Z", "2026-01-01T04:30Z", "2026-01-01T05:00Z")
    assert times(found, "expires") == ["01-08 04:10"] * 3
    assert times(found, "deleted") == ["01-08 04:10", "01-08 04:10", None]


@pytest.mark.parametrize(
    ("hours", "zone", "expected"),
    [
        ("04", timezone(timedelta(hours=8)), "01-02 20:00"),
        ("04;16", UTC, "01-02 16:00"),
        ("23", timezone(timedelta(hours=5, minutes=30)), "01-02 17:30"),
    ],
)
def test_hours_are_those_of_the_broker_s_clock(tmp_path: Path, hours: str, zone: timezone, expected: str) -> None:
    found = use(tmp_path, "2026-01-01T12:00Z", "2026-01-09T00:00Z", hours=hours, zone=zone, reserved=24)
    assert times(found, "deleted")[0] == expected


def test_topics_are_told_by_size_and_when_their_first_and_last_file_goes(tmp_path: Path) -> None:
    found = use(tmp_path, "2026-01-01T04:00Z", "2026-01-02T04:00Z", "2026-01-03T04:00Z")
    rows = {row["topic"]: row for row in found.topics.to_pylist()}
    assert list(rows) == ["a", "b", "c"]
    assert (rows["a"]["messages"], rows["a"]["bytes"], rows["a"]["files"], rows["a"]["share"]) == (8, 65, 2, 0.65)
    assert (rows["a"]["first_deleted"], rows["a"]["last_deleted"]) == (
        datetime(2026, 1, 4, 4, tzinfo=UTC), datetime(2026, 1, 5, 4, tzinfo=UTC),
    )  # fmt: skip
    assert (rows["c"]["first_deleted"], rows["c"]["last_deleted"]) == (None, None)
    assert found.parts.num_rows == 4


def test_a_file_that_retention_took_meanwhile_is_left_out(tmp_path: Path) -> None:
    found = disk_use([LogFile(str(tmp_path / "gone"), 0, 100)], PARTS, MessageStoreConfig())
    assert found.files.num_rows == 0
    assert found.topics["last_deleted"].to_pylist() == [None] * 3
