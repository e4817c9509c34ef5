"""What only reads changes no byte: of a clean store, a killed one, an empty one, a live one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from tests.support.commands import Run, content_of
from tests.support.shares import sampled

READING = (
    ("get", "--topic", "topic-1", "--queue-id", "1"),
    ("query", "--topic", "topic-1", "--key", "polygenelubricants"),
    ("query", "--commit-log-offset", "0"),
    ("dump", "--what", "log", "--hex"),
    ("dump", "--what", "queue"),
    ("dump", "--what", "index"),
    ("dump", "--what", "index", "--key-hash", "1"),
    ("dump", "--what", "checkpoint"),
    ("info",),
    ("stats", "--bucket", "1m"),
    ("query", "--topics", "topic-1", "--begin", "2020-01-01"),
    ("query", "--sql", "select topic, count(*) from messages group by topic"),
    ("audit", "--set", "fileReservedTime=0"),  # files were made old for RocketMQ to delete them
)


@sampled(3)
@pytest.mark.parametrize("case", ["clean", "killed", "killed-undispatched", "torn", "empty", "retention", "bcq"])
def test_reading_a_rocketmq_store_changes_nothing(golden: Callable[[str], Path], run_reput: Run, case: str) -> None:
    path = golden(case)
    before = content_of(path)
    for command, *arguments in READING:
        for json in ((), ("--json",)):
            answer = run_reput(command, path, *arguments, *json)
            assert answer.status == 0, answer.err
    assert content_of(path) == before


def test_reading_beside_a_writer_changes_nothing_and_sees_what_was_acknowledged(tmp_path: Path, run_reput: Run) -> None:
    path = tmp_path / "live"
    options = {"mapped_file_size_commit_log": 65536, "max_hash_slot_num": 100, "max_index_num": 400}
    with reput.MessageStore.open(path, flush_interval_consume_queue=2**31 - 1, **options) as opened:
        opened.put_messages([reput.Message("topic-1", b"x", keys=["k"]) for _ in range(50)], queue_id=1)
        opened.wait_dispatched()
        before = content_of(path)
        for command, *arguments in READING:
            assert run_reput(command, path, *arguments).status == 0
        assert content_of(path) == before
        got = run_reput("get", path, "--topic", "topic-1", "--queue-id", 1, "--max-num", 100, "--json")
        assert len(got.lines()) == 50
        opened.put_message(reput.Message("topic-1", b"still open"), queue_id=1)
