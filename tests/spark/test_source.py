"""The format `reput`: the rows of `reput.read_log`, however the log is cut, and errors that reach the user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, StringType, StructType

import pyspark_reput
import reput
import reput.spark
from reput.errors import ConfigError, ReputError
from reput.formats.message import Message
from reput.formats.paths import offset_to_file_name
from reput.kernels.records.record_batch import SCHEMA
from reput.spark.compat import PUSH_DOWN, arrow_schema
from reput.spark.options import READ_OPTIONS, ReadOptions, absolute_path, option_texts, parse_options
from reput.spark.schema import column_names, spark_schema
from reput.spark.source import ReputDataSource
from tests.support.broker import SMALL, send_numbers
from tests.support.damaged_copy import damaged_copy
from tests.support.forged_log import forged_log
from tests.support.spark_minors import needs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORPORA = Path(__file__).parents[1] / "golden" / "5.3.3"
CASES = sorted(path.name for path in CORPORA.iterdir())
CLEAN = CORPORA / "clean" / "store"
BORN_MS = 1_700_000_000_123
PROPERTIES = SCHEMA.field("properties").type


@pytest.fixture(scope="module")
def small_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2000 messages in files of 64 KiB: tags, keys, properties, and times of their own."""
    path = tmp_path_factory.mktemp("source") / "shop"
    numbers = range(2000)
    table = pa.table(
        {
            "topic": [("orders", "refunds", "orders")[n % 3] for n in numbers],
            "queue_id": pa.array([n % 4 for n in numbers], pa.int32()),
            "tags": [(None, "paid")[n % 2] for n in numbers],
            "keys": pa.array([[f"o-{n}", f"c-{n % 7}"][: n % 3] for n in numbers], pa.list_(pa.string())),
            "properties": pa.array([[("region", f"r{n % 5}")][: n % 2] for n in numbers], PROPERTIES),
            "born_timestamp": pa.array([BORN_MS * 1000 + 1000 * n for n in numbers], pa.timestamp("us", "UTC")),
            "body": [b"%d" % n * (n % 40) for n in numbers],
        }
    )  # fmt: skip
    with reput.MessageStore.open(
        path, mapped_file_size_commit_log=1 << 16, mapped_file_size_consume_queue=2000
    ) as store:
        store.put_arrow(table)
    return path


def rows_of(frame: DataFrame) -> pa.Table:
    return frame.toArrow().select(frame.columns).cast(pa.schema([SCHEMA.field(name) for name in frame.columns]))


