"""Rows into files of Parquet, Arrow, CSV and JSON lines: whole or not at all."""

from __future__ import annotations

import csv
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


def test_csv_has_text_for_each_column(tmp_path: Path) -> None:
    rows = {
        "n": [1, None, 3],
        "body": [b'a "b"\n', b"\xff", None],
        "keys": pa.array([["k1", "k2"], [], None]),
        "properties": pa.array([[("region", 'eu,"ö"')], [], None], pa.map_(pa.string(), pa.string())),
        "tags": pa.array(["a", "b", None]).dictionary_encode(),
        "items": pa.array([[{"id": 1}], [], None]),
        "at": pa.array([0, 1, None], pa.timestamp("us", "UTC")),
    }
    assert write_rows(pa.table(rows).to_reader(), tmp_path / "rows.CSV") == 3
    with (tmp_path / "rows.CSV").open(newline="", encoding="utf-8") as file:
        header, *lines = csv.reader(file)
    assert header == ["n", "body", "body_base64", "keys", "properties", "tags", "items", "at"]
    assert lines == [
        ["1", 'a "b"\n', "", "k1 k2", '{"region": "eu,\\"ö\\""}', "a", '[{"id": 1}]', "1970-01-01 00:00:00.000000Z"],
        ["", "", "/w==", "", "{}", "b", "[]", "1970-01-01 00:00:00.000001Z"],
        ["3", "", "", "", "", "", "", ""],
    ]


def test_json_lines_are_those_of_messages(tmp_path: Path) -> None:
    batches = pa.table({"body": [b"\xc3\xb6", b"\xff", None], "at": TABLE["at"]}), NESTED
    for table, lines in zip(
        batches,
        (
            ['{"body": "ö", "at": 0}', '{"body_base64": "/w==", "at": 0}', '{"body": null, "at": 0}'],
            ['{"keys": ["a"], "properties": {"a": "b"}}', '{"keys": [], "properties": {}}'],
        ),
        strict=True,
    ):
        assert write_rows(table.to_reader(max_chunksize=2), tmp_path / "rows.jsonl") == len(lines)
        assert (tmp_path / "rows.jsonl").read_text("utf-8") == "".join(f"{line}\n" for line in lines)


def test_a_name_of_another_kind_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\.arrow, \.csv or \.jsonl"):
        write_rows(TABLE.to_reader(), tmp_path / "rows.json")
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
