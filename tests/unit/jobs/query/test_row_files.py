"""Rows into Parquet and CSV files: whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reput.errors import ConfigError
from reput.jobs.query.row_files import read_rows, write_rows

TABLE = pa.table({"n": [1, 2, None], "body": [b"a", b'"b', None], "at": pa.array([0, 1, 2], pa.timestamp("us", "UTC"))})
NESTED = pa.table({"keys": [["a"], []], "properties": pa.array([[("a", "b")], []], pa.map_(pa.string(), pa.string()))})


@pytest.mark.parametrize("table", [TABLE, NESTED, TABLE.slice(0, 0)], ids=["plain", "nested", "empty"])
def test_parquet_gives_the_rows_back(table: pa.Table, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"an older one")
    assert write_rows(table.to_reader(max_chunksize=2), path) == table.num_rows
    assert pq.read_table(path) == table
    assert [entry.name for entry in tmp_path.iterdir()] == ["rows.parquet"]


@pytest.mark.parametrize("table", [TABLE, NESTED, TABLE.slice(0, 0)], ids=["plain", "nested", "empty"])
def test_arrow_gives_the_rows_back_as_they_were(table: pa.Table, tmp_path: Path) -> None:
    path = tmp_path / "rows.arrow"
    assert write_rows(table.to_reader(max_chunksize=2), path) == table.num_rows
    assert pa.Table.from_batches(read_rows(path), table.schema) == table
    with pa.ipc.open_file(path) as others:
        assert others.read_all() == table


def test_csv_has_bytes_as_text(tmp_path: Path) -> None:
    assert write_rows(TABLE.to_reader(), tmp_path / "rows.CSV") == 3
    lines = (tmp_path / "rows.CSV").read_text().splitlines()
    assert lines[:2] == ['"n","body","at"', '1,"a",1970-01-01 00:00:00.000000Z']


@pytest.mark.parametrize(
    ("table", "name", "reason"),
    [
        (TABLE, "rows.json", "ends with .parquet, .arrow or .csv"),
        (NESTED, "rows.csv", "CSV has no column of type list"),
        (pa.table({"body": [b"\xff"]}), "rows.csv", "body is no UTF-8"),
    ],
)
def test_what_cannot_be_written_is_refused_and_leaves_nothing(
    table: pa.Table, name: str, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=reason):
        write_rows(table.to_reader(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_rows_that_end_early_leave_the_old_file(tmp_path: Path) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield TABLE.to_batches()[0]
        raise ConfigError("died")

    (tmp_path / "rows.parquet").write_bytes(b"an older one")
    with pytest.raises(ConfigError, match="died"):
        write_rows(pa.RecordBatchReader.from_batches(TABLE.schema, rows()), tmp_path / "rows.parquet")
    assert (tmp_path / "rows.parquet").read_bytes() == b"an older one"
    assert len(list(tmp_path.iterdir())) == 1
