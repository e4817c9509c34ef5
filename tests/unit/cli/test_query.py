"""reput query: by key, by message id, by commit log offset."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Run, truth


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
        ((), "give --topic with one --key or more"),
        (("--topic", "orders"), "give --topic with one --key or more"),
        (("--key", "o-1"), "give --topic with one --key or more"),
        (("--topic", "orders", "--key", "o-1", "--commit-log-offset", 0), "give --topic with one --key or more"),
        (("--message-id", "XYZ"), "expected 32 or 56 hexadecimal digits"),
        (("--topic", "orders", "--key", "o-1", "--begin", "yesterday"), "is no time"),
        (("--topic", "orders", "--key", "o-1", "--max-num", "0"), "--max-num"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(
    store: Path, run_reput: Run, arguments: tuple[str, ...], reason: str
) -> None:
    answer = run_reput("query", store, *arguments)
    assert (answer.status, answer.out) == (2, "")
    assert reason in answer.err
    assert answer.err.count("\n") == 1
