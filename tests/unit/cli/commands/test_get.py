"""reput get: a queue as RocketMQ's consumer sees it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from reput.formats.record import decode_record
from tests.support.commands import SMALL_FILES, Run, truth


def test_each_queue_of_a_rocketmq_store_comes_back_whole(golden: Callable[[str], Path], run_reput: Run) -> None:
    path = golden("clean")
    expected: dict[tuple[str, str], list[list[str]]] = {}
    for words in truth("clean", "msg"):
        expected.setdefault((words[0], words[1]), []).append(words)
    for (topic, queue_id), messages in list(expected.items())[::5]:
        arguments = ("--topic", topic, "--queue-id", queue_id, "--max-num", 1000, "--json")
        answer = run_reput("get", path, *arguments)
        assert answer.status == 0
        found = [
            [m["queue_offset"], m["commit_log_offset"], m["store_size"], m["body_crc"], m["flag"], m["sys_flag"]]
            for m in answer.lines()
        ]
        assert found == [[int(word) for word in words[2:8]] for words in messages]
        assert json.loads(answer.err) == {
            "status": "FOUND",
            "next_begin_offset": len(messages),
            "min_offset": 0,
            "max_offset": len(messages),
        }


def test_text_shows_status_next_offset_and_messages(store: Path, run_reput: Run) -> None:
    answer = run_reput("get", store, "--topic", "orders", "--max-num", 2)
    assert answer.status == 0
    assert ["status", "FOUND"] in [line.split() for line in answer.out.splitlines()]
    assert ["next_begin_offset", "2"] in [line.split() for line in answer.out.splitlines()]
    assert "hello world" in answer.out
    assert "two" not in answer.out


def test_a_body_that_is_no_text_is_base64(store: Path, run_reput: Run) -> None:
    messages = run_reput("get", store, "--topic", "orders", "--json").lines()
    assert [message.get("body") for message in messages] == ["hello world", "one", "two", None]
    assert base64.b64decode(messages[3]["body_base64"]) == b"\xff\xfe"


@pytest.mark.parametrize(
    ("arguments", "status", "next_offset", "bodies"),
    [
        (("--tags", "paid"), "FOUND", 4, ["hello world"]),
        (("--tags", "shipped || paid", "--offset", 1, "--max-num", 1), "FOUND", 2, ["one"]),
        (("--tags", "refunded"), "NO_MATCHED_MESSAGE", 4, []),
        (("--offset", 4), "OFFSET_OVERFLOW_ONE", 4, []),
        (("--offset", 9), "OFFSET_OVERFLOW_BADLY", 4, []),
        (("--offset", -1), "OFFSET_TOO_SMALL", 0, []),
        (("--queue-id", 7), "NO_MESSAGE_IN_QUEUE", 0, []),
    ],
)
def test_rocketmqs_statuses_are_answers_and_no_errors(
    store: Path, run_reput: Run, arguments: tuple[str, ...], status: str, next_offset: int, bodies: list[str]
) -> None:
    answer = run_reput("get", store, "--topic", "orders", "--json", *arguments)
    told = json.loads(answer.err)
    assert (answer.status, told["status"], told["next_begin_offset"]) == (0, status, next_offset)
    assert [message["body"] for message in answer.lines()] == bodies


def test_raw_writes_the_records_as_they_lie_in_the_log(store: Path, tmp_path: Path, run_reput: Run) -> None:
    run_reput("get", store, "--topic", "orders", "--max-num", 3, "--raw", tmp_path / "raw")
    data = (tmp_path / "raw").read_bytes()
    bodies, position = [], 0
    while position < len(data):
        record = decode_record(data, position)
        bodies.append(record.body)
        position += record.store_size
    assert bodies == [b"hello world", b"one", b"two"]
    assert data == (store / "commitlog" / ("0" * 20)).read_bytes()[: len(data)]


def test_a_compressed_body_is_shown_decompressed(tmp_path: Path, run_reput: Run) -> None:
    import zlib

    import reput

    with reput.MessageStore.open(tmp_path / "s", mapped_file_size_commit_log=65536) as opened:
        opened.put_message(reput.Message("t", zlib.compress(b"plain text"), sys_flag=1))
    (message,) = run_reput("get", tmp_path / "s", "--topic", "t", "--json").lines()
    assert message["body"] == "plain text"


def test_control_characters_of_a_message_do_not_reach_the_terminal(tmp_path: Path, run_reput: Run) -> None:
    run_reput("put", tmp_path / "s", "--topic", "t", "--body", "a\x1b[2Jb\nc", *SMALL_FILES)
    for command in (("get", tmp_path / "s", "--topic", "t"), ("dump", tmp_path / "s")):
        answer = run_reput(*command)
        assert "\x1b" not in answer.out
        assert "b\\nc" in answer.out


@pytest.mark.parametrize(
    ("topic", "hint"),
    [
        ("oders", "there is no topic 'oders'; did you mean 'orders'?"),
        ("zzz", "there is no topic 'zzz'; there are orders"),
        ("orders", "topic 'orders' has no queue 7; its queues: 0, 1"),
    ],
)
def test_a_topic_or_queue_that_is_not_there_is_told_with_the_nearest_or_those_that_are(
    store: Path, run_reput: Run, topic: str, hint: str
) -> None:
    arguments = (store, "--topic", topic)
    get, query = run_reput("get", *arguments, "--queue-id", 7), run_reput("query", *arguments, "--key", "none")
    dumps = [run_reput("dump", *arguments, "--what", what, "--queue-id", 7) for what in ("log", "queue")]
    for answer in (get, query, *dumps):
        assert answer.status == 0
        assert answer.err.startswith(f"reput: {'no message' if answer is query and topic == 'orders' else hint}")
    told = json.loads(run_reput("get", *arguments, "--queue-id", 7, "--json").err)
    assert told.get("hint", "").startswith(hint)


def test_of_many_topics_some_are_named(tmp_path: Path, run_reput: Run) -> None:
    for number in range(10):
        run_reput("put", tmp_path / "s", "--topic", f"topic-{number}", "--body", "x", *SMALL_FILES)
    answer = run_reput("query", tmp_path / "s", "--topic", "zzz", "--key", "k")
    assert answer.err.rstrip().endswith(
        "there are topic-0, topic-1, topic-2, topic-3, topic-4, topic-5, topic-6, topic-7 and 2 more"
    )
