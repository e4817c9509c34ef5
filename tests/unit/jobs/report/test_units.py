"""Numbers and times as a report's page writes them."""

from __future__ import annotations

import pytest

from reput.jobs.report.table import Value
from reput.jobs.report.units import without_unit, write_column, write_name, write_value


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("messages", 1_027_730, "1_027_730"),
        ("bytes", 1023, "1_023_B"),
        ("bytes", 1024, "1_KiB"),
        ("body_bytes", 140 * 1024 + 10, "140_KiB"),
        ("log bytes", 511_000_000, "487_MiB"),
        ("bytes of bodies", 3 << 31, "6_GiB"),
        ("bytes lost", 0, "0_B"),
        ("bytes", 5000 << 40, "5_000_TiB"),
        ("log bytes a second", 245_000_000, "234_MiB/s"),
        ("messages a second", 1_140_002, "1_140_002_msg/s"),
        ("messages/s", 12, "12_msg/s"),
        ("seconds", 0.0412, "41.2_ms"),
        ("seconds", 81.23, "81.2_s"),
        ("seconds", 300.0, "5_min"),
        ("seconds", 86_400, "24_h"),
        ("latency_p99_ms", 26, "26_ms"),
        ("latency_max_ms", 60_000, "60_s"),
        ("milliseconds, hour 3", 1500, "1.5_s"),
        ("share", 0.3214, "32.1_%"),
        ("commit_log_offset", 494_556_523, "494556523"),
        ("log end", 510_216_182, "510216182"),
        ("queue_id", 1234, "1234"),
        ("lag", -1234567, "-1_234_567"),
        ("mean", 3.14159, "3.14"),
        ("made", "2026-11-26T07:41:13Z", "2026-11-26 07:41:13 UTC"),
        ("made", "2026-11-26T07:41:13.250Z", "2026-11-26 07:41:13.250 UTC"),
        ("result", "clean", "clean"),
        ("resumed", False, "no"),
        ("bytes", None, ""),
    ],
)  # fmt: skip
def test_a_value_is_written_in_the_unit_that_its_name_tells(name: str, value: Value, text: str) -> None:
    assert write_value(value, name).replace("\u202f", "_") == text


@pytest.mark.parametrize(
    ("times", "texts"),
    [
        (["2026-11-26T07:00:00Z", "2026-11-26T08:30:00Z"], ["2026-11-26 07:00", "2026-11-26 08:30"]),
        (["2026-11-26T07:00:00Z", None, "2026-11-26T08:30:01Z"], ["2026-11-26 07:00:00", "", "2026-11-26 08:30:01"]),
        (["2026-11-26T07:00:00Z", "2026-11-26T08:30:01.5Z"], ["2026-11-26 07:00:00.000", "2026-11-26 08:30:01.500"]),
        (["2026-11-26T07:00:01.000Z"], ["2026-11-26 07:00:01"]),
    ],
)
def test_times_of_a_column_are_as_precise_as_all_of_them_need(times: list[Value], texts: list[str]) -> None:
    assert write_column(times, "store_timestamp") == ("store timestamp (UTC)", texts)


def test_a_column_of_other_texts_has_no_time_zone() -> None:
    assert write_column(["2026-11-26T07:00:00Z", "never"], "deleted")[0] == "deleted"
    assert write_column([None], "deleted") == ("deleted", [""])


def test_a_name_leaves_out_the_unit_behind_its_numbers() -> None:
    assert [write_name(name) for name in ("latency_p50_ms", "seconds", "messages/s", "queue_id")] == [
        "latency p50", "duration", "rate", "queue id",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("messages", "messages"),
        ("delay (minutes)", "delay (minutes)"),
        ("bytes", ""),
        ("messages a second", ""),
        ("lag in seconds", "lag"),
        ("latency_p99_ms", "latency p99"),
        ("milliseconds, stored (UTC) 2026-11-26 07:00", "stored (UTC) 2026-11-26 07:00"),
    ],
)
def test_a_label_of_numbers_that_have_their_unit_names_none(name: str, text: str) -> None:
    assert without_unit(name) == text
