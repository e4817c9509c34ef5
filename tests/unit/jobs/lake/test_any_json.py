"""JSON of others, whatever its names, values and order: a row is as it was or put aside, and the next run goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import reput
from reput.kernels.records.json_objects import MOST_LEVELS
from tests.support.examples import examples
from tests.support.lake import SMALL, put_topics, run

_ODD = [
    "",
    "id",
    "ID",
    "Id",
    "a",
    "b",
    "a.b",
    "A.B",
    "a.element",
    "a.element.b",
    "a b",
    "a,b",
    "=",
    "\0",
    "a\0b",
    "ß",
    "SS",
]
_NAMES = st.one_of(st.sampled_from(_ODD), st.text(max_size=3))
_LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.integers(-9, 9), st.text(max_size=3),
    st.floats(allow_nan=False, allow_infinity=False), st.just("2026-11-28T01:02:03Z"),
)  # fmt: skip
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_NAMES, inner, max_size=3)),
    max_leaves=8,
)
_OBJECTS = st.one_of(
    st.dictionaries(_NAMES, _VALUES, max_size=4),
    st.dictionaries(st.sampled_from(["id", "ID", "a", "a.b"]), st.integers(0, 3), max_size=2),
)
_BODIES = st.one_of(
    _OBJECTS.map(lambda value: json.dumps(value, ensure_ascii=False).encode()),
    st.sampled_from([b"", b"[]", b"no JSON", b"{}", b"\xff"]),
)
_BATCHES = st.lists(st.lists(_BODIES, min_size=1, max_size=6), min_size=1, max_size=3)


def told(value: Any) -> Any:
    """A value without what has no type: nulls, empty lists, objects without values; None for such a one."""
    if isinstance(value, dict):
        return {name: one for name, inner in value.items() if (one := told(inner)) is not None} or None
    if isinstance(value, list):
        items = [told(inner) for inner in value]
        return items if any(item is not None for item in items) else None
    return value


def rows_of_files(folder: Path) -> dict[int, Any]:
    """Bodies by commit log offset."""
    found = {}
    for path in folder.rglob("*.parquet"):
        rows = parquet.read_table(path, columns=["commit_log_offset", "body"], partitioning=None).to_pylist()
        found |= {row["commit_log_offset"]: row["body"] for row in rows}
    return found


@pytest.mark.parametrize(
    "options",
    [
        {}, {"format": "jsonl"}, {"format": "delta", "new_fields": "add"}, {"format": "iceberg"},
        {"format": "iceberg", "new_fields": "add"},
    ],
    ids=str,
)  # fmt: skip
@settings(max_examples=examples(8))
@given(batches=_BATCHES)
def test_each_body_is_a_row_as_it_was_or_is_put_aside(
    tmp_path_factory: pytest.TempPathFactory, options: dict[str, Any], batches: list[list[bytes]]
) -> None:
    path = tmp_path_factory.mktemp("any")
    put_topics(path / "store", {"sure": [b'{"total": 1}']})  # else an export of no JSON at all is refused
    run(path / "store", path / "out", decode="json", **options)
    for bodies in batches:
        put_topics(path / "store", {"orders": bodies})
        result = run(path / "store", path / "out", decode="json", **options)
        assert (result.messages, result.damages.told, result.lost) == (len(bodies) - result.rejected, (), ())
    table = reput.read_log(path / "store", ["commit_log_offset", "body"]).read_all()
    sent = {row["commit_log_offset"]: row["body"] for row in table.to_pylist()}
    if options.get("format") != "jsonl":
        rows, aside = rows_of_files(path / "out/messages"), rows_of_files(path / "out/rejects")
        assert aside.items() <= sent.items()
        assert rows.keys() == sent.keys() - aside.keys()
        for offset, body in rows.items():
            assert told(body) == told(json.loads(sent[offset]))


@pytest.mark.parametrize("form", ["parquet", "jsonl", "delta", "iceberg"])
@pytest.mark.parametrize("odd", [b'"a\\u0000b": 2', b'"x": {"a": 1, "a\\u0000b": 2}'])
def test_a_name_with_a_zero_byte_ends_no_run(form: str, odd: bytes, tmp_path: Path) -> None:
    """Tables and engines take such a name up to the byte, and `a` twice: the export ended, for all topics."""
    put_topics(
        tmp_path / "store", {"orders": [b'{"a": 1, "x": {"a": 1}}'] * 2 + [b"{" + odd + b"}"], "sure": [b'{"b": 1}']}
    )
    result = run(tmp_path / "store", tmp_path / "out", decode="json", format=form)
    assert (result.messages, result.rejected) == (3, 1)


@pytest.mark.parametrize("form", ["parquet", "jsonl", "delta", "iceberg"])
@pytest.mark.parametrize(("begin", "end"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_objects_within_each_other_are_rows_up_to_a_limit(form: str, begin: bytes, end: bytes, tmp_path: Path) -> None:
    def body(levels: int) -> bytes:
        return b'{"x":' + begin * (levels - 1) + b"1" + end * (levels - 1) + b"}"

    sizes = SMALL | {"max_message_size": 1 << 20, "mapped_file_size_commit_log": 1 << 20}
    with reput.MessageStore.open(tmp_path / "store", **sizes) as store:
        store.put_messages([reput.Message("orders", body(levels)) for levels in (2, 2, 20_000)])
        store.put_messages([reput.Message("deep", body(MOST_LEVELS)), reput.Message("deep", body(MOST_LEVELS + 1))])
    result = run(tmp_path / "store", tmp_path / "out", decode="json", format=form)
    assert (result.messages, result.rejected) == (3, 2)
    assert {one.reason for one in result.first_rejects} == {"more than 32 objects and lists within each other"}
