"""Options of an export: wrong ones are refused, and some are the same in every run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reput.errors import ConfigError
from tests.support.lake import put, run

#: Avro's type of 32 bits, which Iceberg lacks.
TIME_OF_DAY = """{"type": "record", "name": "r", "fields": [
    {"name": "at", "type": {"type": "int", "logicalType": "time-millis"}}]}"""


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"decode": "json", "schema": "id boolean"}, "fits none of the bodies that were tried, 10"),
        ({"decode": "json", "schema": "id"}, "expected a type"),
        ({"decode": "xml"}, "none of raw, utf8, json, avro, protobuf"),
        ({"decode": "json", "columns": ["keys"]}, "columns leave them out"),
        ({"columns": ["key"]}, "did you mean 'keys'"),
        ({"format": "orc"}, "none of parquet, delta, iceberg, csv, jsonl"),
        ({"format": "delta", "catalog": "shop"}, "of Iceberg tables, and the format is delta"),
        ({"namespace": "shop"}, "of Iceberg tables, and the format is parquet"),
        ({"format": "delta", "decode": "json", "schema": "id bigint, ID bigint"}, "does not tell 'ID' from 'id'"),
        (
            {"format": "delta", "decode": "json", "schema": "id bigint, a array<struct<b int, B int>>"},
            "does not tell 'B' from 'b'",
        ),
        ({"format": "iceberg", "decode": "json", "schema": {"orders": "a int, A int"}}, "does not tell 'A' from 'a'"),
        ({"format": "iceberg", "decode": "avro", "schema": TIME_OF_DAY}, "Iceberg lacks a type"),
        ({"decode": "utf8", "schema": {"orders": "a int"}}, "bodies decoded as utf8 have none"),
        ({"split_bytes": 0}, "no size in bytes"),
    ],
)
def test_a_wrong_option_is_refused_and_the_next_try_may_have_another(
    options: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put(store, 0, 10)
    with pytest.raises(ConfigError, match=reason):
        run(store, output, **options)
    assert not output.exists() or not list(output.iterdir())
    assert run(store, output).messages == 10


@pytest.mark.parametrize("changed", [{"topics": ["orders"]}, {"decode": "utf8"}, {"columns": ["body"]}])
def test_an_option_that_the_runs_before_had_otherwise_is_refused(changed: dict[str, Any], tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put(store, 0, 10)
    run(store, output)
    with pytest.raises(ConfigError, match=f"{next(iter(changed))} was"):
        run(store, output, **changed)
    assert run(store, output, split_bytes=1000, target_file_bytes=1).messages == 0
