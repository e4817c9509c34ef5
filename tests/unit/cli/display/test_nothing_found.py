"""What is said where nothing is found: one line with what was looked for and what the store has; the status stays 0."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.commands import Run


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--offset", 4), "no message at queue offset 4; queue orders/0 has the queue offsets 0 to 3"),
        (("--offset", 9), "no message at queue offset 9; queue orders/0 has the queue offsets 0 to 3"),
        (
            ("--tags", "lost"),
            "no message that was looked at from queue offset 0 on has the tags 'lost'; queue orders/0",
        ),
        (("--queue-id", 7), "topic 'orders' has no queue 7; its queues: 0, 1"),
    ],
)
def test_a_pull_without_messages(store: Path, run_reput: Run, arguments: tuple[str, ...], told: str) -> None:
    answer = run_reput("get", store, "--topic", "orders", *arguments)
    assert (answer.status, answer.err.count("\n")) == (0, 1)
    assert answer.err.startswith(f"reput: {told}")
    assert "body" not in answer.out
    assert json.loads(run_reput("get", store, "--topic", "orders", *arguments, "--json").err)["hint"].startswith(told)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ("--topic", "orders", "--key", "O-1"),
            "no message of topic 'orders' in that time has the key 'O-1'; the index ",
        ),
        (
            ("--topic", "orders", "--key", "a", "--key", "b"),
            "one of the keys 'a', 'b'; the index has 5 keys of messages",
        ),
        (("--topic", "orders", "--key", "o-1", "--end", "2020-01-01"), "in that time has the key 'o-1'; the index has"),
        (("--commit-log-offset", "5"), "offset 5: no such record starts there; the log has the offsets 0 to "),
        (("--commit-log-offset", "65535"), "offset 65535: the log has the offsets 0 to "),
        (("--commit-log-offset", "-1"), "offset -1: the log has the offsets 0 to "),
        (("--message-id", "7F00000100002A9F0000000000000005"), "message id 7F00000100002A9F0000000000000005: no such"),
        (("--message-id", "7F00000200002A9F0000000000000000"), "message id 7F00000200002A9F0000000000000000: no such"),
    ],
)
def test_a_query_without_messages(store: Path, run_reput: Run, arguments: tuple[str, ...], told: str) -> None:
    for json_option in ((), ("--json",)):
        answer = run_reput("query", store, *arguments, *json_option)
        assert (answer.status, answer.out, answer.err.count("\n")) == (0, "", 1)
        assert told in answer.err


def test_a_key_without_messages_is_told_beside_one_with_some(store: Path, run_reput: Run) -> None:
    answer = run_reput("query", store, "--topic", "orders", "--key", "o-1", "--key", "lost")
    assert "hello world" in answer.out
    assert "has the key 'lost'; the index" in answer.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--begin-offset", "70000"), "no such record; the files of the log have the offsets 0 to 65535"),
        (("--what", "queue", "--topic", "orders", "--begin-offset", "50"), "no unit is in use there"),
        (
            ("--what", "queue", "--topic", "orders", "--queue-id", "5"),
            "topic 'orders' has no queue 5; its queues: 0, 1",
        ),
    ],
)
def test_a_dump_without_lines(store: Path, run_reput: Run, arguments: tuple[str, ...], told: str) -> None:
    answer = run_reput("dump", store, *arguments)
    assert (answer.status, answer.out, answer.err.count("\n")) == (0, "", 1)
    assert told in answer.err


def test_a_store_without_what_is_derived_leads_to_the_log(store: Path, run_reput: Run) -> None:
    for folder in ("consumequeue", "index"):
        shutil.rmtree(store / folder)
    get = run_reput("get", store, "--topic", "orders")
    assert "no consume queue with messages, but its log has the offsets 0 to " in get.err
    assert f"`reput dump {store}` shows it" in get.err
    assert get.status == 1  # for the queues were there when it was closed
    for what, told in (("queue", "no consume queues; --what log shows the log"), ("index", "no index files")):
        answer = run_reput("dump", store, "--what", what)
        assert (answer.status, answer.err) == (0, f"reput: {store}: {told}\n")
