"""What others read of an export: DuckDB and Polars the folder of Parquet files, all three the Delta table."""

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
ROWS = 200


def put(store: Path, first: int, count: int) -> None:
    table = pa.table(
        {
            "topic": [TOPICS[n % 2] for n in range(first, first + count)],
            "tags": [("paid", None)[n % 2] for n in range(first, first + count)],
            "keys": [[f"k-{n}"] for n in range(first, first + count)],
            "body": [b'{"id": %d, "price": %.1f}' % (n, n / 2) for n in range(first, first + count)],
        }
    )
    with reput.MessageStore.open(store, mapped_file_size_commit_log=64 << 10, max_message_size=4096) as opened:
        opened.put_arrow(table)


def run(store: Path, output: Path) -> Export:
    options = ExportOptions(decode="json", format="delta", split_bytes=20_000, target_file_bytes=1)
    return export(store, output, runner=LocalRunner(2), options=options)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of two runs."""
    folder = tmp_path_factory.mktemp("lake")
    for first in (0, ROWS):
        put(folder / "store", first, ROWS)
        run(folder / "store", folder / "out")
    return folder


def expected(lake: Path) -> list[tuple[Any, ...]]:
    rows = reput.read_log(lake / "store").read_all().to_pylist()
    return [(r["topic"], r["queue_offset"], r["tags"], n, n / 2) for n, r in enumerate(rows)]


def test_duckdb_reads_the_folder(lake: Path) -> None:
    found = duckdb.sql(
        f"select topic, queue_offset, tags, body.id, body.price from read_parquet('{lake}/out/messages/**/*.parquet', "
        "hive_partitioning=true) order by commit_log_offset"
    )
    assert found.fetchall() == expected(lake)
    every = f"read_parquet('{lake}/out/**/*.parquet')"
    counted = duckdb.sql(f"select count(*) from {every} where topic = '%RETRY%group' and date > '2020-01-01'")
    assert counted.fetchall() == [(ROWS,)]


def rows_of(frame: pl.LazyFrame | pl.DataFrame) -> list[tuple[Any, ...]]:
    body = pl.col("body").struct
    columns = ["topic", "queue_offset", "tags", body.field("id"), body.field("price")]
    return frame.lazy().sort("commit_log_offset").select(columns).collect().rows()


def test_polars_reads_the_folder(lake: Path) -> None:
    assert rows_of(pl.scan_parquet(lake / "out/messages/**/*.parquet", hive_partitioning=True)) == expected(lake)


def test_polars_reads_the_delta_table(lake: Path) -> None:
    assert rows_of(pl.read_delta(str(lake / "out/messages"))) == expected(lake)


def test_duckdb_reads_the_delta_table_through_arrow(lake: Path) -> None:
    table = duckdb.from_arrow(DeltaTable(lake / "out/messages").to_pyarrow_table())
    found = table.order("commit_log_offset").project("topic, queue_offset, tags, body.id, body.price")
    assert found.fetchall() == expected(lake)


def test_the_delta_table_says_where_its_rows_come_from(lake: Path) -> None:
    table = DeltaTable(lake / "out/messages")
    commits = [one for one in reversed(table.history()) if one["operation"] == "WRITE"]
    offsets = [(int(one["reput.beginOffset"]), int(one["reput.endOffset"])) for one in commits]
    assert offsets[0][0] == 0
    assert offsets[0][1] == offsets[1][0]
    assert {one["reput.store"] for one in commits} == {str(lake / "store")}
    assert table.transaction_version("reput export") == 1
    assert table.metadata().partition_columns == ["topic", "date"]


def test_delta_readers_leave_out_files_by_their_statistics(lake: Path) -> None:
    actions = pa.table(DeltaTable(lake / "out/messages").get_add_actions(flatten=True)).to_pylist()
    assert sum(action["num_records"] for action in actions) == 2 * ROWS
    for action in actions:
        assert action["min.commit_log_offset"] == int(Path(action["path"]).stem)
        assert action["min.commit_log_offset"] < action["max.commit_log_offset"]
        assert action["min.store_timestamp"] <= action["max.store_timestamp"]


def test_without_deltalake_delta_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "store", 0, 2)
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(ConfigError, match=r"pip install 'reput\[delta\]'"):
        run(tmp_path / "store", tmp_path / "out")
    assert not (tmp_path / "out").exists()
