"""A scan of a LogDataset has the rows of the log that pass the filter, whatever the filter and whoever asks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, reduce
from operator import and_, or_
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reput
from reput.log import point_reads
from reput.log.plans import pruning
from tests.support.examples import examples
from tests.support.shares import sampled

GOLDEN = Path(__file__).parents[1] / "golden" / "5.3.3"
STORES = ["batch", "clean", "killed-undispatched", "transactions"]
COLUMNS = ["topic", "queue_id", "queue_offset", "commit_log_offset", "store_timestamp", "born_timestamp", "tags"]
SQL = {"==": "=", "!=": "<>"}
#: A condition: a column, a comparison and a value, or two conditions and "and" or "or", or "not" and one.
Condition = tuple[Any, ...]


@cache
def rows_of(store: str) -> pa.Table:
    return reput.read_log(GOLDEN / store / "store", COLUMNS).read_all()


@st.composite
def conditions(draw: st.DrawFn, table: pa.Table) -> Condition:
    """Conditions with values of the log."""

    @st.composite
    def comparisons(draw: st.DrawFn) -> Condition:
        column = draw(st.sampled_from(COLUMNS))
        values = [table[column][draw(st.integers(0, table.num_rows - 1))].as_py() for _ in range(2)]
        operation = draw(st.sampled_from(["<", "<=", "==", ">=", ">", "!=", "in", "is null"]))
        if None in values:
            operation = "is null"
        return column, operation, values if operation == "in" else values[0]

    joined = st.recursive(
        comparisons(),
        lambda some: st.one_of(st.tuples(st.sampled_from(["and", "or"]), some, some), st.tuples(st.just("not"), some)),
        max_leaves=4,
    )
    return draw(joined)


def built(condition: Condition, field_of: Callable[[str], Any], is_in: Callable[[Any, list[Any]], Any]) -> Any:
    """The condition as an engine's expression, of its fields."""
    match condition:
        case "not", inner:
            return ~built(inner, field_of, is_in)
        case "and" | "or" as word, *sides:
            return reduce({"and": and_, "or": or_}[word], [built(side, field_of, is_in) for side in sides])
        case column, "is null", _:
            return field_of(column).is_null()
        case column, "in", values:
            return is_in(field_of(column), values)
    column, operation, value = condition
    field = field_of(column)
    return {
        "<": field < value,
        "<=": field <= value,
        "==": field == value,
        ">=": field >= value,
        ">": field > value,
        "!=": field != value,
    }[operation]


def arrow(condition: Condition) -> pc.Expression:
    return built(condition, pc.field, pc.Expression.isin)


def polars(condition: Condition) -> pl.Expr:
    return built(condition, pl.col, pl.Expr.is_in)


def sql(condition: Condition, values: list[Any]) -> str:
    """The condition in DuckDB's words; its values go to `values`."""
    match condition:
        case "not", inner:
            return f"not ({sql(inner, values)})"
        case "and" | "or" as word, *sides:
            return f" {word} ".join(f"({sql(side, values)})" for side in sides)
        case column, "is null", _:
            return f"{column} is null"
        case column, "in", some:
            values += some
            return f"{column} in (?, ?)"
    column, operation, value = condition
    values.append(value)
    return f"{column} {SQL.get(operation, operation)} ?"


@pytest.fixture(autouse=True)
def seeks_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """On logs of half a megabyte hardly a place would be cheaper than the whole."""
    monkeypatch.setattr(pruning, "SEEK_BYTES", -(10**6))
    monkeypatch.setattr(point_reads, "GAP_BYTES", 100)


@sampled(4)
@pytest.mark.parametrize("store", STORES)
@settings(max_examples=examples(20))
@given(data=st.data())
def test_every_engine_has_the_rows_of_the_log_that_pass(store: str, data: st.DataObject) -> None:
    table = rows_of(store)
    condition = data.draw(conditions(table)) if table.num_rows else ("topic", "==", "nothing")
    columns = data.draw(st.lists(st.sampled_from(COLUMNS), min_size=1, unique=True))
    dataset = reput.log_dataset(GOLDEN / store / "store")

    expected = table.filter(arrow(condition)).select(columns)
    assert dataset.to_table(columns, filter=arrow(condition)) == expected
    assert dataset.count_rows(filter=arrow(condition)) == expected.num_rows

    values: list[Any] = []
    query = f"select {', '.join(columns)} from {{}} where {sql(condition, values)}"
    with duckdb.connect() as connection:
        connection.register("scanned", dataset)
        connection.register("read", table)
        found, kept = (connection.sql(query.format(name), params=values) for name in ("scanned", "read"))
        assert found.to_arrow_table() == kept.to_arrow_table()

    first = data.draw(st.integers(0, 20))
    lazy, frame, predicate = dataset.to_polars(), pl.DataFrame(table), polars(condition)
    assert lazy.filter(predicate).select(columns).collect().equals(frame.filter(predicate).select(columns))
    assert lazy.filter(predicate).head(first).collect()[columns].equals(frame.filter(predicate).head(first)[columns])
    assert lazy.head(first).filter(predicate).collect()[columns].equals(frame.head(first).filter(predicate)[columns])
