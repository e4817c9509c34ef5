"""Upkeep of tables: small files become one, old snapshots go with their files, and no row is lost or doubled."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import AddSnapshotUpdate

from reput.errors import ConfigError, StoreFormatError
from reput.jobs.lake import open_source
from tests.support.iceberg import rows_of_table, table_of
from tests.support.lake import put_topics, run
from tests.support.shares import sampled

FORMATS = pytest.mark.parametrize("form", ["delta", "iceberg"])
RETRY = "messages_~25RETRY~25g"
OPTIONS: dict[str, Any] = {"decode": "json", "compact": 3}


def put_round(store: Path, number: int) -> None:
    put_topics(store, {"%RETRY%g": [b'{"id": %d, "f%d": true}' % (number, number)], "users": [b'{"id": "u"}']})


def files_of(output: Path, form: str) -> list[Path]:
    """Files of rows that the table of the topic names."""
    if form == "delta":
        return [Path(path) for path in DeltaTable(output / "messages/~25RETRY~25g").file_uris()]
    table = table_of(output, RETRY)
    return [Path(task.file.file_path.removeprefix("file://")) for task in table.scan().plan_files()]


def ids(output: Path, form: str) -> list[int]:
    if form == "delta":
        table = DeltaTable(output / "messages/~25RETRY~25g").to_pyarrow_table().sort_by("commit_log_offset")
    else:
        table = rows_of_table(output, RETRY)
    return [body["id"] for body in table["body"].to_pylist()]


@sampled(2)
@FORMATS
def test_small_files_of_several_schemas_become_one(form: str, tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    counts = []
    for number in range(4):
        put_round(store, number)
        run(store, output, format=form, new_fields="add", **OPTIONS)
        counts.append(len(files_of(output, form)))
        assert ids(output, form) == list(range(number + 1))
    assert counts == [1, 2, 1, 2]
    assert not [path.name for path in (output / "_reput").iterdir() if path.name.startswith("staging")]


def test_files_of_several_logs_that_begin_at_one_offset_keep_their_rows(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    more: dict[str, Any] = {"fail_on_data_loss": False, "target_file_bytes": 10_000, "format": "iceberg"}
    for number in range(4):
        put_topics(store, {"%RETRY%g": [b'{"id": %d}' % number]})
        run(store, output, decode="json", compact=4, **more)
        shutil.rmtree(store)
    assert sorted(ids(output, "iceberg")) == [0, 1, 2, 3]
    assert len(files_of(output, "iceberg")) == 3


@sampled(2)
@FORMATS
def test_old_snapshots_go_with_the_files_that_only_they_name(form: str, tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    for number in range(3):
        put_round(store, number)
        run(store, output, format=form, new_fields="add", retain_hours=0, **OPTIONS)
    folder = output / "messages/~25RETRY~25g"
    assert list(folder.glob("topic=*/*/*.parquet")) == files_of(output, form)
    if form == "iceberg":
        [snapshot] = table_of(output, RETRY).snapshots()
        names = {Path(snapshot.manifest_list).name}
        io = table_of(output, RETRY).io
        names |= {Path(manifest.manifest_path).name for manifest in snapshot.manifests(io)}
        assert {path.name for path in folder.rglob("*.avro")} == names
    put_round(store, 3)
    assert run(store, output, format=form, new_fields="add", retain_hours=0, **OPTIONS).messages == 2
    assert ids(output, form) == [0, 1, 2, 3]


def test_the_last_commit_is_known_when_its_snapshot_is_gone(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    for number in range(3):
        put_round(store, number)
        run(store, output, format="iceberg", new_fields="add", retain_hours=0, **OPTIONS)
    table = table_of(output, RETRY)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["reput.commit"] == table.properties["reput.commit"] == "2"
    assert snapshot.summary["reput.endOffset"] == table.properties["reput.endOffset"]


def test_another_writer_in_between_leaves_the_small_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    for number in range(2):
        put_round(store, number)
        run(store, output, format="iceberg", new_fields="add", **OPTIONS)
    put_round(store, 2)
    commit: Callable[..., Any] = SqlCatalog.commit_table

    def interrupted(catalog: SqlCatalog, table: Any, requirements: Any, updates: Any) -> Any:
        snapshots = [one.snapshot for one in updates if isinstance(one, AddSnapshotUpdate)]
        is_of_topic = table.name()[-1] == RETRY
        if is_of_topic and snapshots and snapshots[0].summary.operation is Operation.OVERWRITE:
            other = table_of(output, RETRY)
            with monkeypatch.context() as patched:
                patched.setattr(SqlCatalog, "commit_table", commit)
                other.append(other.scan(limit=1).to_arrow())
        return commit(catalog, table, requirements, updates)

    with monkeypatch.context() as patched:
        patched.setattr(SqlCatalog, "commit_table", interrupted)
        run(store, output, format="iceberg", new_fields="add", **OPTIONS)
    assert len(files_of(output, "iceberg")) == 4
    assert set(ids(output, "iceberg")) == {0, 1, 2}
    assert len(list((output / "messages/~25RETRY~25g").glob("topic=*/*/*.parquet"))) == 3
    put_round(store, 3)
    run(store, output, format="iceberg", new_fields="add", **OPTIONS)
    assert len(files_of(output, "iceberg")) == 2
    assert set(ids(output, "iceberg")) == {0, 1, 2, 3}


@FORMATS
def test_an_import_has_no_row_twice(form: str, tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    for number in range(3):
        put_round(store, number)
        run(store, output, format=form, compact=3)
    if form == "delta":
        source = open_source(output)
        assert sum(part.rows for batch in source.batches for part in batch) == 6
    else:
        with pytest.raises(StoreFormatError, match="may have rows twice"):
            open_source(output)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compact": 1, "format": "delta"}, "compact: one file cannot be put together"),
        ({"compact": 2}, "compact: files of format parquet are no table"),
        ({"compact": -1, "format": "delta"}, "compact, retain_hours: -1 and 120.0, expected 0 or more"),
        ({"compact": 2, "retain_hours": -0.5, "format": "delta"}, "compact, retain_hours: 2 and -0.5"),
    ],
)
def test_upkeep_without_tables_or_of_single_files_is_refused(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    put_round(tmp_path / "store", 0)
    with pytest.raises(ConfigError, match=message):
        run(tmp_path / "store", tmp_path / "out", **options)
