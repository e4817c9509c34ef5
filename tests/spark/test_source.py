"""The format `reput`: the rows of `reput.read_log`, however the log is cut, and errors that reach the user."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

import pyspark_reput
import reput
import reput.spark
from reput.errors import ConfigError, CorruptRecordError
from reput.formats.message import Message
from reput.formats.paths import offset_to_file_name
from reput.formats.record import BLANK_SIZE, encode_blank, encode_host, encode_record
from reput.kernels.record_batch import SCHEMA
from reput.kernels.record_scan import find_record
from reput.log.directory import StoreDirectory
from reput.log.reader import read_split
from reput.log.selection import make_selection
from reput.spark.options import READ_OPTIONS, ReadOptions, option_texts, parse_options
from reput.spark.reader import plan_proven_splits
from reput.spark.schema import column_names, spark_schema
from reput.spark.source import ReputDataSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORPORA = Path(__file__).parents[1] / "golden" / "5.3.3"
CASES = sorted(path.name for path in CORPORA.iterdir())
CLEAN = CORPORA / "clean" / "store"
HOST = encode_host("10.0.0.1:10911")
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


def forged_log(path: Path, file_size: int = 16_384) -> int:
    """A log whose bodies are chains of whole records that say truly where they lie; returns the count of messages."""

    def record(offset: int, body: bytes, queue_offset: int) -> bytes:
        return encode_record(
            Message("topic", body),
            queue_id=0,
            queue_offset=queue_offset,
            commit_log_offset=offset,
            store_timestamp=BORN_MS,
            store_host=HOST,
            born_timestamp=BORN_MS,
            born_host=HOST,
        )

    folder = path / "commitlog"
    folder.mkdir(parents=True)
    count = 0
    for start in (0, file_size, 2 * file_size):
        content = b""
        while True:
            offset = start + len(content)
            body = b""
            for _ in range(10):
                body += record(offset + 88 + len(body), b"stolen", 99)
            genuine = record(offset, body, count)
            if len(content) + len(genuine) + BLANK_SIZE > file_size:
                break
            content, count = content + genuine, count + 1
        content += encode_blank(file_size - len(content))
        (folder / offset_to_file_name(start)).write_bytes(content.ljust(file_size, b"\0"))
    return count


def rows_of(frame: DataFrame) -> pa.Table:
    return frame.toArrow().select(frame.columns).cast(pa.schema([SCHEMA.field(name) for name in frame.columns]))


def planned_rows(path: Path, **plan: Any) -> pa.Table:
    """What the tasks of a plan read, one after the other."""
    selection = make_selection(store=path.name)
    splits = plan_proven_splits(
        StoreDirectory(path).log_files(), **{"split_bytes": None, "processors": 2, "flushed_ms": None, **plan}
    )
    return pa.Table.from_batches([batch for split in splits for batch in read_split(split, selection)], SCHEMA)


def damaged_copy(path: Path, file_number: int) -> tuple[Path, str, int]:
    """`clean` with a byte changed in a body: its path, and the file and offset of the damaged record."""
    shutil.copytree(CLEAN, path)
    start = 131_072 * file_number
    file = path / "commitlog" / offset_to_file_name(start)
    rows = reput.read_log(path, ["commit_log_offset", "body"]).read_all().to_pylist()
    row = next(row for row in rows if row["commit_log_offset"] > start + 60_000 and row["body"])
    data = bytearray(file.read_bytes())
    data[row["commit_log_offset"] - start + 88] ^= 1
    file.write_bytes(data)
    return path, str(file), row["commit_log_offset"]


class TestSchema:
    def test_it_is_the_arrow_schema_in_spark_types(self) -> None:
        assert spark_schema() == from_arrow_schema(SCHEMA)

    def test_it_converts_back_to_the_very_types_that_a_task_yields(self) -> None:
        assert to_arrow_schema(spark_schema(), timezone="UTC").equals(SCHEMA)

    def test_columns_are_taken_in_any_order(self) -> None:
        assert column_names(spark_schema(["body", "topic"])) == ("body", "topic")

    @pytest.mark.parametrize(
        ("read", "message"),
        [
            (lambda: spark_schema(["topics"]), "no column 'topics'; did you mean 'topic'"),
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

    def test_texts_of_values_read_as_the_values(self) -> None:
        end = datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=UTC)
        given = {"path": "/s", "topics": ["[a,", "b"], "keys": None, "begin": 5, "end": end, "rawBody": True}
        assert parse_options(option_texts(given), READ_OPTIONS, ReadOptions) == ReadOptions(
            path="/s", topics=("[a,", "b"), begin=5, end=end, raw_body=True
        )

    @pytest.mark.parametrize(
        ("options", "message"),
        [
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


class TestPlan:
    @pytest.mark.parametrize("case", CASES)
    @pytest.mark.parametrize(
        "plan",
        [{"split_bytes": 300}, {"split_bytes": 9000}, {"processors": 1}, {"processors": 64}],
        ids=str,
    )
    def test_its_rows_are_those_of_the_log(self, case: str, plan: dict[str, int]) -> None:
        store = CORPORA / case / "store"
        assert planned_rows(store, **plan) == reput.read_log(store).read_all()

    @pytest.mark.parametrize("case", ["clean", "killed"])
    def test_a_log_flushed_up_to_a_time_has_the_rows_before_the_first_later_one(self, case: str) -> None:
        store = CORPORA / case / "store"
        log = reput.read_log(store).read_all()
        times = log["store_timestamp"].cast(pa.int64()).to_pylist()
        flushed_ms = times[len(times) // 2] // 1000
        flushed = next(row for row, time in enumerate(times) if time > flushed_ms * 1000)
        assert planned_rows(store, flushed_ms=flushed_ms, split_bytes=2000) == log[:flushed]
        assert planned_rows(store, flushed_ms=0).num_rows == 0

    def test_bodies_full_of_true_looking_records_give_no_rows(self, tmp_path: Path) -> None:
        count = forged_log(tmp_path / "store")
        log = reput.read_log(tmp_path / "store").read_all()
        assert log.num_rows == count
        data = np.frombuffer((tmp_path / "store" / "commitlog" / offset_to_file_name(0)).read_bytes(), np.uint8)
        assert find_record(data, 0, 300) not in log["commit_log_offset"].to_pylist()  # the bytes do mislead
        for split_bytes in range(500, 4000, 171):
            assert planned_rows(tmp_path / "store", split_bytes=split_bytes) == log

    def test_splits_join_without_gap_and_begin_at_records(self) -> None:
        offsets = set(reput.read_log(CLEAN, ["commit_log_offset"]).read_all()["commit_log_offset"].to_pylist())
        files = StoreDirectory(CLEAN).log_files()
        splits = plan_proven_splits(files, split_bytes=10_000, processors=2, flushed_ms=None)
        assert len(splits) > 20
        assert {split.begin for split in splits} <= offsets
        assert all(a.end == b.begin for a, b in pairwise(splits) if a.file == b.file)

    def test_files_with_a_successor_are_whole_splits_where_there_are_enough(self) -> None:
        files = StoreDirectory(CLEAN).log_files()
        splits = plan_proven_splits(files, split_bytes=None, processors=2, flushed_ms=None)
        assert [(split.begin, split.end) for split in splits[:-1]] == [
            (file.start_offset, file.end_offset) for file in files[: len(splits) - 1]
        ]
        assert splits[-1].end < splits[-1].file.end_offset

    def test_damage_in_a_walked_file_is_told_by_the_planner(self, tmp_path: Path) -> None:
        path, file, offset = damaged_copy(tmp_path / "store", 0)
        with pytest.raises(CorruptRecordError, match="body CRC") as caught:
            plan_proven_splits(StoreDirectory(path).log_files(), split_bytes=5000, processors=2, flushed_ms=None)
        assert (caught.value.path, caught.value.offset) == (file, offset)


class TestSource:
    @pytest.mark.parametrize("case", CASES)
    def test_rows_equal_those_of_read_log_on_what_apache_wrote(self, spark: SparkSession, case: str) -> None:
        store = CORPORA / case / "store"
        frame = spark.read.format("reput").option("splitBytes", "20000").load(str(store))
        assert frame.schema == spark_schema()
        assert rows_of(frame) == reput.read_log(store).read_all()

    def test_rows_equal_those_of_read_log_on_a_store_of_ours(self, spark: SparkSession, small_store: Path) -> None:
        assert rows_of(reput.spark.read_log(spark, small_store)) == reput.read_log(small_store).read_all()

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
        frame = reput.spark.read_log(spark, path, ["topic"], split_bytes=split_bytes)
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

    def test_a_wrong_column_in_the_schema_is_refused(self, spark: SparkSession) -> None:
        with pytest.raises(Exception, match="no column 'topc'; did you mean 'topic'"):
            spark.read.format("reput").schema("topc string").load(str(CLEAN)).count()


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
        assert {"numba", "reput.kernels.record_batch"} & set(done.stdout.split()) == set()

    def test_an_unknown_name_is_an_attribute_error(self) -> None:
        with pytest.raises(AttributeError, match="no attribute 'nothing'"):
            _ = reput.spark.nothing
