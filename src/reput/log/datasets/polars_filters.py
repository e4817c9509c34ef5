"""A filter of polars as a filter of Arrow, for pruning alone: polars applies its filters itself, too."""

from __future__ import annotations

import operator

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from reput.kernels.records.record_batch import SCHEMA

#: Comparisons, and the same with the sides exchanged.
_COMPARISONS = {
    operator.gt: operator.lt,
    operator.ge: operator.le,
    operator.lt: operator.gt,
    operator.le: operator.ge,
    operator.eq: operator.eq,
}
#: What a value must be to be compared with a column of a type. A time in other units would have to be rounded.
_TYPES = {
    SCHEMA.field("topic").type: pl.String,
    SCHEMA.field("store_timestamp").type: pl.Datetime("us", "UTC"),
    pa.int32(): pl.Int64,
    pa.int64(): pl.Int64,
}


def arrow_filter(predicate: pl.Expr) -> pc.Expression | None:
    """Filter that every row passes that passes the predicate; None if nothing is known.

    An expression of polars tells its operands, but not its operation: the operation is the one that makes the same
    expression of these operands.
    """
    operands = predicate.meta.pop()[::-1]
    if len(operands) == 3:
        value, low, high = operands
        return (
            arrow_filter((value >= low) & (value <= high)) if value.is_between(low, high).meta.eq(predicate) else None
        )
    if len(operands) != 2:
        return None
    left, right = operands
    if (left & right).meta.eq(predicate):
        known = [side for side in map(arrow_filter, operands) if side is not None]
        return operator.and_(*known) if len(known) == 2 else next(iter(known), None)
    if (left | right).meta.eq(predicate):
        first, second = map(arrow_filter, operands)
        return None if first is None or second is None else first | second
    return _comparison(predicate, left, right)


def _comparison(predicate: pl.Expr, left: pl.Expr, right: pl.Expr) -> pc.Expression | None:
    """A comparison of a column with a value, or with a list of values; None for any other expression."""
    if left.is_in(right).meta.eq(predicate):
        values = _values(left, right)
        return None if values is None else pc.field(left.meta.output_name()).isin(values)
    for compare, exchanged in _COMPARISONS.items():
        if compare(left, right).meta.eq(predicate):
            if left.meta.is_literal():
                left, right, compare = right, left, exchanged
            values = _values(left, right)
            return None if values is None or len(values) != 1 else compare(pc.field(left.meta.output_name()), values[0])
    return None


def _values(column: pl.Expr, literal: pl.Expr) -> pa.Array | None:
    """Values of a literal for the comparison with a column, without nulls; None if they are of another type."""
    if not column.meta.is_column() or not literal.meta.is_literal():
        return None
    kind = SCHEMA.field(column.meta.output_name()).type
    values = pl.select(literal).to_series()
    if values.dtype == pl.List:
        values = values.explode()
    if values.dtype.is_integer() and values.dtype not in (pl.Int128, pl.UInt64):
        values = values.cast(pl.Int64)
    if values.dtype != _TYPES.get(kind):
        return None
    found = values.drop_nulls().to_arrow()
    return found.cast(kind) if values.dtype == pl.String else found
