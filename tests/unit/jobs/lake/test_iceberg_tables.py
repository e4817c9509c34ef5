"""Iceberg tables of an export: rows, partitions, lineage, and a catalog that fails or has other writers."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyiceberg.catalog
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.utils.config import Config

from reput.errors import ConfigError, StoreError
from reput.jobs.lake import iceberg_table
from tests.support.iceberg import catalog_of, names_of_tables, rows_of_table, table_of
from tests.support.invariants import contents
from tests.support.lake import NAMES, log_rows, put, put_topics, rows_of, run

ROWS = 80
RETRY = "%RETRY%group"
TABLES = {"orders": "messages_orders", RETRY: "messages_~25RETRY~25group"}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of two runs, of topics with JSON bodies and one body that is none."""
    folder = tmp_path_factory.mktemp("iceberg")
    put(folder / "store", 0, ROWS)
    run(folder / "store", folder / "out", decode="json", format="iceberg")
    put_topics(folder / "store", {"orders": [b'{"id": 1000, "name": "late"}', b"none"]})
    run(folder / "store", folder / "out", decode="json", format="iceberg")
    return folder


def expected(lake: Path, topic: str) -> list[dict[str, Any]]:
    rows = log_rows(lake / "store", [topic])
    return [row for row in rows if row["body"] != b"none"]


def seen(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["topic"], row["date"], row["queue_offset"], row["keys"], row["store_timestamp"]) for row in rows]


@pytest.mark.parametrize("topic", TABLES)
def test_pyiceberg_reads_what_the_log_has(lake: Path, topic: str) -> None:
    rows = rows_of_table(lake / "out", TABLES[topic]).to_pylist()
    assert seen(rows) == seen(expected(lake, topic))
    numbers = [n for n in range(ROWS) if NAMES[n % len(NAMES)] == topic]
    assert [row["body"]["id"] for row in rows][: len(numbers)] == numbers


