"""Files of Iceberg tables have the ids of the tables' fields, whoever changes a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import index_by_name
from pyiceberg.table import Table

from reput.errors import ConfigError, StoreError
from reput.jobs.lake import export_job, export_task, topic_schemas
from reput.jobs.lake.field_ids import differing_ids
from reput.jobs.lake.staging import StagedFileWriter
from tests.support.iceberg import (
    catalog_of,
    files_without_ids,
    ids_of_files,
    names_of_tables,
    rows_of_table,
    table_of,
)
from tests.support.lake import NAMES, put, put_topics, run
from tests.support.shares import sampled

TABLE = "messages_orders"
#: A field comes on two levels: the ids of a table that has grown are not those of a new one.
BODIES = [
    b'{"id": 0, "at": {"city": "Bonn"}}',
    b'{"id": 1, "at": {"city": "Rome", "zip": 7}}',
    b'{"id": 2, "coupon": "x", "at": {"zip": 8}}',
    b'{"id": 3, "coupon": "y"}',
    b'{"id": 4}',
]


def grow(folder: Path, number: int, **options: Any) -> None:
    """A message and a body that is none; then a run of the export."""
    put_topics(folder / "store", {"orders": [BODIES[number], b"none"]})
    run(folder / "store", folder / "out", format="iceberg", decode="json", new_fields="add", **options)


def grow_out_of_reach(folder: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `grow`, with a catalog that fails after the commit was decided."""

    def fails(*_: Any, **__: Any) -> None:
        raise OSError("out of reach")

    with monkeypatch.context() as patched:
        patched.setattr(SqlCatalog, "commit_table", fails)
        with pytest.raises(StoreError, match=f"commit {number}: out of reach"):
            grow(folder, number)


def table_bodies(folder: Path) -> list[dict[str, Any]]:
    return rows_of_table(folder / "out", TABLE)["body"].to_pylist()


def expected(count: int) -> list[dict[str, Any]]:
    """The first bodies, with the columns that the first four bring."""
    places = [{"city": "Bonn", "zip": None}, {"city": "Rome", "zip": 7}, {"city": None, "zip": 8}, None, None]
    coupons = [None, None, "x", "y", None]
    return [{"id": number, "at": places[number], "coupon": coupons[number]} for number in range(count)]


@sampled(2)
@pytest.mark.parametrize("compact", [0, 3])
def test_files_of_a_table_that_grows_have_its_ids(compact: int, tmp_path: Path) -> None:
    for number in range(4):
        grow(tmp_path, number, compact=compact)
    assert table_bodies(tmp_path) == expected(4)
    table = table_of(tmp_path / "out", TABLE)
    files = ids_of_files(table)
    ids = index_by_name(table.schema())
    assert len(files) == (2 if compact else 4)
    assert all(file.items() <= ids.items() for file in files)
    assert {"keys.element", "properties.key", "body.at.zip", "body.coupon"} <= files[-1].keys()
    assert files[0].keys() < files[-1].keys() or compact
    assert all(ids_of_files(table_of(tmp_path / "out", "rejects")))


