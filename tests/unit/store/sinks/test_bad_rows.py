"""Rows that were put aside stay: no sink replaces or removes those of another, whatever the names and stores are."""

from __future__ import annotations

import os
from itertools import permutations
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from reput.config.message_store import MessageStoreConfig
from reput.errors import StoreError
from reput.files import DISK
from reput.store.sinks.bad_rows import AsideFile, BadRows, discard, publish
from reput.store.sinks.import_sink import ImportSink
from reput.store.sinks.staging_folder import name_in_store
from tests.support.invariants import SMALL

#: Names that begin with each other, or end in what stands behind a name.
NAMES = ["orders", "orders-eu", "orders-1", "orders-1-2", "orders-1-2-3", "orders.x", "orders.xx"]


def aside(folder: Path, begin: str, text: str) -> list[AsideFile]:
    bad = BadRows(DISK, os.path.join(folder, f"{begin}-0-1"))
    bad.put_aside(pa.record_batch({"body": [text]}), "a reason")
    return list(bad.close())


def bodies(folder: Path) -> list[str]:
    paths = [path for path in folder.iterdir() if not path.name.startswith("_")]
    return sorted(text for path in paths for text in parquet.read_table(path)["body"].to_pylist())


def test_a_sink_discards_its_own_files_alone(tmp_path: Path) -> None:
    sinks = [(name, store) for name in NAMES for store in ("/stores/a", "/stores/b")]
    for own, other in permutations(sinks, 2):
        begins = [f"_{name_in_store(name, store)}" for name, store in (own, other)]
        kept = aside(tmp_path, begins[1], "row")
        aside(tmp_path, begins[0], "row")
        discard(DISK, str(tmp_path), begins[0])
        assert [str(path) for path in tmp_path.iterdir()] == [one.path for one in kept]
        discard(DISK, str(tmp_path), begins[1])
        assert list(tmp_path.iterdir()) == []


def test_a_batch_that_is_published_again_is_there_once_and_other_rows_beside_it(tmp_path: Path) -> None:
    for text in ("one", "one", "two", "one", "two", "three"):
        publish(DISK, aside(tmp_path, "_orders", text), "orders-0-0")
    assert bodies(tmp_path) == ["one", "three", "two"]
    assert len(list(tmp_path.iterdir())) == 3


def test_what_cannot_be_published_is_still_there(tmp_path: Path) -> None:
    (tmp_path / "orders-0-0-0.parquet/x").mkdir(parents=True)
    written = aside(tmp_path, "_orders", "one")
    with pytest.raises(StoreError, match="folder"):
        publish(DISK, written, "orders-0-0")
    assert parquet.read_table(written[0].path)["body"].to_pylist() == ["one"]


def test_a_longer_file_that_a_kill_has_left_is_no_part_of_the_next_one(tmp_path: Path) -> None:
    aside(tmp_path, "_orders", "x" * 10_000)
    (written,) = aside(tmp_path, "_orders", "y")
    assert parquet.read_table(written.path)["body"].to_pylist() == ["y"]


def test_imports_of_two_stores_share_a_folder(tmp_path: Path) -> None:
    config, rows = MessageStoreConfig.from_mapping(SMALL), pa.record_batch({"topic": ["t" * 300], "body": [b"x"]})
    path = str(tmp_path / "aside")
    sinks = [
        ImportSink(tmp_path / name, config, "daily", bad_rows_path=path, files=DISK) for name in ("first", "second")
    ]
    with sinks[0] as first, sinks[1]:
        staged = first.stage("0-0", iter([rows]), 0, "file")
        ImportSink(tmp_path / "third", config, "daily", bad_rows_path=path, files=DISK).__exit__()
        assert first.commit("source", 0, [staged]) == 0
    assert len(list((tmp_path / "aside").iterdir())) == 1
