"""Maps of properties, by what they are as dictionaries."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from reput.kernels.records.property_maps import with_property, without_properties

MAP = pa.map_(pa.string(), pa.string())
NAMES = st.sampled_from(["a", "b", "CLUSTER", "ö"])
ROWS = st.lists(st.none() | st.dictionaries(NAMES, st.text(max_size=3)), max_size=8)


def column_of(rows: list[dict[str, str] | None], begin: int, end: int) -> pa.Array:
    """A slice of the rows, so that offsets do not begin at 0."""
    return pa.array([None if row is None else list(row.items()) for row in rows], MAP)[begin:end]


@given(ROWS, st.integers(0, 3), st.integers(4, 8))
def test_a_property_more_is_at_the_end_of_each_row(rows: list[dict[str, str] | None], begin: int, end: int) -> None:
    column = column_of(rows, begin, end)
    values = [str(i) for i in range(len(column))]
    found = with_property(column, "new", pa.array(values, pa.string()))
    assert found.type == MAP
    expected = [[*(row or {}).items(), ("new", value)] for row, value in zip(rows[begin:end], values, strict=True)]
    assert found.to_pylist() == expected
    assert with_property(None, "new", pa.array(values, pa.string())).to_pylist() == [[("new", one)] for one in values]


@given(ROWS, st.integers(0, 3), st.integers(4, 8), st.sets(NAMES))
def test_names_that_are_left_out_are_gone_and_the_others_stay_in_order(
    rows: list[dict[str, str] | None], begin: int, end: int, names: set[str]
) -> None:
    found = without_properties(column_of(rows, begin, end), names)
    assert found.type == MAP
    assert found.to_pylist() == [
        [(name, value) for name, value in (row or {}).items() if name not in names] for row in rows[begin:end]
    ]
