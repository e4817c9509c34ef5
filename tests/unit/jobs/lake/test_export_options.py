"""Options of an export: wrong ones are refused, and some are the same in every run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reput.errors import ConfigError
from reput.jobs.lake import ExportOptions
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
        ({"split_bytes": 0}, "split_bytes 0: expected a whole number, 1 or more"),
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


_NO_NUMBER: list[object] = [None, "3", True, [1], float("nan")]
_BAD: dict[str, list[object]] = {
    "topics": ["orders", 5, True, [5], b"orders"],
    "columns": ["body", 5, True, [None]],
    "decode": [None, 5, ["json"]],
    "format": [None, 5, ["delta"]],
    "namespace": [None, 5],
    "damaged": [None, True, ["skip"]],
    "new_fields": [None, True],
    "split_bytes": [*_NO_NUMBER, 1.5],
    "commit_bytes": [*_NO_NUMBER, 1.5],
    "target_file_bytes": [*_NO_NUMBER, 1.5],
    "compact": [*_NO_NUMBER, 2.0],
    "retain_hours": _NO_NUMBER,
    "fail_on_data_loss": [None, 0, "no"],
    "strict": [None, 1, "yes"],
}


@pytest.mark.parametrize("name", _BAD)
def test_an_option_of_another_type_is_refused_by_its_name(name: str) -> None:
    for value in _BAD[name]:
        with pytest.raises(ConfigError, match=f"^{name} "):
            ExportOptions(**{name: value})  # type: ignore[arg-type]
