"""Conditions of a query that can prune, out of a filter of Arrow: Arrow itself says which values a filter leaves out.

An expression of Arrow can be evaluated and printed, but not taken apart. It can be asked whether a row of which
something is known may pass: a dataset leaves out fragments whose guarantees contradict a filter. So a bound is found by
bisection, and a filter that Arrow cannot simplify bounds nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import fs

from reput.errors import StoreError
from reput.formats.java import INT64_MAX, INT64_MIN
from reput.kernels.records.record_batch import SCHEMA
from reput.log.directory import StoreDirectory
from reput.log.plans.pruning import Range, Wanted
from reput.log.selection import milliseconds

#: Column -> field of Wanted with a range of the column.
_INTEGERS = {"queue_offset": "queue_offset", "commit_log_offset": "commit_log_offset"}
_TIMES = {"store_timestamp": "store_ms", "born_timestamp": "born_ms"}
#: The times that a column can have; other times are null there.
_FIRST_MS = milliseconds("first", datetime.min.replace(tzinfo=UTC))
_LAST_MS = milliseconds("last", datetime.max.replace(microsecond=0, tzinfo=UTC)) + 999
_FORMAT = ds.ParquetFileFormat()  # of files that are never opened
_NO_FILES = fs.LocalFileSystem()
#: A text in an expression that Arrow prints.
_TEXT = re.compile(r'"([^"\\]*)"')


def narrowed(
    wanted: Wanted, expression: pc.Expression, directory: StoreDirectory, schema: pa.Schema = SCHEMA
) -> Wanted:
    """Narrow `wanted` by a filter that all rows must pass.

    Args:
        schema: all columns that the filter may name; a log's are as in `SCHEMA`.

    Raises pyarrow.ArrowInvalid for a filter that does not fit the columns.
    """
    named, filtered = fields_of(expression, SCHEMA.names), _Filter(expression, schema)
    for column, name in _INTEGERS.items():
        if column in named:
            bounds = filtered.bounds(column, INT64_MIN, INT64_MAX, _integer)
            wanted = replace(wanted, **{name: getattr(wanted, name).within(*bounds)})
    for column, name in _TIMES.items():
        if column in named and not filtered.may_pass([pc.field(column).is_null()]):
            bounds = filtered.bounds(column, _FIRST_MS, _LAST_MS, _time)
            wanted = replace(wanted, **{name: getattr(wanted, name).within(*bounds)})
    if "unique_key" in named and (keys := filtered.texts("unique_key")) is not None:
        wanted = replace(wanted, keys=keys if wanted.keys is None else wanted.keys & keys)
    if {"topic", "queue_id"} & set(named):
        try:
            queues = directory.queues()
        except StoreError:  # of derived files, which may be damaged: all is read
            return wanted
        known = {queue.topic for queue in queues} if "topic" in named else set()
        texts = filtered.texts("topic") if known else None
        topics = filtered.values("topic", known) if texts is None else texts & known
        if topics is not None:
            wanted = replace(wanted, topics=topics if wanted.topics is None else wanted.topics & topics)
        ids = {str(queue.queue_id) for queue in queues} if "queue_id" in named else set()
        queue_ids = filtered.values("queue_id", ids)
        if queue_ids is not None:
            wanted = replace(wanted, queue_ids=frozenset(map(int, queue_ids)))
    return wanted


def fields_of(expression: pc.Expression, names: Sequence[str]) -> list[str]:
    """Columns of these names that an expression may use: it shows them only as text."""
    text = str(expression)
    return [name for name in names if name in text]


class _Filter:
    """Filter of Arrow, asked what rows with known values may do."""

    def __init__(self, expression: pc.Expression, schema: pa.Schema) -> None:
        self._expression, self._schema = expression, schema

    def may_pass(self, guarantees: Sequence[pc.Expression]) -> list[int]:
        """Numbers of the guarantees that a row may keep and pass the filter, as far as Arrow can tell."""
        fragments = [
            _FORMAT.make_fragment(str(number), _NO_FILES, partition_expression=guarantee)
            for number, guarantee in enumerate(guarantees)
        ]
        dataset = ds.FileSystemDataset(fragments, self._schema, _FORMAT, _NO_FILES)
        return [int(fragment.path) for fragment in dataset.get_fragments(filter=self._expression)]

    def values(self, column: str, values: set[str]) -> frozenset[str] | None:
        """Values of a column that may pass; None if all may."""
        ordered = sorted(values)
        kind = SCHEMA.field(column).type
        passing = self.may_pass([pc.field(column) == pa.scalar(value).cast(kind) for value in ordered])
        return None if len(passing) == len(ordered) else frozenset(ordered[number] for number in passing)

    def texts(self, column: str) -> frozenset[str] | None:
        """The texts of a column that may pass, if the filter names all of them; None if others may pass."""
        field, texts = pc.field(column), sorted(set(_texts_of(self._expression)))
        if not texts:
            return None
        between = [(field > low) & (field < high) for low, high in pairwise(texts)]
        if self.may_pass([field.is_null(), field < texts[0], *between, field > texts[-1]]):
            return None
        passing = self.may_pass([field == text for text in texts])
        return frozenset(texts[number] for number in passing)

    def bounds(self, column: str, least: int, most: int, scalar: Callable[[int], pa.Scalar]) -> Range:
        """Range of a column outside of which no row passes; `Range()` without bounds."""
        field = pc.field(column)
        low, high = least, most
        if not self.may_pass([field <= scalar(least)]):
            low = _bisected(least, most, lambda value: not self.may_pass([field < scalar(value)]))
        if not self.may_pass([field >= scalar(most)]):
            high = -_bisected(-most, -least, lambda value: not self.may_pass([field > scalar(-value)]))
        return Range(INT64_MIN if low == least else low, INT64_MAX if high == most else high)


def _texts_of(expression: pc.Expression) -> list[str]:
    """Texts that an expression names, as Arrow prints them; of one with odd characters, something else."""
    return _TEXT.findall(str(expression))


def _bisected(low: int, high: int, is_out: Callable[[int], bool]) -> int:
    """The largest value up to `high` for which `is_out` holds, as it does for `low`."""
    while low < high:
        middle = (low + high + 1) // 2
        if is_out(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _integer(value: int) -> pa.Scalar:
    return pa.scalar(value, pa.int64())


def _time(value_ms: int) -> pa.Scalar:
    return pa.scalar(value_ms * 1000, SCHEMA.field("store_timestamp").type)
