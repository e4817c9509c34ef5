"""Each topic has a schema of its own, which is given, or inferred once and kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from reput.errors import ConfigError
from tests.support.lake import NAMES, TOPICS, check_files, log_rows, put, put_topics, rows_of, run


def rejected(output: Path) -> list[tuple[str, bytes, str]]:
    return [(row["topic"], row["body"], row["reason"]) for row in rows_of(output, "rejects")]


def test_an_inferred_schema_holds_for_the_runs_to_come(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put(store, 0, 10, body=b'{"id": %d}')
    run(store, output, decode="json")
    put(store, 10, 10, body=b'{"id": "x%d"}')
    result = run(store, output, decode="json")
    assert (result.messages, result.rejected) == (0, 10)
    assert result.body_schemas == dict.fromkeys(NAMES, "id bigint")


@pytest.mark.parametrize("options", [{}, {"split_bytes": 700, "target_file_bytes": 1}, {"commit_bytes": 1}])
def test_each_topic_has_a_schema_of_its_own(tmp_path: Path, options: dict[str, Any]) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put_topics(store, TOPICS)
    result = run(store, output, decode="json", columns=["body"], **options)
    assert result.body_schemas == {
        "orders": "id bigint, total double",
        "users": "id string, address struct<city: string>",
    }
    for topic in ("orders", "users"):
        table = ds.dataset(output / "messages" / topic).to_table().sort_by("commit_log_offset")
        assert table["body"].to_pylist() == [json.loads(body) for body in TOPICS[topic][:-1]]
    assert [body for _, body, _ in rejected(output)] == [
        *TOPICS["notes"],
        *(TOPICS[t][-1] for t in ("orders", "users")),
    ]
    assert (result.messages, result.rejected) == (100, 7)
    assert sorted(result.findings)[0].startswith("topic notes: 5 bodies could not be decoded; rejects/ has each")
    row = rows_of(output, "rejects")[-1]
    names = ["commit_log_offset", "queue_id", "queue_offset", "reason", "body", "topic"]
    assert [name for name in row if name in names] == names
    assert [one["topic"] for one in log_rows(store) if one["commit_log_offset"] == row["commit_log_offset"]] == [
        "users"
    ]
    check_files(output)
    again = run(store, output, decode="json", columns=["body"], **options)
    assert (again.messages, again.rejected, again.findings) == (0, 0, [])


def test_a_topic_that_comes_later_gets_its_schema_then(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put_topics(store, {"orders": TOPICS["orders"][:9]})
    run(store, output, decode="json")
    put_topics(store, {"users": TOPICS["users"][:50], "orders": TOPICS["orders"][9:50]})
    result = run(store, output, decode="json")
    assert (result.messages, result.rejected) == (91, 0)
    assert result.body_schemas == {
        "orders": "id bigint, total double",
        "users": "id string, address struct<city: string>",
    }
    assert rows_of(output / "messages", "users")[-1]["body"] == {"id": "u-49", "address": {"city": "Bonn"}}


def test_a_value_that_an_inferred_schema_does_not_know_is_rejected_and_a_given_one_leaves_it_out(
    tmp_path: Path,
) -> None:
    store = tmp_path / "store"
    put_topics(store, {"orders": [b'{"id": %d}' % n for n in range(5)]})
    for name, schema in (("inferred", None), ("given", {"orders": "id bigint"}), ("of all", "id bigint")):
        run(store, tmp_path / name, decode="json", schema=schema)
    put_topics(store, {"orders": [b'{"id": 5, "coupon": null}', b'{"id": 6, "coupon": "x"}']})
    for name, schema in (("inferred", None), ("given", {"orders": "id bigint"}), ("of all", "id bigint")):
        run(store, tmp_path / name, decode="json", schema=schema)
    assert [row["body"]["id"] for row in rows_of(tmp_path / "inferred")] == [0, 1, 2, 3, 4, 5]
    assert rejected(tmp_path / "inferred") == [
        ("orders", b'{"id": 6, "coupon": "x"}', "a value in the field coupon, which the schema lacks")
    ]
    for name in ("given", "of all"):
        assert [row["body"] for row in rows_of(tmp_path / name)] == [{"id": n} for n in range(7)]
        assert rejected(tmp_path / name) == []


def test_a_schema_may_be_given_for_some_topics(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put_topics(store, TOPICS)
    schema = {"users": pa.schema([("id", pa.string())])}
    result = run(store, output, decode="json", schema=schema)
    assert result.body_schemas == {"orders": "id bigint, total double", "users": "id string"}
    with pytest.raises(ConfigError, match=r"schema was .*users=id string.* and is null"):
        run(store, output, decode="json")
    assert run(store, output, decode="json", schema={"users": "id string"}).messages == 0


def test_json_where_no_topic_has_any_is_refused(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put_topics(store, {"notes": TOPICS["notes"]})
    with pytest.raises(ConfigError, match="no body of the sample is JSON"):
        run(store, output, decode="json")
    assert run(store, output).messages == 5