@pytest.mark.parametrize("topic", TABLES)
@pytest.mark.parametrize("reader", ["native", "pyiceberg"])
def test_polars_reads_what_the_log_has(lake: Path, topic: str, reader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # not the plugin, which is a package of its own
    frame = pl.scan_iceberg(table_of(lake / "out", TABLES[topic]), reader_override=reader)
    rows = frame.sort("commit_log_offset").collect().to_dicts()
    assert seen(rows) == seen(expected(lake, topic))
    assert frame.filter(pl.col("body").struct.field("id") >= 1000).collect().height == (topic == "orders")


def test_duckdb_reads_what_the_log_has_through_arrow(lake: Path) -> None:
    connection = table_of(lake / "out", "messages_orders").scan().to_duckdb("orders")
    found = connection.sql("select topic, date, queue_offset, body.id from orders order by commit_log_offset")
    assert [row[:3] for row in found.fetchall()] == [one[:3] for one in seen(expected(lake, "orders"))]
    assert duckdb.sql("select 1").fetchall() == [(1,)]


def test_rejects_are_a_table(lake: Path) -> None:
    [row] = rows_of_table(lake / "out", "rejects").to_pylist()
    assert (row["topic"], row["body"]) == ("orders", b"none")
    assert "no JSON" in row["reason"]


def test_plain_readers_find_the_rows_of_the_folders(lake: Path) -> None:
    assert len(rows_of(lake / "out/messages", "orders")) == len(expected(lake, "orders"))


def test_a_filter_leaves_files_out_by_partition_and_by_bounds(tmp_path: Path) -> None:
    put(tmp_path / "store", 0, ROWS)
    run(tmp_path / "store", tmp_path / "out", format="iceberg", split_bytes=4000, target_file_bytes=1)
    table = table_of(tmp_path / "out", "messages")
    assert [field.name for field in table.spec().fields] == ["topic", "date"]
    every = [task.file for task in table.scan().plan_files()]
    of_topic = [task.file for task in table.scan(row_filter=f"topic = '{RETRY}'").plan_files()]
    assert 0 < len(of_topic) < len(every)
    assert {file.partition[0] for file in of_topic} == {RETRY}
    offset = max(row["commit_log_offset"] for row in log_rows(tmp_path / "store"))
    last = table.scan(row_filter=f"commit_log_offset >= {offset}")
    assert len(list(last.plan_files())) == 1
    assert last.to_arrow().num_rows == 1


def test_snapshots_and_properties_say_where_the_rows_come_from(lake: Path) -> None:
    table = table_of(lake / "out", "messages_orders")
    first, second = (snapshot.summary.additional_properties for snapshot in table.snapshots())  # type: ignore[union-attr]
    assert (first["reput.commit"], second["reput.commit"]) == ("0", "1")
    assert first["reput.beginOffset"] == "0"
    assert first["reput.endOffset"] == second["reput.beginOffset"]
    assert table.properties["reput.endOffset"] == second["reput.endOffset"]
    assert table.properties["reput.store"] == second["reput.store"] == str(lake / "store")
    assert table_of(lake / "out", "rejects").properties["reput.commit"] == "1"


class OutOfReach(Exception):
    """What the client of some catalog raises."""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_catalog_that_fails_in_a_commit_is_an_error_and_the_next_export_completes(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "store", 0, ROWS)
    run(tmp_path / "store", tmp_path / "out", format="iceberg")
    put(tmp_path / "store", ROWS, ROWS)
    commit: Callable[..., Any] = SqlCatalog.commit_table

    def fails(*arguments: Any, **named: Any) -> Any:
        if when == "after":
            commit(*arguments, **named)
        raise OutOfReach("connection reset")

    with monkeypatch.context() as patched:
        patched.setattr(SqlCatalog, "commit_table", fails)
        with pytest.raises(StoreError, match=r"reput.messages: .* commit 1: connection reset; .* next export"):
            run(tmp_path / "store", tmp_path / "out", format="iceberg")
    assert rows_of_table(tmp_path / "out", "messages").num_rows == (2 * ROWS if when == "after" else ROWS)
    assert run(tmp_path / "store", tmp_path / "out", format="iceberg").messages == 0
    rows = rows_of_table(tmp_path / "out", "messages").to_pylist()
    assert seen(rows) == seen(log_rows(tmp_path / "store"))


def test_another_writer_in_between_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "store", 0, ROWS)
    run(tmp_path / "store", tmp_path / "out", format="iceberg")
    put(tmp_path / "store", ROWS, ROWS)
    commit: Callable[..., Any] = SqlCatalog.commit_table
    refused: list[Exception] = []

    def interrupted(catalog: SqlCatalog, *arguments: Any, **named: Any) -> Any:
        if not refused:
            refused.append(AssertionError("the commit was not refused"))
            other = table_of(tmp_path / "out", "messages")
            with monkeypatch.context() as patched:
                patched.setattr(SqlCatalog, "commit_table", commit)
                other.append(other.scan(limit=1).to_arrow())
        try:
            return commit(catalog, *arguments, **named)
        except CommitFailedException as error:
            refused[0] = error
            raise

    monkeypatch.setattr(SqlCatalog, "commit_table", interrupted)
    assert run(tmp_path / "store", tmp_path / "out", format="iceberg").messages == ROWS
    assert isinstance(refused[0], CommitFailedException)
    assert rows_of_table(tmp_path / "out", "messages").num_rows == 2 * ROWS + 1
    assert table_of(tmp_path / "out", "messages").properties["reput.commit"] == "1"


def test_a_catalog_of_the_configuration_has_the_tables_of_several_exports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__URI", f"sqlite:///{tmp_path}/shop.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__WAREHOUSE", f"file://{tmp_path}/warehouse")
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())
    put(tmp_path / "store", 0, ROWS)
    options = {"format": "iceberg", "catalog": "shop", "namespace": "queues.first"}
    run(tmp_path / "store", tmp_path / "out", **options)
    with pytest.raises(StoreError, match=r"queues.first.messages: the table is not of this export, but of .*/out;"):
        run(tmp_path / "store", tmp_path / "other", **options)
    run(tmp_path / "store", tmp_path / "third", **options | {"namespace": "queues.second"})
    with pyiceberg.catalog.load_catalog("shop") as catalog:
        for namespace in ("queues.first", "queues.second"):
            table = catalog.load_table(f"{namespace}.messages")
            assert table.location() == f"file://{tmp_path}/warehouse/{namespace}/messages"
            assert seen(table.scan().to_arrow().sort_by("commit_log_offset").to_pylist()) == seen(
                log_rows(tmp_path / "store")
            )
    assert not (tmp_path / "out/catalog.db").exists()