class TestSchema:
    def test_it_is_the_arrow_schema_in_spark_types(self) -> None:
        assert spark_schema() == from_arrow_schema(SCHEMA)

    def test_it_converts_back_to_the_very_types_that_a_task_yields(self) -> None:
        assert arrow_schema(spark_schema()).equals(SCHEMA)

    def test_columns_are_taken_in_any_order(self) -> None:
        assert column_names(spark_schema(["body", "topic"])) == ("body", "topic")

    @pytest.mark.parametrize(
        ("read", "message"),
        [
            (lambda: spark_schema(["topics"]), "no column 'topics'; did you mean 'topic'"),
            (lambda: spark_schema("topic"), r"give a list of texts, not one text: \['topic'\]"),
            (lambda: spark_schema([]), "name at least one"),
            (lambda: column_names(StructType().add("queueid", "integer")), "did you mean 'queue_id'"),
            (lambda: column_names(StructType().add("queue_id", "long")), "queue_id is of type int, not bigint"),
        ],
    )  # fmt: skip
    def test_other_columns_are_refused(self, read: Callable[[], object], message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            read()


class TestOptions:
    def test_names_are_read_in_any_case_and_values_by_their_kind(self) -> None:
        assert parse_options(
            {
                "path": "/s",
                "COMMITLOGPATH": "/log",
                "topics": "a, b",
                "keys": '["x,y"]',
                "begin": "1700000000000",
                "end": "2026-01-31T12:00:00Z",
                "rawbody": "TRUE",
                "splitBytes": "1000",
                "store": "s",
                "until": "flushed",
            },
            READ_OPTIONS,
            ReadOptions,
        ) == ReadOptions(
            path="/s",
            commit_log_path="/log",
            topics=("a", "b"),
            keys=("x,y",),
            begin=1_700_000_000_000,
            end=datetime(2026, 1, 31, 12, tzinfo=UTC),
            raw_body=True,
            split_bytes=1000,
            store="s",
            until="flushed",
        )

    @pytest.mark.parametrize(
        ("given", "path"),
        [
            ("file:/a/b", "/a/b"),
            ("file:///a/*", "/a/*"),
            ("FILE://localhost/a%20b", "/a%20b"),
            ("/a:/b", "/a:/b"),
            ("a:b/c", "a:b/c"),
        ],
    )
    def test_a_path_may_be_a_uri(self, given: str, path: str) -> None:
        options = {"path": given, "commitLogPath": f"{given},/c", "statistics": given}
        parsed = parse_options(options, READ_OPTIONS, ReadOptions)
        assert (parsed.path, parsed.commit_log_path, parsed.statistics) == (path, f"{path},/c", path)
        assert absolute_path(given) == os.path.abspath(path)

    def test_texts_of_values_read_as_the_values(self) -> None:
        end = datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=UTC)
        given = {"path": "/s", "topics": ["[a,", "b"], "keys": None, "begin": 5, "end": end, "rawBody": True}
        assert parse_options(option_texts(given), READ_OPTIONS, ReadOptions) == ReadOptions(
            path="/s", topics=("[a,", "b"), begin=5, end=end, raw_body=True
        )

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"paths": '["hdfs://host/a"]'}, "option paths: .* is on the file system hdfs, .*: mount it on every node"),
            ({"path": "file://host/a"}, "is on a host 'host'; write file:///path"),
            ({"topic": "a"}, "no option 'topic'; did you mean 'topics'"),
            ({"commitlog": "a"}, "no option 'commitlog'; did you mean 'commitLogPath'"),
            ({"splitBytes": "0"}, "option splitBytes: '0' is no number of bytes above 0"),
            ({"splitBytes": "64m"}, "option splitBytes: '64m' is no number"),
            ({"rawBody": "yes"}, "option rawBody: 'yes' is neither true nor false"),
            ({"begin": "yesterday"}, "option begin: 'yesterday' is neither milliseconds"),
            ({"end": "2026-01-31T12:00:00"}, "option end: .* without its zone"),
            ({"until": "now"}, "option until: 'now' is neither proven nor flushed"),
            ({"topics": "[a"}, "option topics: .* is no JSON list"),
            ({"topics": "[1]"}, "option topics: .* is no list of texts"),
            ({}, "needs the directory of a store"),
        ],
    )
    def test_what_is_wrong_is_named(self, options: dict[str, str], message: str) -> None:
        path = {"path": "/s"} if options else {}
        with pytest.raises(ConfigError, match=message):
            parse_options({**path, **options}, READ_OPTIONS, ReadOptions)