@sampled(2)
@pytest.mark.parametrize("compact", [0, 3])
def test_a_table_of_an_earlier_version_goes_on(compact: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with files_without_ids():
        for number in range(2):
            grow(tmp_path, number)
    assert ids_of_files(table_of(tmp_path / "out", TABLE)) == [{}, {}]
    for number in (2, 3):
        grow(tmp_path, number, compact=compact)
    table = table_of(tmp_path / "out", TABLE)
    assert [bool(ids) for ids in ids_of_files(table)] == ([True, True] if compact else [False, False, True, True])
    assert table_bodies(tmp_path) == expected(4)
    assert sorted(table.scan().to_duckdb("t").sql("select body.id, body.at.zip from t").fetchall()) == [
        (0, None), (1, 7), (2, 8), (3, None),
    ]  # fmt: skip
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    for reader in ("native", "pyiceberg"):
        frame = pl.scan_iceberg(table, reader_override=reader).sort("commit_log_offset")  # type: ignore[arg-type]
        assert frame.select("body").collect()["body"].to_list() == expected(4)


def test_a_commit_that_an_earlier_version_has_decided_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with files_without_ids():
        grow_out_of_reach(tmp_path, 0, monkeypatch)
    assert table_bodies(tmp_path) == []
    grow(tmp_path, 1)
    assert [body["id"] for body in table_bodies(tmp_path)] == [0, 1]


def change(table: Table) -> None:
    """Two columns go, and come back with other ids."""
    with table.update_schema(allow_incompatible_changes=True) as columns:
        columns.delete_column("tags")
        columns.delete_column(("body", "id"))


def test_files_have_the_ids_of_columns_that_somebody_has_changed(tmp_path: Path) -> None:
    for number in range(3):
        grow(tmp_path, number)
    before = index_by_name(table_of(tmp_path / "out", TABLE).schema())
    change(table_of(tmp_path / "out", TABLE))
    grow(tmp_path, 3, compact=3)
    table = table_of(tmp_path / "out", TABLE)
    ids = index_by_name(table.schema())
    assert ids["body.id"] > max(before.values())
    *others, mine = ids_of_files(table)
    assert [one["body.id"] for one in others] == [before["body.id"]] * 3, "not put together: their ids are others"
    assert mine.items() <= ids.items()
    assert [body["id"] for body in table_bodies(tmp_path)] == [None, None, None, 3]


def test_a_change_while_files_are_written_has_them_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        grow(tmp_path, number)
    first_rejects, changed = export_job.first_rejects, list[str]()

    def changes_before(*arguments: Any) -> Any:
        if not changed:
            changed.append("once")
            change(table_of(tmp_path / "out", TABLE))
        return first_rejects(*arguments)

    monkeypatch.setattr(export_job, "first_rejects", changes_before)
    grow(tmp_path, 3)
    grow(tmp_path, 4)
    assert changed
    assert [body["id"] for body in table_bodies(tmp_path)] == [None, None, None, 3, 4]
    assert rows_of_table(tmp_path / "out", "rejects").num_rows == 5


def test_files_with_the_ids_of_another_table_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        grow(tmp_path, number)
    grow_out_of_reach(tmp_path, 3, monkeypatch)
    with catalog_of(tmp_path / "out") as catalog:
        catalog.rename_table(f"reput.{TABLE}", "reput.kept")
    for _ in range(2):
        with pytest.raises(StoreError, match=r"orders.*parquet: its field body.* has another id .* made anew.* undo"):
            grow(tmp_path, 4)
    with catalog_of(tmp_path / "out") as catalog:
        catalog.drop_table(f"reput.{TABLE}")
        catalog.rename_table("reput.kept", f"reput.{TABLE}")
    grow(tmp_path, 4)
    assert [body["id"] for body in table_bodies(tmp_path)] == [0, 1, 2, 3, 4, 4, 4]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that tasks have written."""
    names = list[str]()

    class Counted(StagedFileWriter):
        def finish(self) -> tuple[str, int]:
            name, size = super().finish()
            names.append(name)
            return name, size

    monkeypatch.setattr(export_task, "StagedFileWriter", Counted)
    return names


def test_no_file_is_written_twice_for_its_ids(tmp_path: Path, written: list[str]) -> None:
    grow(tmp_path, 0)
    assert len(written) == 2, "a file of messages, and one of rejects"
    for number in (1, 2):
        grow(tmp_path, number)
    written.clear()
    grow(tmp_path, 4)
    assert len(written) == 2


def test_files_that_a_batch_puts_together_have_ids(tmp_path: Path, written: list[str]) -> None:
    put(tmp_path / "store", 0, 80)
    run(tmp_path / "store", tmp_path / "out", format="iceberg", split_bytes=4000)
    table = table_of(tmp_path / "out", "messages")
    files = ids_of_files(table)
    assert len(written) > len(files) == len(NAMES)
    assert all(ids and ids.items() <= index_by_name(table.schema()).items() for ids in files)


@pytest.mark.parametrize("form", ["delta", "parquet"])
def test_files_of_other_formats_have_no_ids(form: str, tmp_path: Path) -> None:
    put(tmp_path / "store", 0, 4)
    run(tmp_path / "store", tmp_path / "out", format=form)
    paths = sorted((tmp_path / "out/messages").rglob("*.parquet"))
    assert len(paths) == len(NAMES)
    assert not any(differing_ids(str(path), {}) for path in paths)


def test_a_first_run_that_is_refused_leaves_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_schemas, "_SAMPLE_BODIES", 1)
    put_topics(tmp_path / "store", {"orders": [*BODIES, b"none"]})
    options: dict[str, Any] = {"format": "iceberg", "decode": "json", "new_fields": "add"}
    with pytest.raises(ConfigError, match="strict"):
        run(tmp_path / "store", tmp_path / "out", strict=True, **options)
    assert names_of_tables(tmp_path / "out") == []
    run(tmp_path / "store", tmp_path / "out", **options)
    assert table_bodies(tmp_path) == expected(5)
    [ids] = ids_of_files(table_of(tmp_path / "out", TABLE))
    assert ids.items() <= index_by_name(table_of(tmp_path / "out", TABLE).schema()).items()
