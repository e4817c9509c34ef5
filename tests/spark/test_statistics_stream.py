"""Statistics as a stream: what they end with is what the job counts, over deaths and restarts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

import reput
from reput.errors import ConfigError
from reput.formats.message import Message
from reput.jobs.runner import LocalRunner
from reput.jobs.statistics.job import Dimension, statistics
from reput.spark import statistics_stream
from reput.spark.compat import LIMITS
from tests.support.commands import run_reput
from tests.support.hand_log import HandLog
from tests.support.spark_minors import needs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Windows:
    """Keeps the last row of each group and window; may die when it has kept a batch."""

    def __init__(self, names: int) -> None:
        self.names = names
        self.rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self.appended: list[tuple[Any, ...]] = []
        self.dies = False

    def __call__(self, changed: DataFrame, batch: int) -> None:
        for row in changed.toArrow().to_pylist():
            values = tuple(row.values())
            self.rows[values[: self.names]] = values[self.names :]
            self.appended.append(values)
        if self.dies:
            raise RuntimeError("died")

    def run(self, frame: DataFrame, checkpoint: Path, mode: str) -> None:
        writer = frame.writeStream.outputMode(mode).foreachBatch(self).trigger(availableNow=True)
        writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination()


def counted(store: Path, names: int, **arguments: Any) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """The groups that the job counts: messages, bytes."""
    rows = statistics(store, runner=LocalRunner(2), **arguments).table.to_pylist()
    return {tuple(row.values())[:names]: (row["messages"], row["bytes"]) for row in rows}


def put_tagged(path: Path, first: int, count: int) -> None:
    with reput.MessageStore.open(path) as store:
        store.put_messages(
            [
                Message(f"topic-{n % 3}", b"." * n, tags=(None, "a")[n % 2], keys=[f"k{n % 4}", "all"][: n % 3])
                for n in range(first, first + count)
            ]
        )


@needs(LIMITS)
def test_a_stream_that_dies_ends_with_what_the_job_counts(spark: SparkSession, tmp_path: Path) -> None:
    store, by = tmp_path / "store", ("topic", "tag", "key", "host")
    windows = Windows(len(by) + 1)
    put_tagged(store, 0, 50)
    for first, dies in ((50, True), (70, False)):
        windows.dies = dies
        frame = statistics_stream(spark, store, by=by, bucket="1s", latency=True, max_rows_per_trigger=40)
        if dies:
            with pytest.raises(StreamingQueryException, match="died"):
                windows.run(frame, tmp_path / "checkpoint", "update")
        else:
            windows.run(frame, tmp_path / "checkpoint", "update")
        put_tagged(store, first, 20)
    windows.run(frame, tmp_path / "checkpoint", "update")
    expected = counted(store, len(by) + 1, by=by, bucket="1s")
    assert {group: values[:2] for group, values in windows.rows.items()} == expected
    assert all(len(values) == 7 and 0 <= values[2] <= values[6] for values in windows.rows.values())


def test_a_window_is_appended_once_when_it_is_over(spark: SparkSession, tmp_path: Path) -> None:
    log = HandLog(tmp_path / "store", 8192)  # 7 ms between two messages
    windows = Windows(1)
    for _ in range(2):
        log.append(300)
        frame = statistics_stream(spark, log.path, by=(), bucket="1s", watermark="0 seconds")
        windows.run(frame, tmp_path / "checkpoint", "append")
    expected = [(*group, *values) for group, values in counted(log.path, 1, by=(), bucket="1s").items()]
    assert sorted(windows.appended) == sorted(expected)[: len(windows.appended)]
    assert len(windows.appended) >= len(expected) - 1 >= 4


def test_the_command_goes_on_where_it_ended(spark: SparkSession, tmp_path: Path) -> None:
    store, found = tmp_path / "store", {}
    arguments: Sequence[object] = ("--by", "topic", "--bucket", "1s", "--follow", "--available-now", "--json")
    for first in (0, 30):
        put_tagged(store, first, 30)
        answer = run_reput("stats", store, *arguments, "--work-dir", tmp_path / "work")
        assert answer.status == 0, answer.err
        found |= {(line["topic"], line["store_timestamp"]): line["messages"] for line in answer.lines()}
    expected = counted(store, 2, by=("topic",), bucket="1s")
    assert found == {(topic, round(time.timestamp() * 1000)): values[0] for (topic, time), values in expected.items()}
    changed = run_reput("stats", store, *arguments, "--latency", "--work-dir", tmp_path / "work")
    assert (changed.status, changed.out) == (2, "")
    assert "latency was false and is true" in changed.err
    assert "needs --bucket" in run_reput("stats", store, "--follow").err


def test_the_command_follows_some_topics_and_no_others_in_its_folder(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "store"
    put_tagged(store, 0, 30)
    arguments = (
        "stats",
        store,
        "--bucket",
        "1s",
        "--follow",
        "--available-now",
        "--json",
        "--work-dir",
        tmp_path / "w",
    )
    answer = run_reput(*arguments, "--topics", "topic-1,topic-2")
    assert {line["topic"] for line in answer.lines()} == {"topic-1", "topic-2"}
    assert sum(line["messages"] for line in answer.lines()) == 20
    for topics in ((), ("--topics", "topic-1")):
        refused = run_reput(*arguments, *topics)
        assert (refused.status, refused.out) == (2, "")
        assert 'topics was ["topic-1", "topic-2"] and is' in refused.err


def test_the_command_says_in_a_line_that_messages_went_before_they_were_counted(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    arguments = ("stats", store, "--bucket", "1s", "--follow", "--available-now", "--work-dir", tmp_path / "w")
    with reput.MessageStore.open(store, mapped_file_size_commit_log=1 << 14) as small:
        small.put_message(Message("topic-0", b"."))
    assert run_reput(*arguments).status == 0
    put_tagged(store, 0, 200)
    files = sorted((store / "commitlog").iterdir())
    for path in files[:-1]:  # as retention does
        path.unlink()
    refused = run_reput(*arguments)
    assert refused.status == 2
    told = refused.err.strip().splitlines()[-1]
    assert "the log was to be read on from" in told
    assert told.endswith("; another --work-dir begins with the log as it is")
    assert run_reput(*arguments[:-1], tmp_path / "another").status == 0


def test_a_stream_without_windows_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    by: Sequence[Dimension] = ("topic",)
    with pytest.raises(ConfigError, match="a stream is counted by windows"):
        statistics_stream(spark, tmp_path, by=by, bucket=None)  # type: ignore[arg-type]