class TestSource:
    @pytest.mark.parametrize("case", CASES)
    def test_rows_equal_those_of_read_log_on_what_apache_wrote(self, spark: SparkSession, case: str) -> None:
        store = CORPORA / case / "store"
        frame = spark.read.format("reput").option("splitBytes", "20000").load(str(store))
        assert frame.schema == spark_schema()
        assert rows_of(frame) == reput.read_log(store).read_all()

    def test_rows_equal_those_of_read_log_on_a_store_of_ours(self, spark: SparkSession, small_store: Path) -> None:
        assert rows_of(reput.spark.read_log(spark, small_store)) == reput.read_log(small_store).read_all()

    def test_a_store_that_a_broker_serves_is_read_beside_it(self, spark: SparkSession, tmp_path: Path) -> None:
        with reput.Broker.start(tmp_path / "store", **SMALL, bind_address="127.0.0.1") as broker:
            send_numbers(broker.address, 0, 40)
            frame = spark.read.format("reput").load(str(tmp_path / "store"))
            assert {int(body) for body in frame.toArrow()["body"].to_pylist()} == set(range(40))

    @pytest.mark.parametrize(
        "arguments",
        [
            {"columns": ["queue_offset"]},
            {"columns": ["status", "body", "topic", "born_timestamp"]},
            {"topics": ["refunds", "nothing"], "columns": ["properties", "keys"]},
            {"keys": ["c-1", "o-8"]},
            {"begin": BORN_MS, "end": datetime(2100, 1, 1, tzinfo=UTC), "store": "another"},
            {"end": BORN_MS},
            {"until": "flushed", "raw_body": True},
        ],
        ids=str,
    )
    def test_it_takes_the_arguments_of_read_log(
        self, spark: SparkSession, small_store: Path, arguments: dict[str, Any]
    ) -> None:
        frame = reput.spark.read_log(spark, small_store, split_bytes=30_000, **arguments)
        assert rows_of(frame) == reput.read_log(small_store, **arguments).read_all()

    def test_stored_bodies_and_a_commit_log_elsewhere(self, spark: SparkSession, tmp_path: Path) -> None:
        shutil.copytree(CORPORA / "bcq" / "store" / "commitlog", tmp_path / "elsewhere")
        arguments = {"raw_body": True, "commit_log_path": tmp_path / "elsewhere"}
        frame = reput.spark.read_log(spark, tmp_path, **arguments)
        log = reput.read_log(tmp_path, **arguments).read_all()
        assert log.num_rows < reput.read_log(CORPORA / "bcq" / "store").read_all().num_rows
        assert rows_of(frame) == log

    def test_bodies_full_of_true_looking_records_give_no_rows(self, spark: SparkSession, tmp_path: Path) -> None:
        count = forged_log(tmp_path)
        frame = reput.spark.read_log(spark, tmp_path, ["queue_offset"], split_bytes=3000)
        assert [row.queue_offset for row in frame.collect()] == list(range(count))

    def test_sql_counts_by_topic(self, spark: SparkSession, small_store: Path) -> None:
        reput.spark.read_log(spark, small_store, ["topic", "queue_id"]).createOrReplaceTempView("messages")
        rows = spark.sql("SELECT topic, count(*) AS n FROM messages WHERE queue_id < 2 GROUP BY topic ORDER BY topic")
        assert [tuple(row) for row in rows.collect()] == [("orders", 666), ("refunds", 334)]

    def test_times_maps_and_arrays_are_sparks_own(self, spark: SparkSession, small_store: Path) -> None:
        frame = spark.read.format("reput").load(str(small_store))
        first = frame.where("array_contains(keys, 'o-5')").select(
            F.unix_millis("born_timestamp").alias("ms"),
            F.date_format(F.to_utc_timestamp("born_timestamp", F.current_timezone()), "yyyy-MM-dd HH:mm").alias("utc"),
            F.col("properties")["region"].alias("region"),
            F.col("keys")[1].alias("second"),
            F.length("body").alias("size"),
        )
        assert [row.asDict() for row in first.collect()] == [
            {"ms": BORN_MS + 5, "utc": "2023-11-14 22:13", "region": "r0", "second": "c-5", "size": 5}
        ]

    def test_a_data_frame_shows_the_log_as_it_was_when_it_was_planned(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        with reput.MessageStore.open(tmp_path / "live") as store:
            store.put_messages([Message("orders", b"%d" % n) for n in range(100)])
            before = reput.spark.read_log(spark, tmp_path / "live", ["queue_offset"])
            assert before.count() == 100
            store.put_messages([Message("orders", b"%d" % n) for n in range(50)])
            assert before.count() == 100
            assert reput.spark.read_log(spark, tmp_path / "live", ["queue_offset"]).count() == 150

    @pytest.mark.parametrize("split_bytes", [None, 20_000])
    def test_damage_reaches_the_user_with_file_and_offset(
        self, spark: SparkSession, tmp_path: Path, split_bytes: int | None
    ) -> None:
        path, file, offset = damaged_copy(tmp_path / "store", 0)
        frame = reput.spark.read_log(spark, path, ["topic"], split_bytes=split_bytes, mode="FAILFAST")
        with pytest.raises(Exception, match="CorruptRecordError") as caught:
            frame.count()
        assert f"{file}: damaged at offset {offset}: body CRC" in str(caught.value)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"path": "/no/store"}, "StoreFormatError: /no/store: no such directory"),
            ({"path": str(CLEAN), "topic": "a"}, "did you mean 'topics'"),
        ],
    )
    def test_wrong_options_fail_when_the_query_is_planned(
        self, spark: SparkSession, options: dict[str, str], message: str
    ) -> None:
        with pytest.raises(Exception, match=message):
            spark.read.format("reput").options(**options).load().count()

    @pytest.mark.parametrize(
        "schema",
        ["topic STRING NOT NULL", StructType().add("keys", ArrayType(StringType(), containsNull=False))],
        ids=["a column", "the texts in a list"],
    )
    def test_a_schema_that_promises_no_nulls_is_refused(self, spark: SparkSession, schema: str | StructType) -> None:
        with pytest.raises(Exception, match="declared as never null") as caught:
            spark.read.format("reput").schema(schema).load(str(CLEAN)).count()
        assert "DATA_SOURCE_RETURN_SCHEMA_MISMATCH" not in str(caught.value)

    def test_a_wrong_column_in_the_schema_is_refused(self, spark: SparkSession) -> None:
        with pytest.raises(Exception, match="no column 'topc'; did you mean 'topic'"):
            spark.read.format("reput").schema("topc string").load(str(CLEAN)).count()


