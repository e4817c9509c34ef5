"""The sink: a DataFrame or a stream into a store, whole and once; what is wrong is told before any task runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

import reput
from reput.files import DISK
from reput.files.owner import owner_text
from reput.formats.sink_commit import STAGING
from reput.log.sink_commits import read_sinks
from reput.spark.log_stream import read_log_stream
from reput.spark.source import read_log, register
from tests.support.invariants import SMALL, check_store, log_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BORN_US = 1_700_000_000_123_000
#: The geometry of `SMALL`, as options of the sink.
SIZES = {
    "mappedFileSizeCommitLog": 65_536,
    "mappedFileSizeConsumeQueue": 20 * 100,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}
OPTIONS: dict[str, Any] = SMALL | {
    "mapped_file_size_commit_log": 65_536,
    "mapped_file_size_consume_queue": 20 * 100,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}


@pytest.fixture(autouse=True)
def known(spark: SparkSession) -> None:
    register(spark)


def test_a_thread_writes_once_it_has_registered_the_format(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([("orders", b"x")], "topic string, body binary")

    def write() -> None:
        register(spark)
        frame.write.format("reput").mode("append").save(str(tmp_path / "store"))

    with ThreadPoolExecutor(1) as pool:
        pool.submit(write).result()
    with reput.MessageStore.open(tmp_path / "store", read_only=True) as store:
        assert store.max_offset("orders", 0) == 1


def messages(spark: SparkSession, begin: int = 0, end: int = 600) -> DataFrame:
    """Every column that a message has, in two partitions; some are null now and then."""
    n = F.col("id")
    return spark.range(begin, end, 1, 2).select(
        F.element_at(F.array(F.lit("orders"), F.lit("refunds")), (n % 2 + 1).cast("int")).alias("topic"),
        (n % 3).cast("int").alias("queue_id"),
        F.when(n % 4 > 0, F.lit("paid")).alias("tags"),
        F.concat(F.lit("u-"), n.cast("string")).alias("unique_key"),
        F.when(n % 5 > 0, F.array(F.concat(F.lit("k-"), n.cast("string")), F.lit("all"))).alias("keys"),
        F.when(n % 7 > 0, F.create_map(F.lit("region"), n.cast("string"))).alias("properties"),
        F.repeat(n.cast("string"), (n % 20).cast("int")).cast("binary").alias("body"),
        (n % 3).cast("int").alias("flag"),
        F.timestamp_micros(F.lit(BORN_US) + n * 1000).alias("born_timestamp"),
    )


def save(frame: DataFrame, path: Path, **options: Any) -> None:
    frame.write.format("reput").mode("append").options(**SIZES).options(**options).save(str(path))


def numbers_in(path: Path) -> list[int]:
    """The numbers of the messages in a store, in log order; the store is whole."""
    return [int(record.row["unique_key"][2:]) for record in check_store(path, OPTIONS)]


def refused(action: Callable[[], object], *words: str) -> None:
    with pytest.raises(PySparkException) as error:
        action()
    for word in words:
        assert word in str(error.value), word


def test_what_the_source_reads_is_what_the_sink_was_given(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "store"
    save(messages(spark), path)
    given = messages(spark).orderBy("unique_key")
    read = read_log(spark, path, given.columns).orderBy("unique_key")
    absent = given.withColumn("keys", F.coalesce("keys", F.array().cast("array<string>"))).withColumn(
        "properties", F.coalesce("properties", F.create_map().cast("map<string,string>"))
    )
    found = read.withColumn("keys", F.coalesce("keys", F.array().cast("array<string>")))
    own = F.map_filter("properties", lambda name, _: name == "region")
    assert found.withColumn("properties", own).collect() == absent.collect()
    assert numbers_in(path) == list(range(600))  # in the order of the partitions
    assert len({record.row["store_timestamp"] for record in log_records(path)}) == 1
    assert not list((path / STAGING).iterdir())
    messages(spark, 600, 700).write.format("reput").mode("append").options(**SIZES).save(f"file://{path}")
    assert numbers_in(path) == list(range(700))
    assert spark.read.format("reput").load(f"file:{path}").count() == read_log(spark, f"file:{path}").count() == 700
    with reput.MessageStore.open(path, **OPTIONS) as store:
        assert not store.recovery.was_killed
        assert [m.unique_key for m in store.query_message("orders", "k-42")] == ["u-42"]


def test_a_repeated_batch_id_writes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "store"
    for batch, frame in ((3, messages(spark, 0, 50)), (3, messages(spark, 0, 50)), (4, messages(spark, 50, 60))):
        save(frame, path, sinkId="daily", batchId=batch)
    assert numbers_in(path) == list(range(60))
    refused(lambda: save(messages(spark, 0, 9), path, sinkId="daily", batchId=1), "'daily'", "batch 4", "batch 1")
    assert numbers_in(path) == list(range(60))


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        (lambda df: df.withColumnRenamed("unique_key", "uniq_key"), {}, ["'uniq_key'", "did you mean 'unique_key'"]),
        (lambda df: df.drop("body"), {}, ["no column 'body'"]),
        (lambda df: df.withColumn("queue_id", F.lit(1.5)), {}, ["'queue_id' is double", "must be int32"]),
        (lambda df: df, {"sinkld": "x"}, ["no option 'sinkld'", "did you mean 'sinkId'"]),
        (
            lambda df: df,
            {"onBadRow": "aside", "badRowsPath": "s3a://bucket/bad"},
            ["option badRowsPath", "file system s3a", "mount it on every node"],
        ),
        (lambda df: df, {"sinkId": "x"}, ["sinkId and batchId"]),
        (lambda df: df, {"onBadRow": "skip"}, ["onBadRow", "neither fail nor aside"]),
        (lambda df: df, {"onBadRow": "aside"}, ["badRowsPath"]),
        (lambda df: df, {"flushDiskType": "LATER"}, ["flushDiskType=LATER", "SYNC_FLUSH or ASYNC_FLUSH"]),
    ],
)
def test_a_wrong_column_or_option_is_named_and_nothing_is_made(
    spark: SparkSession,
    tmp_path: Path,
    change: Callable[[DataFrame], DataFrame],
    options: dict[str, Any],
    words: list[str],
) -> None:
    refused(lambda: save(change(messages(spark)), tmp_path / "store", **options), *words)
    assert not (tmp_path / "store").exists()


def test_a_log_is_not_overwritten(spark: SparkSession, tmp_path: Path) -> None:
    frame = messages(spark, 0, 3)
    refused(lambda: frame.write.format("reput").mode("overwrite").save(str(tmp_path / "store")), "only appended to")


def test_a_store_that_somebody_has_open_is_refused_before_any_task_runs(spark: SparkSession, tmp_path: Path) -> None:
    path, traces = tmp_path / "store", tmp_path / "traces"
    traces.mkdir()
    folder = str(traces)

    @F.udf("string")
    def leave_trace(topic: str) -> str:
        Path(folder, "a task ran").touch()
        return topic

    frame = messages(spark, 0, 10).withColumn("topic", leave_trace("topic"))
    with reput.MessageStore.open(path, **OPTIONS):
        refused(lambda: save(frame, path, lockTimeoutMs=100), "has the store open", "waited 100 ms")
        assert not list(traces.iterdir())
    save(frame, path, lockTimeoutMs=100)
    assert list(traces.iterdir())
    assert numbers_in(path) == list(range(10))


def test_a_store_keeps_the_size_of_its_files_and_another_one_that_is_given_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    save(messages(spark, 0, 5), tmp_path / "store")
    frame = messages(spark, 5, 9).write.format("reput").mode("append")
    frame.save(str(tmp_path / "store"))
    assert numbers_in(tmp_path / "store") == list(range(9))
    wrong = frame.option("mappedFileSizeCommitLog", 131072)
    refused(lambda: wrong.save(str(tmp_path / "store")), "mappedFileSizeCommitLog")


def with_bad_rows(spark: SparkSession) -> DataFrame:
    n = F.substring("unique_key", 3, 9).cast("int")
    return (
        messages(spark)
        .withColumn("topic", F.when(n == 7, F.repeat(F.lit("t"), 300)).otherwise(F.col("topic")))
        .withColumn("queue_id", F.when(n == 100, -1).otherwise(F.col("queue_id")))
        .withColumn("tags", F.when(n == 450, F.lit("a\x01b")).otherwise(F.col("tags")))
        .withColumn("body", F.when(n == 451, None).otherwise(F.col("body")))
    )


def test_a_bad_row_fails_the_job_with_its_reason_and_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "store"
    save(messages(spark, 0, 5), path)
    frame = with_bad_rows(spark).coalesce(1)
    refused(lambda: save(frame, path), "partition 0, row 7: topic 'tttt", "onBadRow=aside")
    assert numbers_in(path) == list(range(5))
    assert not list((path / STAGING).iterdir())


def test_bad_rows_go_aside_with_their_columns_and_reasons(spark: SparkSession, tmp_path: Path) -> None:
    path, aside = tmp_path / "store", tmp_path / "aside"
    save(with_bad_rows(spark), path, onBadRow="aside", badRowsPath=str(aside))
    assert numbers_in(path) == [n for n in range(600) if n not in (7, 100, 450, 451)]
    rows = spark.read.parquet(str(aside)).orderBy("unique_key").collect()
    assert [row.unique_key for row in rows] == ["u-100", "u-450", "u-451", "u-7"]
    for row, reason in zip(rows, ["queue_id -1", "tags: a separator", "body is null", "topic 'tttt"], strict=True):
        assert reason in row.reason


def test_a_job_that_fails_leaves_nothing_half_visible(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "store"

    @F.udf("binary")
    def fail_late(key: str) -> bytes:
        if key == "u-599":
            raise ValueError("the last row fails")
        return b"body"

    refused(lambda: save(messages(spark).withColumn("body", fail_late("unique_key")), path), "the last row fails")
    assert numbers_in(path) == []
    assert not list((path / STAGING).iterdir())


def test_staging_of_dead_jobs_is_swept_and_that_of_others_stays(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "store"
    save(messages(spark, 0, 5), path)
    owners = {"dead": owner_text().rsplit(" ", 1)[0] + " 1", "alive": owner_text(), "elsewhere": "a b 1 2"}
    for name, owner in owners.items():
        (path / STAGING / name).mkdir()
        (path / STAGING / name / "owner").write_text(owner)
        (path / STAGING / name / "0-1").write_bytes(b"staged")
    save(messages(spark, 5, 9), path)
    assert sorted(p.name for p in (path / STAGING).iterdir()) == ["alive", "elsewhere"]


def files_of(spark: SparkSession, folder: Path, begin: int, end: int) -> None:
    """One more Parquet file in the folder that the stream reads."""
    table = messages(spark, begin, end).coalesce(1).toArrow()
    folder.mkdir(exist_ok=True)
    pq.write_table(
        table.cast(pa.schema([field.with_nullable(True) for field in table.schema])), folder / f"{begin}.parquet"
    )


def run_stream(spark: SparkSession, source: Path, path: Path, checkpoint: Path, **options: Any) -> None:
    """Everything that is there, a file a batch."""
    schema = messages(spark).schema
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(source))
    writer = stream.writeStream.format("reput").trigger(availableNow=True).options(**SIZES).options(**options)
    query = writer.option("checkpointLocation", str(checkpoint)).start(str(path))
    query.awaitTermination()


def test_a_stream_comes_once_over_restarts_and_replays(spark: SparkSession, tmp_path: Path) -> None:
    source, path, checkpoint = tmp_path / "files", tmp_path / "store", tmp_path / "checkpoint"
    for begin in (0, 100):
        files_of(spark, source, begin, begin + 100)
    run_stream(spark, source, path, checkpoint, sinkId="copy")
    assert numbers_in(path) == list(range(200))
    for begin in (200, 300):
        files_of(spark, source, begin, begin + 100)
    run_stream(spark, source, path, checkpoint, sinkId="copy")
    # Killed between our commit and Spark's own: the last batch is planned again.
    shutil.rmtree(checkpoint / "commits" / ".3.crc", ignore_errors=True)
    for name in ("3", ".3.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    run_stream(spark, source, path, checkpoint, sinkId="copy")
    assert numbers_in(path) == list(range(400))
    commit = read_sinks(DISK, str(path)).commits["copy"]
    assert commit.batch is not None
    assert (commit.batch.batch_id, commit.rows) == (3, 100)
    # Another sink, and then another checkpoint under the first one's name.
    run_stream(spark, source, path, tmp_path / "second", sinkId="again")
    assert numbers_in(path) == [*range(400), *range(400)]
    refused(
        lambda: run_stream(spark, source, path, tmp_path / "third", sinkId="copy"), "'copy'", "batch 3", "checkpoint"
    )
    assert len(numbers_in(path)) == 800
    assert [p.name for p in (path / STAGING).glob("*/*") if p.name != "owner"] == []


def test_a_batch_of_a_stream_that_fails_leaves_nothing_staged(spark: SparkSession, tmp_path: Path) -> None:
    source, path = tmp_path / "files", tmp_path / "store"
    files_of(spark, source, 0, 100)
    table = pq.read_table(source / "0.parquet")
    topics = ["t" * 300, *table["topic"].to_pylist()[1:]]
    pq.write_table(table.set_column(0, table.schema.field("topic"), pa.array(topics)), source / "0.parquet")
    for _ in range(2):
        refused(lambda: run_stream(spark, source, path, tmp_path / "checkpoint", sinkId="copy"), "topic 'tttt")
        assert [file.name for file in (path / STAGING).rglob("*") if file.is_file()] == [
            "owner"
        ]  # the sink's folder stays


def test_a_stream_into_the_store_that_it_reads_is_refused_before_anything_is_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, link = tmp_path / "store", tmp_path / "link"
    save(messages(spark, 0, 5), path)
    link.symlink_to(path)
    stream = read_log_stream(spark, link, ["topic", "body"]).writeStream.format("reput").options(**SIZES, sinkId="self")
    writer = stream.option("checkpointLocation", f"file:{tmp_path}/checkpoint").trigger(availableNow=True)
    refused(lambda: writer.start(str(path)).awaitTermination(), f"{path}: the stream reads this store")
    assert numbers_in(path) == list(range(5))
    assert sorted(p.name for p in (path / STAGING).iterdir()) == []
    writer.start(str(tmp_path / "other")).awaitTermination()
    assert read_log(spark, tmp_path / "other").count() == 5


def test_a_stream_without_a_sink_id_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    files_of(spark, tmp_path / "files", 0, 10)
    refused(lambda: run_stream(spark, tmp_path / "files", tmp_path / "store", tmp_path / "checkpoint"), "option sinkId")
    assert not (tmp_path / "store").exists()
