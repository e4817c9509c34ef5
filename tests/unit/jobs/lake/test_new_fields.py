"""Schemas of tables that grow by new fields of bodies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from reput.errors import ConfigError
from tests.support.iceberg import rows_of_table
from tests.support.lake import put_topics, rows_of, run

FORMATS = pytest.mark.parametrize("form", ["delta", "iceberg"])
OLD = [b'{"id": %d, "at": {"city": "Bonn"}, "items": [{"sku": "a"}]}' % n for n in range(5)]
NEW = [
    b'{"id": 5, "coupon": "x"}',
    b'{"id": 6, "at": {"city": "Rome", "zip": 1}, "items": [{"sku": "b", "count": 2}]}',
    b'{"id": 7, "coupon": 8}',
    b'{"id": 8, "ID": 9}',
    b'{"id": "nine", "coupon": "y"}',
]


def table_bodies(output: Path, form: str, topic: str = "orders") -> list[dict[str, Any]]:
    if form == "iceberg":
        table = rows_of_table(output, f"messages_{topic}")
    else:
        table = DeltaTable(output / "messages" / topic).to_pyarrow_table().sort_by("commit_log_offset")
    return table["body"].to_pylist()


@FORMATS
def test_a_table_gets_a_column_for_a_new_field_on_any_level(form: str, tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put_topics(store, {"orders": OLD, "users": [b'{"name": "n"}']})
    run(store, output, decode="json", format=form)
    put_topics(store, {"orders": NEW})
    result = run(store, output, decode="json", format=form, new_fields="add")
    assert (result.messages, result.rejected) == (2, 3)
    assert result.body_schemas["orders"] == (
        "id bigint, at struct<city: string, zip: bigint>, "
        "items array<struct<sku: string, count: bigint>>, coupon string"
    )
    rows = table_bodies(output, form)
    assert rows[0] == {
        "id": 0,
        "at": {"city": "Bonn", "zip": None},
        "items": [{"sku": "a", "count": None}],
        "coupon": None,
    }
    assert [(row["id"], row["coupon"]) for row in rows[5:]] == [(5, "x"), (6, None)]
    assert rows[6]["at"] == {"city": "Rome", "zip": 1}
    assert rows[6]["items"] == [{"sku": "b", "count": 2}]
    rejected = [(row["body"], row["reason"]) for row in rows_of(output, "rejects")]
    assert [body for body, _ in rejected] == NEW[2:]
    assert "field ID" in rejected[1][1]
    assert table_bodies(output, form, "users") == [{"name": "n"}]


@FORMATS
def test_what_a_schema_has_got_stays_without_the_option(form: str, tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put_topics(store, {"orders": [b'{"id": 0}']})
    run(store, output, decode="json", format=form, new_fields="add")
    put_topics(store, {"orders": [b'{"id": 1, "coupon": "x"}']})
    run(store, output, decode="json", format=form, new_fields="add")
    put_topics(store, {"orders": [b'{"coupon": "y"}', b'{"gift": true}']})
    result = run(store, output, decode="json", format=form)
    assert (result.messages, result.rejected) == (1, 1)
    put_topics(store, {"orders": [b'{"gift": true}']})
    run(store, output, decode="json", format=form, new_fields="add")
    assert table_bodies(output, form) == [
        {"id": 0, "coupon": None, "gift": None},
        {"id": 1, "coupon": "x", "gift": None},
        {"id": None, "coupon": "y", "gift": None},
        {"id": None, "coupon": None, "gift": True},
    ]


def test_a_topic_without_json_gets_columns_when_it_has(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put_topics(store, {"orders": [b'{"id": 0}'], "notes": [b"note"]})
    run(store, output, decode="json", format="iceberg", new_fields="add")
    put_topics(store, {"notes": [b'{"text": "late"}']})
    assert run(store, output, decode="json", format="iceberg", new_fields="add").rejected == 0
    assert table_bodies(output, "iceberg", "notes") == [{"text": "late"}]


@pytest.mark.parametrize("options", [{"decode": "json"}, {"format": "delta"}, {"format": "csv", "decode": "json"}])
def test_new_fields_without_tables_of_json_bodies_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    put_topics(tmp_path / "store", {"orders": [b'{"id": 0}']})
    with pytest.raises(ConfigError, match="tables of JSON bodies get them"):
        run(tmp_path / "store", tmp_path / "out", new_fields="add", **options)


def test_a_given_schema_does_not_grow(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put_topics(store, {"orders": OLD})
    run(store, output, decode="json", format="delta", schema={"orders": "id bigint"}, new_fields="add")
    assert pa.schema(DeltaTable(output / "messages/orders").schema()).field("body").type.num_fields == 1
