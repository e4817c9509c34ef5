"""What others read of an export: DuckDB and Polars the folders of Parquet files, all three the Delta tables.

Each topic is a table with a schema of its own, and rejects are another one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import reput
from reput.errors import ConfigError
from reput.jobs.lake.export_job import Export, ExportOptions, export
from reput.jobs.runner import LocalRunner

TOPICS = ["orders", "%RETRY%group"]
FOLDERS = {"orders": "orders", "%RETRY%group": "~25RETRY~25group"}
ROWS = 200
BAD = 190


def body(n: int) -> bytes:
    """The topics have no type of a field in common; one body of each run fits no schema."""
    if n % ROWS == BAD:
        return b"no. %d" % n
    return (b'{"id": %d, "price": %.1f}' % (n, n / 2), b'{"id": "r-%d"}' % n)[n % 2]


def put_table(store: Path, first: int, count: int) -> None:
    table = pa.table(
        {
            "topic": [TOPICS[n % 2] for n in range(first, first + count)],
            "tags": [("paid", None)[n % 2] for n in range(first, first + count)],
            "keys": [[f"k-{n}"] for n in range(first, first + count)],
            "body": [body(n) for n in range(first, first + count)],
        }
    )
    with reput.MessageStore.open(store, mapped_file_size_commit_log=64 << 10, max_message_size=4096) as opened:
        opened.put_arrow(table)


def run_export(store: Path, output: Path) -> Export:
    options = ExportOptions(decode="json", format="delta", split_bytes=20_000, target_file_bytes=1)
    return export(store, output, runner=LocalRunner(2), options=options)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of two runs."""
    folder = tmp_path_factory.mktemp("lake")
    for first in (0, ROWS):
        put_table(folder / "store", first, ROWS)
        run_export(folder / "store", folder / "out")
    return folder


def expected(lake: Path, topic: str) -> list[tuple[Any, ...]]:
    """(topic, queue offset, tags, fields of the body) of a topic's messages."""
    rows = enumerate(reput.read_log(lake / "store").read_all().to_pylist())
    return [
        (r["topic"], r["queue_offset"], r["tags"], *((n, n / 2) if topic == "orders" else (f"r-{n}",)))
        for n, r in rows
        if r["topic"] == topic and n % ROWS != BAD
    ]


FIELDS = {"orders": ["id", "price"], "%RETRY%group": ["id"]}


@pytest.mark.parametrize("topic", TOPICS)
def test_duckdb_reads_the_folder_of_a_topic(lake: Path, topic: str) -> None:
    fields = ", ".join(f"body.{name}" for name in FIELDS[topic])
    path = f"{lake}/out/messages/{FOLDERS[topic]}/*/*/*.parquet"
    found = duckdb.sql(
        f"select topic, queue_offset, tags, {fields} from read_parquet('{path}', hive_partitioning=true) "
        "order by commit_log_offset"
    )
    assert found.fetchall() == expected(lake, topic)


def test_duckdb_reads_the_rejects_and_counts_all_rows(lake: Path) -> None:
    rejects = f"read_parquet('{lake}/out/rejects/**/*.parquet')"
    found = duckdb.sql(f"select topic, queue_offset, body, reason like 'no JSON%' from {rejects} order by 2")
    assert found.fetchall() == [("orders", BAD // 2, b"no. 190", True), ("orders", (ROWS + BAD) // 2, b"no. 390", True)]
    every = f"read_parquet('{lake}/out/**/topic=*/*/*.parquet', union_by_name=true)"
    counted = duckdb.sql(f"select count(*) from (select topic, date from {every}) where topic = '%RETRY%group'")
    assert counted.fetchall() == [(ROWS,)]


def rows_of(frame: pl.LazyFrame | pl.DataFrame, topic: str) -> list[tuple[Any, ...]]:
    body = pl.col("body").struct
    columns = ["topic", "queue_offset", "tags", *(body.field(name) for name in FIELDS[topic])]
    return frame.lazy().sort("commit_log_offset").select(columns).collect().rows()


@pytest.mark.parametrize("topic", TOPICS)
def test_polars_reads_the_folder_of_a_topic(lake: Path, topic: str) -> None:
    frame = pl.scan_parquet(lake / f"out/messages/{FOLDERS[topic]}/*/*/*.parquet", hive_partitioning=True)
    assert rows_of(frame, topic) == expected(lake, topic)


@pytest.mark.parametrize("topic", TOPICS)
def test_polars_reads_the_delta_table_of_a_topic(lake: Path, topic: str) -> None:
    assert rows_of(pl.read_delta(str(lake / "out/messages" / FOLDERS[topic])), topic) == expected(lake, topic)


def test_duckdb_reads_the_delta_table_through_arrow(lake: Path) -> None:
    table = duckdb.from_arrow(DeltaTable(lake / "out/messages/orders").to_pyarrow_table())
    found = table.order("commit_log_offset").project("topic, queue_offset, tags, body.id, body.price")
    assert found.fetchall() == expected(lake, "orders")


def test_rejects_are_a_delta_table(lake: Path) -> None:
    table = DeltaTable(lake / "out/rejects").to_pyarrow_table().sort_by("commit_log_offset")
    assert table["body"].to_pylist() == [b"no. 190", b"no. 390"]
    assert table["topic"].to_pylist() == ["orders", "orders"]


@pytest.mark.parametrize("decode", ["raw", "utf8"])
def test_without_fields_the_messages_of_all_topics_are_one_delta_table(decode: str, tmp_path: Path) -> None:
    put_table(tmp_path / "store", 0, 10)
    export(
        tmp_path / "store",
        tmp_path / "out",
        runner=LocalRunner(1),
        options=ExportOptions(decode=decode, format="delta"),
    )
    table = DeltaTable(tmp_path / "out/messages").to_pyarrow_table()
    assert sorted(set(table["topic"].to_pylist())) == sorted(TOPICS)
    assert not (tmp_path / "out/rejects").exists()


def test_the_delta_table_says_where_its_rows_come_from(lake: Path) -> None:
    table = DeltaTable(lake / "out/messages/orders")
    commits = [one for one in reversed(table.history()) if one["operation"] in ("CREATE TABLE", "WRITE")]
    offsets = [(int(one["reput.beginOffset"]), int(one["reput.endOffset"])) for one in commits]
    assert offsets[0][0] == 0
    assert offsets[0][1] == offsets[1][0]
    assert {one["reput.store"] for one in commits} == {str(lake / "store")}
    assert table.transaction_version("reput export") == 1
    assert table.metadata().partition_columns == ["topic", "date"]


def test_delta_readers_leave_out_files_by_their_statistics(lake: Path) -> None:
    tables = [DeltaTable(lake / "out/messages" / folder) for folder in FOLDERS.values()]
    actions = [one for table in tables for one in pa.table(table.get_add_actions(flatten=True)).to_pylist()]
    assert sum(action["num_records"] for action in actions) == 2 * (ROWS - 1)
    for action in actions:
        assert action["min.commit_log_offset"] == int(Path(action["path"]).stem.partition("-")[0])
        assert action["min.commit_log_offset"] < action["max.commit_log_offset"]
        assert action["min.store_timestamp"] <= action["max.store_timestamp"]


def test_without_deltalake_delta_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_table(tmp_path / "store", 0, 2)
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(ConfigError, match=r"pip install 'reput\[lake\]'"):
        run_export(tmp_path / "store", tmp_path / "out")
    assert not (tmp_path / "out").exists()
