"""An export by Spark's executors is that of threads, Spark reads it, and imports it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import reput
from reput.config.message_store import FlushDiskType, MessageStoreConfig
from reput.files import DISK
from reput.jobs.lake.export_job import ExportOptions, export
from reput.jobs.lake.import_job import import_messages
from reput.jobs.lake.import_source import open_source
from reput.jobs.runner import LocalRunner
from reput.spark.runner import SparkRunner
from reput.store.sinks.import_sink import ImportSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 3000
TOPICS = ["orders", "%RETRY%group", "a|b"]
OPTIONS = ExportOptions(decode="json", format="delta", split_bytes=200_000, target_file_bytes=20_000)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lake") / "store"
    table = pa.table(
        {
            "topic": [TOPICS[n % 3] for n in range(ROWS)],
            "keys": [[f"k-{n}"] for n in range(ROWS)],
            "body": [b'{"id": %d, "name": "%s"}' % (n, b"x" * (n % 200)) if n % 500 else b"no" for n in range(ROWS)],
        }
    )
    with reput.MessageStore.open(path, mapped_file_size_commit_log=256 << 10, max_message_size=4096) as opened:
        opened.put_arrow(table)
    return path


@pytest.fixture(scope="module")
def lake(spark: SparkSession, store: Path) -> Path:
    """What Spark exported."""
    export(store, store.parent / "spark", runner=SparkRunner(spark), options=OPTIONS)
    return store.parent / "spark"


def files_of(output: Path) -> dict[str, str]:
    return {
        str(path.relative_to(output)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in output.rglob("*.parquet")
    }


def test_the_files_are_those_of_threads(store: Path, lake: Path, tmp_path: Path) -> None:
    export(store, tmp_path / "local", runner=LocalRunner(2), options=OPTIONS)
    assert files_of(lake) == files_of(tmp_path / "local") != {}


def test_spark_reads_the_folder_of_a_topic_and_the_files_of_its_delta_table(spark: SparkSession, lake: Path) -> None:
    path = lake / "messages/~25RETRY~25group"
    folder = spark.read.parquet(str(path))
    table = spark.read.option("basePath", str(path)).parquet(*DeltaTable(path).file_uris())
    for frame in (folder, table):
        found = frame.where("topic = '%RETRY%group' and date > '2020-01-01'").select("body.id", "keys")
        rows = sorted((row.id, row["keys"]) for row in found.collect())
        assert rows == [(n, [f"k-{n}"]) for n in range(ROWS) if n % 3 == 1 and n % 500]
    aside = spark.read.parquet(str(lake / "rejects")).collect()
    assert len(aside) == ROWS // 500
    assert all(bytes(row["body"]) == b"no" and "no JSON" in row["reason"] for row in aside)


def test_an_import_by_spark_gives_the_store_of_threads(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    export(store, tmp_path / "lake", runner=LocalRunner(2))
    config = MessageStoreConfig(flush_disk_type=FlushDiskType.SYNC_FLUSH, mapped_file_size_commit_log=1 << 20)
    stores = []
    for name, runner in (("spark", SparkRunner(spark)), ("local", LocalRunner(2))):
        with ImportSink(tmp_path / name, config, "lake", files=DISK) as sink:
            assert import_messages(open_source(tmp_path / "lake"), sink, runner=runner).messages == ROWS
        columns = ["topic", "queue_id", "queue_offset", "keys", "born_timestamp", "body"]
        stores.append(reput.read_log(tmp_path / name, columns).read_all())
    assert stores[0] == stores[1]
