"""reput tail: the messages of a store as another process puts them."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import reput
from reput import Message
from reput.formats.metadata import ConsumerOffsets, decode_metadata
from tests.support.commands import Run, content_of


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "reput", "tail", *map(str, arguments)]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_what_is_there_is_printed_and_nothing_is_changed(store: Path, run_reput: Run) -> None:
    before = content_of(store)
    answer = run_reput("tail", store, "--topic", "orders", "--queue-id", 1, "--from", "first", "--timeout", 0)
    assert (answer.status, answer.out, answer.err) == (0, "elsewhere\n", "")
    assert content_of(store) == before


def test_json_has_all_fields_of_a_message(store: Path, run_reput: Run) -> None:
    options = ("--from", "1970-01-01", "--tags", "paid", "--format", "json", "--timeout", 0)
    (message,) = run_reput("tail", store, "--topic", "orders", *options).lines()
    assert (message["body"], message["keys"], message["properties"]["region"]) == ("hello world", ["o-1", "o-2"], "eu")


def test_count_ends_it(store: Path, run_reput: Run) -> None:
    answer = run_reput("tail", store, "--topic", "orders", "--from", "first", "--count", 2)
    assert len(answer.out.splitlines()) == 2


def test_nothing_has_come(store: Path, run_reput: Run) -> None:
    answer = run_reput("tail", store, "--topic", "order", "--timeout", 0)
    assert (answer.status, answer.out) == (0, "")
    assert "no message of topic 'order' has come; `reput info" in answer.err


def test_later_messages_of_another_process_and_ctrl_c(store: Path) -> None:
    with start(store, "--topic", "orders", "--from", "first", "--queue-id", 1) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "elsewhere\n"
        with reput.MessageStore.open(store) as writer:
            writer.put_message(Message("orders", b"later"), queue_id=1)
            assert process.stdout.readline() == "later\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_a_group_goes_on_after_what_was_printed(store: Path, run_reput: Run, tmp_path: Path) -> None:
    options = ("--topic", "orders", "--from", "first", "--group", "g", "--offsets", tmp_path / "offsets.json")
    first = run_reput("tail", store, *options, "--count", 2).out
    rest = run_reput("tail", store, *options, "--timeout", 0, "--format", "json").lines()
    assert first.splitlines() == ["hello world", "one"]
    assert [message.get("body") for message in rest] == ["two", None, "elsewhere"]
    assert run_reput("tail", store, *options, "--timeout", 0).out == ""
    content = decode_metadata(ConsumerOffsets, (tmp_path / "offsets.json").read_bytes())
    assert content.offset_table == {"orders@g": {0: 4, 1: 1}}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--group", "g"), "--group counts only with --offsets"),
        (("--offsets", "/nowhere/file"), "--offsets counts only with --group"),
        (("--from", "soon"), "no time"),
    ],
)
def test_wrong_usage(store: Path, run_reput: Run, options: tuple[str, ...], reason: str) -> None:
    answer = run_reput("tail", store, "--topic", "orders", *options)
    assert (answer.status, answer.out) == (2, "")
    assert reason in answer.err


@pytest.mark.parametrize("has_topic", [True, False])
@pytest.mark.parametrize("is_behind", [True, False])
def test_offsets_that_cannot_be_written_are_told_before_the_first_message(
    store: Path, run_reput: Run, tmp_path: Path, has_topic: bool, is_behind: bool
) -> None:
    offsets = tmp_path / "offsets.json"
    options = ("--topic", "orders" if has_topic else "later", "--from", "first", "--group", "g", "--offsets", offsets)
    read = run_reput(
        "tail", store, *options, "--timeout", 0, "--format", "json", *(("--count", 1) if is_behind else ())
    )
    assert read.status == 0
    (tmp_path / "offsets.json.tmp").mkdir()  # not even root writes there
    answer = run_reput("tail", store, *options, "--timeout", 0)
    assert (answer.status, answer.out) == (2, "")
    assert str(offsets) in answer.err


def test_a_damaged_log_is_told(store: Path, run_reput: Run) -> None:
    log = store / "commitlog" / "00000000000000000000"
    log.write_bytes(log.read_bytes().replace(b"one", b"0ne"))
    answer = run_reput("tail", store, "--topic", "orders", "--from", "first")
    assert answer.status == 2
    assert answer.out == "hello world\n"
    assert "damaged at offset" in answer.err


def test_a_tail_to_which_nothing_comes_says_how_to_see_what_was_there(store: Path, run_reput: Run) -> None:
    answer = run_reput("tail", store, "--topic", "orders", "--timeout", "0")
    assert (answer.status, answer.out) == (0, "")
    assert "no message of topic 'orders' has come; `--from first` shows those that were there before" in answer.err
    with_tags = run_reput("tail", store, "--topic", "orders", "--timeout", "0", "--from", "first", "--tags", "none")
    assert "has come; `reput info" in with_tags.err