class TestStores:
    def test_several_stores_are_one_table_and_the_column_store_tells_them_apart(
        self, spark: SparkSession, small_store: Path
    ) -> None:
        torn = CORPORA / "torn" / "store"
        expected = {"clean/store": 1000, "torn/store": 399, "shop": 2000}
        for paths in ([CLEAN, torn, small_store], [CORPORA / "clean" / "st*", CORPORA / "t*n" / "store", small_store]):
            frame = reput.spark.read_log(spark, paths, ["store"])
            assert {row["store"]: row["count"] for row in frame.groupBy("store").count().collect()} == expected
        frame = spark.read.format("reput").schema("topic string").load([str(CLEAN), str(torn)])
        assert frame.count() == 1399

    @pytest.mark.parametrize(
        "options", [{"store": "shop"}, {"commit_log_path": CLEAN / "commitlog"}], ids=["store", "commitLogPath"]
    )
    def test_what_is_said_of_one_store_is_refused_for_two(self, spark: SparkSession, options: dict[str, Any]) -> None:
        with pytest.raises(Exception, match=r"ConfigError: .*2"):
            reput.spark.read_log(spark, [CLEAN, CORPORA / "torn" / "store"], **options).count()


class TestModes:
    @pytest.mark.parametrize("split_bytes", [None, 20_000])
    def test_damage_is_a_row_or_none_or_an_error(
        self, spark: SparkSession, tmp_path: Path, split_bytes: int | None
    ) -> None:
        path, _, offset = damaged_copy(tmp_path / "store", 0)
        columns = ["commit_log_offset", "status"]
        for mode, count in (("PERMISSIVE", 1000), ("dropmalformed", 999)):
            frame = spark.read.format("reput").schema(spark_schema(columns)).option("mode", mode)
            frame = frame if split_bytes is None else frame.option("splitBytes", split_bytes)
            rows = rows_of(frame.load(str(path)))
            assert rows == reput.read_log(path, columns, mode=mode.upper()).read_all()
            assert rows.num_rows == count
        (row,) = reput.spark.read_log(spark, path).where("status like 'DAMAGED%'").collect()
        assert (row.commit_log_offset, row.topic, row.body) == (offset, None, None)


