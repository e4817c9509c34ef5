"""The stream source in Spark: exactly once over kills and restarts, and errors that reach the user."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import reput
import reput.spark
from reput.formats.message import Message
from reput.spark.compat import LIMITS
from tests.support.hand_log import HandLog
from tests.support.spark_minors import RUNS_AVAILABLE_NOW, needs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class Sink:
    """Keeps the rows of each batch by its number, as a sink does that is exactly once; may die before it says so."""

    def __init__(self) -> None:
        self.batches: dict[int, list[str]] = {}
        self.dies = False
        self.repeats = 0

    def __call__(self, frame: DataFrame, batch: int) -> None:
        rows = [body.decode() for body in frame.toArrow()["body"].to_pylist()]
        if batch in self.batches:
            self.repeats += 1
            assert rows == self.batches[batch], "a batch that runs again has the same rows"
        self.batches[batch] = rows
        if self.dies:
            raise RuntimeError("the sink died")

    @property
    def rows(self) -> list[str]:
        return [row for batch in sorted(self.batches) for row in self.batches[batch]]


@pytest.fixture
def log(tmp_path: Path) -> HandLog:
    return HandLog(tmp_path / "store", 4096)


@pytest.fixture
def start(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., StreamingQuery]]:
    """`start(frame, sink, available_now=True)`: a query with one checkpoint; it is stopped at the end."""
    queries: list[StreamingQuery] = []

    def run(frame: DataFrame, sink: Sink, *, available_now: bool = True) -> StreamingQuery:
        writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
        for _ in range(RUNS_AVAILABLE_NOW if available_now else 1):
            query = (writer.trigger(availableNow=True) if available_now else writer).start()
            queries.append(query)
            if available_now:
                query.awaitTermination()
        return query

    yield run
    for query in queries:
        query.stop()


@needs(LIMITS)  # the lag, at the end
def test_a_live_store_is_read_as_it_grows(
    spark: SparkSession, start: Callable[..., StreamingQuery], tmp_path: Path
) -> None:
    sink, expected = Sink(), []
    with reput.MessageStore.open(tmp_path / "live", mapped_file_size_commit_log=1 << 16) as store:
        frame = reput.spark.read_log_stream(spark, tmp_path / "live", ["body"])
        assert frame.isStreaming
        query = start(frame, sink, available_now=False)
        for n in (1, 0, 400, 3):
            bodies = [f"{len(expected)} {i} ".ljust(200, ".") for i in range(n)]
            store.put_messages([Message("orders", body.encode()) for body in bodies])
            expected += bodies
            query.processAllAvailable()
            assert sink.rows == expected
        progress = query.lastProgress
        assert progress is not None
        assert reput.spark.bytes_behind_latest(progress) == {str(tmp_path / "live"): 0}


@needs(LIMITS)
def test_it_is_exactly_once_over_a_sink_that_dies_and_a_log_that_rolls_and_is_cleaned(
    spark: SparkSession, start: Callable[..., StreamingQuery], log: HandLog, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    sink = Sink()
    frame = reput.spark.read_log_stream(spark, log.path, ["body"], max_rows_per_trigger=13)
    expected = log.append(40)
    start(frame, sink)
    assert sink.rows == expected
    assert max(map(len, sink.batches.values())) == 13
    expected += log.append(20)
    sink.dies = True
    with pytest.raises(StreamingQueryException, match="the sink died"):
        start(frame, sink)
    assert sink.rows == expected[:53]
    sink.dies = False
    log.delete_first_file()
    expected += log.append(20)
    start(frame, sink)
    assert sink.rows == expected
    commits = tmp_path / "checkpoint" / "commits"
    (commits / str(max(sink.batches))).unlink()  # as if killed when the sink was done, and Spark had not written it
    expected += log.append(5)
    start(frame, sink)
    assert sink.rows == expected
    assert sink.repeats == 2


@pytest.mark.parametrize("available_now", [True, False], ids=["availableNow", "processingTime"])
def test_without_limits_it_is_exactly_once_by_each_trigger_after_the_other(
    spark: SparkSession, start: Callable[..., StreamingQuery], log: HandLog, tmp_path: Path, available_now: bool
) -> None:
    from pyspark.errors import StreamingQueryException

    sink, expected = Sink(), log.append(40)

    def run(*, now: bool) -> None:
        query = start(reput.spark.read_log_stream(spark, log.path, ["body"]), sink, available_now=now)
        if not now:
            query.processAllAvailable()
            query.stop()

    run(now=available_now)
    for number in range(4):
        assert sink.rows == expected
        expected += log.append(20)
        sink.dies = number % 2 == 0
        if sink.dies:
            with pytest.raises(StreamingQueryException, match="the sink died"):
                run(now=available_now)
            sink.dies = False
            expected += log.append(5)
        else:
            log.delete_first_file()
            commit = tmp_path / "checkpoint" / "commits" / str(max(sink.batches))
            commit.unlink()  # as if killed before it was written
        run(now=not available_now)
        available_now = not available_now
    assert sink.rows == expected
    assert sink.repeats == 4


@needs(LIMITS)
def test_a_query_that_is_stopped_in_the_middle_goes_on_from_its_checkpoint(
    spark: SparkSession, start: Callable[..., StreamingQuery], log: HandLog
) -> None:
    expected = log.append(60)
    frame = reput.spark.read_log_stream(spark, log.path, ["body"], max_rows_per_trigger=1)
    sink, reached = Sink(), threading.Event()

    def slow(batch_frame: DataFrame, batch: int) -> None:
        sink(batch_frame, batch)
        if batch == 3:
            reached.set()

    query = start(frame, slow, available_now=False)
    while not reached.wait(1):
        if error := query.exception():
            raise error
    query.stop()
    assert 4 <= len(sink.rows) < 60
    start(reput.spark.read_log_stream(spark, log.path, ["body"], split_bytes=900), sink)
    assert sink.rows == expected


def test_the_options_of_spark_serve_as_well(
    spark: SparkSession, start: Callable[..., StreamingQuery], tmp_path: Path
) -> None:
    logs = [HandLog(tmp_path / name / "store") for name in "ab"]
    bodies = [log.append(5) for log in logs]
    offsets = {str(logs[0].path): sorted(logs[0].bodies)[3], str(logs[1].path): "latest"}
    sink = Sink()
    frame = (
        spark.readStream.format("reput")
        .schema("store string, body binary")
        .option("startingOffsets", json.dumps(offsets))
        .load(str(tmp_path / "*" / "store"))
    )
    start(frame.where("store = 'a/store'"), sink)
    assert sink.rows == bodies[0][3:]
    new = logs[0].append(1)
    logs[1].append(1)
    start(frame.where("store = 'a/store'"), sink)
    assert sink.rows == bodies[0][3:] + new


def test_a_log_that_was_cut_and_grew_again_fails_the_query_with_file_and_offset(
    spark: SparkSession, start: Callable[..., StreamingQuery], log: HandLog
) -> None:
    log.append(30)
    frame = reput.spark.read_log_stream(spark, log.path, ["body"])
    start(frame, Sink())
    read = max(log.bodies)
    log.cut(3)
    log.append(5)
    with pytest.raises(
        Exception, match=f"DataLossError: {log.path_of(read)}: the record at offset {read} is not the one"
    ):
        start(frame, Sink())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffset": "latest"}, "no option 'startingoffset'; did you mean 'startingOffsets'"),
        ({"startingOffsets": "7"}, "no record starts at offset 7; the next is at"),
        ({"path": "/no/store"}, "/no/store: no such directory"),
    ],
)
def test_what_is_wrong_is_told_when_the_query_starts(
    spark: SparkSession,
    start: Callable[..., StreamingQuery],
    log: HandLog,
    options: dict[str, str],
    message: str,
) -> None:
    log.append(3)
    stream = spark.readStream.format("reput").schema("body binary").options(**{"path": str(log.path), **options})
    with pytest.raises(Exception, match=message) as told:
        start(stream.load(), Sink())
    assert "UnboundLocalError" not in str(told.value), "Spark's own, for a reader that cannot be made"
