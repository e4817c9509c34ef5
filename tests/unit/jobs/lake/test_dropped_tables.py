"""A table that somebody drops with its files is left out, with the reason; the others go on."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from reput.jobs.lake import Export
from tests.support.iceberg import catalog_of, names_of_tables, rows_of_table
from tests.support.lake import put_topics, rows_of, run

FAULT = r"messages[/_]orders: the (Iceberg |Delta )?table (lacks commits|cannot be read).*(the other tables go on)"


def put(store: Path, number: int) -> None:
    put_topics(store, {topic: [b'{"id": %d}' % number] for topic in ("orders", "users")})


def export(store: Path, output: Path, form: Any, **more: Any) -> Export:
    return run(store, output, format=form, decode="json", columns=["body"], **more)


def ids(output: Path, form: str, topic: str) -> list[int]:
    """Numbers that the table of a topic has."""
    if form == "iceberg":
        bodies = rows_of_table(output, f"messages_{topic}")["body"].to_pylist()
    elif form == "delta":
        bodies = DeltaTable(output / "messages" / topic).to_pyarrow_table()["body"].to_pylist()
    else:
        bodies = [row["body"] for row in rows_of(output / "messages", topic)]
    return sorted(body["id"] for body in bodies)


def drop(output: Path, form: str, what: str) -> None:
    """Drop the table of orders: all of it, only its files with their metadata, or only what its log or catalog says."""
    folder = output / "messages/orders"
    if form == "iceberg" and what != "files":
        with catalog_of(output) as catalog:
            catalog.drop_table("reput.messages_orders")
    if what != "names":
        shutil.rmtree(folder)
    elif form == "delta":
        shutil.rmtree(folder / "_delta_log")


@pytest.mark.parametrize(("form", "what"), [("delta", "all"), ("iceberg", "all"), ("iceberg", "files")])
@pytest.mark.parametrize("compact", [0, 2])
def test_a_dropped_table_is_left_out_and_the_others_go_on(form: str, what: str, compact: int, tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put(store, 0)
    export(store, output, form)
    drop(output, form, what)
    result = export(store, output, form)  # nothing is new
    assert (result.messages, list(result.table_faults)) == (0, ["messages/orders"])
    for number in (1, 2):
        put(store, number)
        result = export(store, output, form, compact=compact)
        assert (result.messages, list(result.table_faults)) == (2, ["messages/orders"])
        [fault] = result.findings
        assert re.search(FAULT, fault)
        assert ids(output, form, "users") == list(range(number + 1))
    assert ids(output, "parquet", "orders") == [1, 2]
    if form == "iceberg" and what == "all":
        assert "messages_orders" not in names_of_tables(output)
    if what == "files":  # the catalog still leads there
        assert list(export(store, output, form, fail_on_data_loss=False).table_faults) == ["messages/orders"]
        with catalog_of(output) as catalog:
            catalog.drop_table("reput.messages_orders")
    put(store, 3)
    [fault] = export(store, output, form, fail_on_data_loss=False).findings
    assert fault.endswith("it goes on without")
    assert ids(output, form, "orders") == [1, 2, 3]
    put(store, 4)
    assert export(store, output, form).findings == []
    assert ids(output, form, "orders") == [1, 2, 3, 4]
    assert ids(output, form, "users") == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_a_table_whose_files_are_kept_is_made_anew_with_all_of_them(form: str, tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    for number in range(2):
        put(store, number)
        export(store, output, form)
    drop(output, form, "names")
    put(store, 2)
    assert export(store, output, form).findings == []
    assert ids(output, form, "orders") == [0, 1, 2]


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_a_folder_without_a_table_may_go(form: Any, tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put(store, 0)
    export(store, output, form)
    drop(output, form, "all")
    put(store, 1)
    assert export(store, output, form).findings == []
    names = sorted(path.parent.parent.name for path in (output / "messages").rglob(f"*.{form}"))
    assert names == ["topic=orders", "topic=users", "topic=users"]


def test_a_delta_table_whose_log_is_damaged_is_left_out(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put(store, 0)
    export(store, output, "delta")
    for path in (output / "messages/orders/_delta_log").glob("*.json"):
        path.write_bytes(b"{")
    put(store, 1)
    [fault] = export(store, output, "delta").findings
    assert re.search(FAULT, fault)
    assert ids(output, "delta", "users") == [0, 1]