class TestPruning:
    def test_a_rare_topic_is_read_by_its_queue_and_other_queries_read_all(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        with reput.MessageStore.open(tmp_path / "store") as store:
            store.put_messages([Message("rare" if n % 300 == 7 else "orders", bytes(1000)) for n in range(900)])
        columns = ["topic", "queue_offset"]
        rare = reput.spark.read_log(spark, tmp_path / "store", columns, topics=["rare"])
        assert [row.queue_offset for row in rare.orderBy("queue_offset").collect()] == [0, 1, 2]
        told = reput.spark.explain(rare)
        assert told.startswith(f"{tmp_path}/store: reads ")
        assert "consume queues: 3 records" in told
        whole = reput.spark.read_log(spark, tmp_path / "store", columns, topics=["rare"], prune=False)
        assert whole.count() == 3
        assert "nothing to leave out" in reput.spark.explain(whole)

        frame = reput.spark.read_log(spark, tmp_path / "store", columns)
        assert frame.where("topic = 'rare'").count() == 3
        assert frame.count() == 900
        assert frame.where("topic = 'rare'").union(frame.where("topic = 'orders'")).count() == 900

    @needs(PUSH_DOWN)
    @pytest.mark.parametrize(
        "condition",
        [
            "commit_log_offset >= 100000",
            "commit_log_offset < 100000 and queue_id in (1, 3)",
            "topic in ('refunds', null) and queue_offset between 3 and 9",
            "store_timestamp < '2020-01-01'",
            "topic = 'refunds' or queue_id = 1",
            "not (topic = 'refunds') and born_timestamp > '2023-11-14T22:13:21Z'",
            "topic <=> null",
        ],
    )
    def test_filters_of_the_only_query_prune_and_lose_nothing(
        self, spark: SparkSession, small_store: Path, condition: str
    ) -> None:
        all_rows = reput.spark.read_log(spark, small_store, prune=False).where(condition)
        pruned = reput.spark.read_log(spark, small_store, split_bytes=20_000, push_filters=True).where(condition)
        assert rows_of(pruned) == rows_of(all_rows)

    @needs(PUSH_DOWN)
    def test_times_and_born_times_prune_by_statistics(self, spark: SparkSession, tmp_path: Path) -> None:
        with reput.MessageStore.open(tmp_path / "store") as store:
            for hour in range(4):
                message = Message("t", bytes(2000), born_timestamp=BORN_MS + 3_600_000 * hour)
                store.put_messages([message] * 700)
        path, statistics = tmp_path / "store", tmp_path / "kept"
        for _ in range(2):
            columns = ["queue_offset", "born_timestamp"]
            frame = reput.spark.read_log(spark, path, columns, statistics=statistics, push_filters=True)
            late = frame.where(F.unix_millis("born_timestamp") > 0).where("born_timestamp > '2023-11-15T00:20:00Z'")
            assert late.count() == 700
            assert "left out by the times and offsets of their zones" in reput.spark.explain(late)
        assert list(statistics.iterdir())
        with pytest.raises(Exception, match="lies inside the store"):
            reput.spark.read_log(spark, path, statistics=path / "kept").count()

    def test_only_a_data_frame_that_reads_a_store_is_explained(self, spark: SparkSession) -> None:
        with pytest.raises(ReputError, match="reads no store"):
            reput.spark.explain(spark.range(3))


class TestErrors:
    """One short text each, ours first: not a hundred lines of Java."""

    @pytest.mark.parametrize(
        ("read", "message"),
        [
            (lambda spark, path: reput.spark.read_log(spark, path / "nothing"), "nothing: no such directory"),
            (lambda spark, path: reput.spark.read_log(spark, path / "*"), "no directory fits"),
            (lambda spark, path: reput.spark.read_log(spark, path), "no store"),
            (lambda spark, path: spark.read.format("reput").option("tpics", "a").load(str(CLEAN)), "'topics'"),
            (lambda spark, path: spark.read.format("reput").option("mode", "a").load(str(CLEAN)), "option mode: 'a'"),
            (lambda spark, path: spark.read.format("reput").schema("tpic string").load(str(CLEAN)), "'topic'"),
            (lambda spark, path: other_sizes(spark, path), "bytes long, but the files beside it"),
        ],
    )
    def test_what_is_wrong_is_told_in_few_lines(
        self, spark: SparkSession, tmp_path: Path, read: Callable[[SparkSession, Path], DataFrame], message: str
    ) -> None:
        with pytest.raises(Exception, match=r"reput\.errors\.") as caught:
            read(spark, tmp_path).count()
        assert message in str(caught.value)
        assert len(str(caught.value).splitlines()) < 10

    def test_a_file_that_retention_takes_before_its_task_reads_it_is_named(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        path = Path(shutil.copytree(CLEAN, tmp_path / "store"))
        frame = reput.spark.read_log(spark, path)
        reput.spark.explain(frame)  # plans
        taken = path / "commitlog" / offset_to_file_name(0)
        taken.unlink()
        with pytest.raises(Exception, match="retention has deleted it") as caught:
            frame.count()
        assert str(taken) in str(caught.value)
        assert "option begin" in str(caught.value)
        assert len(str(caught.value).splitlines()) < 10


def other_sizes(spark: SparkSession, path: Path) -> DataFrame:
    """A store with a log file of another size."""
    shutil.copytree(CLEAN, path / "store")
    with (path / "store" / "commitlog" / offset_to_file_name(131_072)).open("ab") as file:
        file.write(b"more")
    return reput.spark.read_log(spark, path / "store")


class TestDiscovery:
    def test_spark_finds_the_format_by_the_name_of_a_module(self) -> None:
        assert pyspark_reput.DefaultSource is ReputDataSource

    def test_a_registered_source_serves_as_well(self, spark: SparkSession) -> None:
        reput.spark.register(spark)
        assert spark.read.format("reput").schema("topic string").load(str(CLEAN)).count() == 1000

    def test_what_daemons_import_before_they_fork_is_light(self) -> None:
        code = "import reput.spark, sys; print(callable(reput.spark.session), *sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        callable_session, *loaded = done.stdout.split()
        assert callable_session == "True"
        assert {"numpy", "numba", "pyarrow", "pyspark"} & set(loaded) == set()

    def test_sparks_planner_makes_the_source_without_arrow_and_kernels(self) -> None:
        code = "import pyspark_reput, sys; print(*sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert {"numba", "reput.kernels.records.record_batch"} & set(done.stdout.split()) == set()

    def test_an_unknown_name_is_an_attribute_error(self) -> None:
        with pytest.raises(AttributeError, match="no attribute 'nothing'"):
            _ = reput.spark.nothing