def test_a_catalog_that_nobody_configured_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "store", 0, 4)
    with pytest.raises(ConfigError, match=r"'nowhere' cannot be opened: .*pyiceberg.yaml"):
        run(tmp_path / "store", tmp_path / "out", format="iceberg", catalog="nowhere")
    assert run(tmp_path / "store", tmp_path / "out", format="iceberg").messages == 4


def test_a_path_that_is_no_location_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "store", 0, 4)
    with pytest.raises(ConfigError, match=r"no \? and no #"):
        run(tmp_path / "store", tmp_path / "out#1", format="iceberg")


def test_the_metadata_are_hidden_from_readers_of_the_folder_and_do_not_pile_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(iceberg_table._PROPERTIES, "write.metadata.previous-versions-max", "2")
    for number in range(4):
        put(tmp_path / "store", number, 1)
        run(tmp_path / "store", tmp_path / "out", format="iceberg", topics=["orders", "a|b"])
    assert names_of_tables(tmp_path / "out") == ["messages"]
    assert len(list((tmp_path / "out/messages/_iceberg").glob("*.metadata.json"))) <= 3
    with catalog_of(tmp_path / "out") as catalog:
        assert catalog.name == "reput"
    with sqlite3.connect(tmp_path / "out/catalog.db") as database:
        assert database.execute("select count(*) from iceberg_tables").fetchall() == [(1,)]


@pytest.mark.parametrize("new_rows", [0, 4])
@pytest.mark.parametrize("catalog", [None, "shop"])
@pytest.mark.parametrize("move", [Path.rename, shutil.copytree])
def test_a_moved_folder_is_refused_whether_anything_is_new_or_not(
    new_rows: int, catalog: str | None, move: Callable[[Path, Path], Any], tmp_path: Path, shop: None
) -> None:
    options = {"format": "iceberg", "catalog": catalog}
    put(tmp_path / "store", 0, 4)
    run(tmp_path / "store", tmp_path / "out", **options)
    move(tmp_path / "out", tmp_path / "moved")
    if new_rows:
        put(tmp_path / "store", 4, new_rows)
    before = contents(tmp_path / "moved")
    text = f"{tmp_path}/moved: the folder was moved or copied from {tmp_path}/out, .*move it back, or export to a new"
    with pytest.raises(StoreError, match=text):
        run(tmp_path / "store", tmp_path / "moved", **options)
    assert contents(tmp_path / "moved") == before
    if move is Path.rename:
        (tmp_path / "moved").rename(tmp_path / "out")
    assert run(tmp_path / "store", tmp_path / "out", **options).messages == new_rows


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog of pyiceberg's configuration."""
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__URI", f"sqlite:///{tmp_path}/shop.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__WAREHOUSE", f"file://{tmp_path}/warehouse")
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())


def test_a_catalog_without_a_warehouse_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__NOWH__URI", f"sqlite:///{tmp_path}/nowh.db")
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())
    put(tmp_path / "store", 0, 4)
    with pytest.raises(ConfigError, match=r"catalog 'nowh' has no warehouse: .*set `warehouse:`"):
        run(tmp_path / "store", tmp_path / "out", format="iceberg", catalog="nowh")
    monkeypatch.setenv("PYICEBERG_CATALOG__NOWH__WAREHOUSE", f"file://{tmp_path}/warehouse")
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())
    assert run(tmp_path / "store", tmp_path / "out", format="iceberg", catalog="nowh").messages == 4
