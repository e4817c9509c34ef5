"""A field that is named as a word of SQL is told, with its quotes, where DuckDB stops at it."""

from __future__ import annotations

from pathlib import Path

import pytest

import reput
from reput import Message
from reput.errors import ConfigError
from reput.jobs.query import Source, query_sql


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fields") / "store"
    with reput.MessageStore.open(path, small=True) as opened:
        opened.put_message(Message("items", b'{"order": 1, "end": 2, "total": 5}'))
        opened.wait_dispatched()
    return path


@pytest.mark.parametrize(
    ("sql", "field"),
    [
        ("select order, total from items", "order"),
        ("select total from items where Order > 1", "order"),
        ("select end from items", "end"),
        ("select total from items wher order = 1", "order"),
    ],
)
def test_a_field_that_is_a_word_of_sql_is_told_with_its_quotes(store: Path, sql: str, field: str) -> None:
    with pytest.raises(ConfigError, match=f'; if the field {field} is meant, it stands in quotes: "{field}"$'):
        query_sql(Source(path=store), sql)


@pytest.mark.parametrize("sql", ["select total from items group total", "selec total from items", 'select "order'])
def test_another_fault_of_a_statement_has_no_such_hint(store: Path, sql: str) -> None:
    with pytest.raises(ConfigError) as raised:
        query_sql(Source(path=store), sql)
    assert "is meant" not in str(raised.value)
