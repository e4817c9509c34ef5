"""reput query: by key, by message id, by commit log offset."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reput.jobs.query import query_job
from tests.support.commands import SMALL_FILES, Run, truth


def test_keys_of_a_rocketmq_store_find_what_rocketmq_found(golden: Callable[[str], Path], run_reput: Run) -> None:
    path = golden("clean")
    for topic, key, *offsets in truth("clean", "query")[::300]:
        answer = run_reput("query", path, "--topic", topic, "--key", key, "--max-num", 1000, "--json")
        assert answer.status == 0
        assert [message["commit_log_offset"] for message in answer.lines()] == sorted(map(int, offsets))


def test_several_keys_give_each_message_once_in_log_order(store: Path, run_reput: Run) -> None:
    answer = run_reput("query", store, "--topic", "orders", "--key", "o-2", "--key", "o-1", "--json")
    assert [message["queue_offset"] for message in answer.lines()] == [0, 1, 2, 3]
    newest = run_reput("query", store, "--topic", "orders", "--key", "o-2", "--max-num", 2, "--json")
    assert [message["queue_offset"] for message in newest.lines()] == [2, 3]


@pytest.mark.parametrize(
    ("bounds", "count"),
    [
        (("--begin", "2020-01-01"), 4),
        (("--begin", "2020-01-01T00:00:00+02:00", "--end", "9000-01-01T00:00:00Z"), 4),
        (("--end", "2020-01-01T00:00:00Z"), 0),
        (("--end", "1577836800000"), 0),
        (("--begin", "9000-01-01"), 0),
    ],
)
def test_times_are_iso_texts_or_milliseconds(store: Path, run_reput: Run, bounds: tuple[str, ...], count: int) -> None:
    answer = run_reput("query", store, "--topic", "orders", "--key", "o-2", "--json", *bounds)
    assert (answer.status, len(answer.lines())) == (0, count)


def test_message_id_and_commit_log_offset_find_one_message(store: Path, run_reput: Run) -> None:
    message = run_reput("query", store, "--topic", "orders", "--key", "o-2", "--json").lines()[2]
    for arguments in (
        ("--message-id", message["message_id"]),
        ("--message-id", message["message_id"].lower()),
        ("--commit-log-offset", message["commit_log_offset"]),
    ):
        assert run_reput("query", store, *arguments, "--json").lines() == [message]
    assert "two" in run_reput("query", store, "--message-id", message["message_id"]).out


def test_what_is_not_there_is_no_error(store: Path, run_reput: Run) -> None:
    other_host = "0A000001" + "00002A9F" + "0" * 16
    for arguments in (
        ("--topic", "orders", "--key", "unknown"),
        ("--commit-log-offset", 1),
        ("--commit-log-offset", -5),
        ("--commit-log-offset", 1 << 62),
        ("--message-id", other_host),
    ):
        answer = run_reput("query", store, *arguments, "--json")
        assert (answer.status, answer.out, answer.err.count("\n")) == (0, "", 1)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "say what to find, as --topics orders,"),
        (("--topic", "orders"), "--topic wants a --key; all its messages: reput query STORE --topics orders"),
        (("--topic", "orders", "--begin", "2026-01-01"), "--topic wants a --key;"),
        (("--topics", "orders", "--message-id", "XYZ"), "--topics has no meaning with --message-id"),
        (("--sql", "select 1", "--key", "o-1"), "--key has no meaning with --sql"),
        (("--sql", "select x from orders"), "Referenced column"),
        (("--sql", "select x from order_s"), "order_s does not exist; there are messages, orders"),
        (("--topics", "orders", "--schema", "orders=id int"), "--schema counts only with --sql"),
        (("--sql", "select * from orders", "--schema", "id int"), "write name=value"),
        (("--topics", "orders", "--output", "rows.txt"), "ends with .parquet, .arrow, .csv or .jsonl"),
        (("--topics", "orders", "--runner", "spark"), "--runner spark goes with --sql, or with --work-dir"),
        (("--sql", "select 1", "--runner", "spark", "--work-dir", "w"), "Spark's SQL keeps nothing"),
        (("--sql", "select 1", "--master", "local[2]"), "--master counts only with --runner spark"),
        (("--topic", "orders", "--key", "o-1", "--report", "r.html"), "--report has no meaning with --topic"),
        (("--topic", "orders", "--key", "o-1", "--output", "rows.csv"), "--output has no meaning with --topic"),
        (("--key", "o-1", "--commit-log-offset", 0), "--key has no meaning with --commit-log-offset"),
        (("--message-id", "XYZ", "--commit-log-offset", 0), "leave other conditions out"),
        (("--message-id", "XYZ"), "expected 32 or 56 hexadecimal digits"),
        (("--topic", "orders", "--key", "o-1", "--begin", "yesterday"), "is no time"),
        (("--topic", "orders", "--key", "o-1", "--max-num", "0"), "--max-num"),
        (("--begin", "2026-12-01", "--end", "2026-11-01"), "a time before --begin"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(
    store: Path, run_reput: Run, arguments: tuple[str, ...], reason: str
) -> None:
    answer = run_reput("query", store, *arguments)
    assert (answer.status, answer.out) == (2, "")
    assert reason.replace("STORE", str(store)) in answer.err
    assert answer.err.count("\n") == 1
    assert "--sql" in arguments or len(answer.err.split()) < 25  # DuckDB's errors show the statement


def test_the_command_that_a_hint_names_is_right(store: Path, run_reput: Run) -> None:
    hint = run_reput("query", store, "--topic", "orders").err
    answer = run_reput(*hint.partition(": reput ")[2].split(), "--json")
    assert (answer.status, len(answer.lines())) == (0, 5)


def test_ranges_give_all_messages_of_keys_topics_and_times(store: Path, run_reput: Run) -> None:
    for arguments, offsets in (
        (("--key", "o-1", "--key", "o-2"), [0, 1, 2, 3]),
        (("--topics", "orders"), [0, 1, 2, 3, 0]),
        (("--topics", "orders,others", "--key", "o-1"), [0]),
        (("--begin", "2020-01-01", "--end", "9000-01-01"), [0, 1, 2, 3, 0]),
        (("--end", "2020-01-01"), []),
    ):
        answer = run_reput("query", store, *arguments, "--json")
        assert (answer.status, [message["queue_offset"] for message in answer.lines()]) == (0, offsets)
    (last,) = run_reput("query", store, "--key", "o-1", "--json").lines()
    assert (last["body"], last["properties"], last["keys"]) == ("hello world", {"region": "eu"}, ["o-1", "o-2"])
    assert last["store_timestamp"] > 1_700_000_000_000
    binary = run_reput("query", store, "--topics", "orders", "--json").lines()[3]
    assert binary["body_base64"] == "//4="
    assert "hello world" in run_reput("query", store, "--key", "o-1").out
    assert "did you mean 'orders'?" in run_reput("query", store, "--topics", "order").err


@pytest.mark.parametrize("way", [("--topics", "orders"), ("--sql", "select * from orders order by commit_log_offset")])
@pytest.mark.parametrize("count", [1, 3, 5, 9])
def test_max_num_limits_the_rows_of_every_way(
    store: Path, tmp_path: Path, run_reput: Run, way: tuple[str, ...], count: int
) -> None:
    rows = run_reput("query", store, *way, "--json").lines()
    assert len(rows) == 5
    limited = ("query", store, *way, "--max-num", count)
    assert run_reput(*limited, "--json").lines() == rows[:count]
    shown = run_reput(*limited)
    assert (shown.out.count("orders"), shown.err) == (min(count, 5), "")
    written = run_reput(*limited, "--output", tmp_path / "rows.parquet", "--json")
    assert written.object()["rows"] == min(count, 5)


def test_max_num_ends_the_reading(
    golden: Callable[[str], Path], run_reput: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    read_part = query_job.read_part

    def counted(*arguments: Any) -> Iterator[pa.RecordBatch]:
        read.append(1)
        return read_part(*arguments)

    monkeypatch.setattr(query_job, "read_part", counted)
    path = golden("clean")
    assert run_reput("query", path, "--begin", 0, "--json").status == 0
    parts = len(read)
    assert len(run_reput("query", path, "--begin", 0, "--max-num", 1, "--json").lines()) == 1
    assert parts > 1
    assert len(read) == parts + 1


def test_a_table_tells_what_is_no_finite_number_from_null(store: Path, run_reput: Run) -> None:
    sql = "select 'nan'::double a, 'inf'::double b, '-inf'::double c, null::double d"
    assert run_reput("query", store, "--sql", sql).out.splitlines()[-1].split() == ["NaN", "inf", "-inf"]
    assert run_reput("query", store, "--sql", sql, "--json").lines() == [dict.fromkeys("abcd")]


def test_sql_gives_rows_as_table_json_and_file(store: Path, tmp_path: Path, run_reput: Run) -> None:
    sql = "select queue_id, count(*) n, sum(store_size) size, max(tags) as tags from orders group by 1 order by 1"
    lines = run_reput("query", store, "--sql", sql, "--json").lines()
    assert [(line["queue_id"], line["n"], line["tags"]) for line in lines] == [(0, 4, "shipped"), (1, 1, None)]
    assert isinstance(lines[0]["size"], int)
    assert "shipped" in run_reput("query", store, "--sql", sql).out
    for name in ("rows.parquet", "rows.csv", "rows.jsonl"):
        answer = run_reput("query", store, "--sql", sql, "--output", tmp_path / name, "--json")
        assert answer.object() == {"rows": 2, "output": str(tmp_path / name)}
        assert (tmp_path / name).stat().st_size > 50
    refused = run_reput("query", store, "--sql", sql, "--output", store / "rows.csv")
    assert (refused.status, "lies inside the store" in refused.err) == (2, True)


def test_all_columns_go_into_csv_and_json_lines(store: Path, tmp_path: Path, run_reput: Run) -> None:
    for name in ("rows.csv", "rows.jsonl"):
        command = ("query", store, "--sql", "select * from messages order by commit_log_offset", "--output")
        assert run_reput(*command, tmp_path / name).status == 0
    with (tmp_path / "rows.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["body"] or row["body_base64"] for row in rows] == ["hello world", "one", "two", "//4=", "elsewhere"]
    assert (rows[0]["keys"], json.loads(rows[0]["properties"])) == ("o-1 o-2", {"region": "eu"})
    printed = run_reput("query", store, "--topics", "orders", "--json").lines()
    assert [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text("utf-8").splitlines()] == printed


def test_bodies_that_are_not_as_the_schema_says_are_findings(store: Path, run_reput: Run) -> None:
    sql = "select id from orders"
    answer = run_reput("query", store, "--sql", sql, "--schema", "orders=id bigint", "--json")
    assert (answer.status, answer.lines()) == (1, [{"id": None}] * 5)
    assert "topic orders: 5 bodies do not fit the schema" in answer.err


def test_a_table_shows_a_thousand_rows_and_says_so(tmp_path: Path, run_reput: Run) -> None:
    lines = b"".join(b"%d\n" % n for n in range(1200))
    run_reput("put", tmp_path / "many", "--topic", "orders", "--stdin", *SMALL_FILES, stdin=lines)
    answer = run_reput("query", tmp_path / "many", "--topics", "orders")
    assert len(answer.out.splitlines()) < 1010
    assert "1000 of 1200 rows are shown" in answer.err
