"""SQL92 expressions over columns against the same expressions one message at a time."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from reput.filter.java_numbers import NumberKind, numbers_of, parse_number
from tests.oracles import sql92
from tests.support.expressions import MESSAGES, drawn, outcome

NUMBERS = st.one_of(
    st.integers(-(1 << 64), 1 << 64).map(str),
    st.floats().map(repr),
    st.text("0123456789.eE+-xfF ", max_size=24),
    st.text(max_size=4),
)
VALUES = st.one_of(st.sampled_from(["x", "5", "3", "east", "true", "FALSE"]), NUMBERS.filter(bool))
LISTS = st.lists(st.dictionaries(st.sampled_from(["a", "b", "c"]), VALUES), min_size=1, max_size=40)
EXPRESSIONS = st.integers(0, 1 << 32).map(lambda seed: drawn(seed, 1)[0])


@given(EXPRESSIONS, LISTS)
def test_columns_give_what_one_message_after_the_other_gives(expression: str, messages: list[dict[str, str]]) -> None:
    assert outcome(expression, messages) == sql92.evaluate(expression, messages)


@given(st.lists(st.none() | NUMBERS, max_size=40), st.sampled_from(NumberKind))
def test_a_column_of_numbers_is_each_number(texts: list[str | None], kind: NumberKind) -> None:
    values, good = numbers_of(pa.array(texts, pa.string()), kind)
    expected = [None if text is None else parse_number(text, kind) for text in texts]
    assert [
        value if is_good else None for value, is_good in zip(values.tolist(), good.tolist(), strict=True)
    ] == expected
    assert values.dtype == np.int64


def test_the_plain_twin_gives_rocketmqs_results() -> None:
    golden = json.loads((Path(__file__).parents[1] / "golden/filters-5.3.3.json").read_text())["expressions"]
    for expression in drawn(92, 300):
        assert sql92.evaluate(expression, list(MESSAGES)) == golden[expression], expression
