"""Arguments of what reads a log: what is none is refused when it is given, by an error that names it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import reput
from reput.errors import ConfigError
from reput.jobs.query.query_job import find_messages
from reput.jobs.query.sql_job import Source, query_sql


class Other:
    """No text, number or path, and not iterable."""


BAD: dict[str, list[object]] = {
    "path": [None, 5, "", b"x", Other()],
    "columns": [5, "body", [5], [None], ["nope"], [], Other()],
    "topics": [5, "orders", [5], [None], b"orders", Other()],
    "keys": [5, "k", [5], b"k", Other()],
    "begin": ["x", 1.5, float("nan"), True, b"", Other()],
    "end": ["x", 1.5, float("nan"), True, b"", Other()],
    "until": ["x", None, 5, []],
    "raw_body": [5, None, "no", Other()],
    "commit_log_path": [5, "", "a\0b", "\ud800", ["a"], Other()],
    "store": [5, b"x", ["x"], Other()],
    "mode": ["x", None, 5, []],
    "files": [None, 5, "x"],
    "statistics": [5, "", "a\0b", Other()],
    "clock_margin_ms": [-1, 1.5, "x", True, float("nan")],
    "schemas": [5, "x", {"orders": 5}, {5: "x"}],
    "kept": [5, "x"],
    "progress": [5, "x"],
    "damaged": ["x", None, 5],
    "sql": [5, None, b"select 1", ""],
}


def query(path: Any, sql: Any = "select 1", **options: Any) -> object:
    return query_sql(Source(path=path, **options), sql)


OF = {
    reput.read_log: ["path", "columns", "topics", "keys", "begin", "end", "until", "raw_body", "commit_log_path",
                     "store", "mode", "files"],
    reput.log_dataset: ["path", "topics", "keys", "raw_body", "commit_log_path", "store", "statistics",
                        "clock_margin_ms", "files"],
    find_messages: ["path", "columns", "topics", "keys", "begin", "end", "commit_log_path", "clock_margin_ms", "kept",
                    "progress", "files"],
    query: ["path", "topics", "begin", "end", "schemas", "commit_log_path", "kept", "progress", "damaged", "sql"],
}  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("arguments") / "store"
    with reput.MessageStore.open(path) as opened:
        opened.put_message(reput.Message("orders", b'{"a": 1}', keys=["k"]))
    return path


@pytest.mark.parametrize(("function", "name"), [(function, name) for function, names in OF.items() for name in names])
def test_what_is_no_argument_is_refused_when_it_is_given(
    store: Path, function: Callable[..., object], name: str
) -> None:
    function(store)
    for value in BAD[name]:
        with pytest.raises(ConfigError, match=name):
            function(**{"path": store, name: value})
