"""Translate Spark's pushed filters to `Wanted`, by which the log is pruned. Spark applies all filters itself, too."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from reput.log.plans.pruning import Range, Wanted
from reput.spark.compat import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Column -> field of Wanted with values of the column, or with a range.
_VALUES = {"topic": "topics", "queue_id": "queue_ids"}
_RANGES = {
    "queue_offset": "queue_offset",
    "commit_log_offset": "commit_log_offset",
    "store_timestamp": "store_ms",
    "born_timestamp": "born_ms",
}


def narrowed(wanted: Wanted, filters: Iterable[Filter]) -> Wanted:
    """Narrow `wanted` by filters that all rows must pass. Other kinds of filters narrow nothing."""
    for pushed in filters:
        if not isinstance(
            pushed, EqualTo | EqualNullSafe | In | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual
        ):
            continue
        column = ".".join(pushed.attribute)
        values = [value for value in (pushed.value if isinstance(pushed, In) else [pushed.value]) if value is not None]
        if not values:
            continue
        changes: dict[str, Any] = {}
        if column in _VALUES and isinstance(pushed, EqualTo | EqualNullSafe | In):
            before = getattr(wanted, _VALUES[column])
            some = frozenset(values) if before is None else before & frozenset(values)
            changes = {_VALUES[column]: some}
        elif column in _RANGES:
            low, high = min(map(_floor, values)), max(map(_ceiling, values))
            within: Range = getattr(wanted, _RANGES[column]).within(
                None if isinstance(pushed, LessThan | LessThanOrEqual) else low,
                None if isinstance(pushed, GreaterThan | GreaterThanOrEqual) else high,
            )
            changes = {_RANGES[column]: within}
        wanted = replace(wanted, **changes)
    return wanted


def _floor(value: int | datetime) -> int:
    """Number as it is, or time in ms since 1970, rounded down."""
    return value if isinstance(value, int) else (value - _EPOCH) // timedelta(milliseconds=1)


def _ceiling(value: int | datetime) -> int:
    return value if isinstance(value, int) else -((_EPOCH - value) // timedelta(milliseconds=1))
