"""BatchScanner: what a dataset of ours gives to DuckDB and Arrow for a scan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.acero import Declaration, FilterNodeOptions, ProjectNodeOptions, TableSourceNodeOptions

from reput.errors import ConfigError
from reput.log.datasets.arrow_filters import fields_of
from reput.log.reads.open_batches import batch_reader

#: Rows with some columns that may pass a filter.
Batches = Callable[[Sequence[str], "pc.Expression | None"], Iterator[pa.RecordBatch]]

#: The smallest column: read if only the number of rows is wanted.
_SMALLEST = "store_size"


class BatchScanner:
    """Scan that reads a batch when it is asked for one, and nothing ahead, unlike Arrow's own scanners.

    It is none of these: code of C++ that takes one (`pyarrow.dataset.write_dataset`) would end the process.

    Args:
        schema: all columns that there are.
        batches: reads the columns that the scan uses, by name, in the order of `schema`.
        columns, filter: as for `pyarrow.dataset.Dataset.scanner`.
    """

    def __init__(
        self,
        schema: pa.Schema,
        batches: Batches,
        columns: Sequence[str] | Mapping[str, pc.Expression] | None,
        filter: pc.Expression | None,
    ) -> None:
        self._schema, self._batches, self._filter = schema, batches, filter
        self._columns = columns if columns is None or isinstance(columns, Mapping) else list(columns)
        scanner = ds.dataset(schema.empty_table()).scanner(columns=self._columns, filter=filter)
        self._projected: pa.Schema = scanner.projected_schema

    @property
    def dataset_schema(self) -> pa.Schema:
        """The columns of the dataset."""
        return self._schema

    @property
    def projected_schema(self) -> pa.Schema:
        """The columns of the scan."""
        return self._projected

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, batch by batch."""
        for batch in self._batches(self._names(), self._filter):
            yield from self._project(pa.Table.from_batches([batch])).to_batches()

    def to_reader(self) -> pa.RecordBatchReader:
        """Reader of the rows."""
        return batch_reader(self._projected, self.to_batches())

    def to_table(self) -> pa.Table:
        """All rows."""
        return pa.Table.from_batches(self.to_batches(), self._projected)

    def head(self, num_rows: int) -> pa.Table:
        """The first rows; no more batches are read than have them."""
        batches = []
        left = num_rows
        for batch in self.to_batches() if left > 0 else ():
            batches.append(batch.slice(0, left))
            left -= batches[-1].num_rows
            if not left:
                break
        return pa.Table.from_batches(batches, self._projected)

    def count_rows(self) -> int:
        """Number of rows."""
        scanner = BatchScanner(self._schema, self._batches, [], self._filter)
        return sum(batch.num_rows for batch in scanner.to_batches())

    def take(self, indices: Any) -> pa.Table:
        """The rows of these numbers."""
        return self.to_table().take(indices)

    def scan_batches(self) -> NoReturn:
        """Refuse: the batches are of no fragments."""
        raise ConfigError("a BatchScanner has no fragments; use to_batches()")

    def _project(self, rows: pa.Table) -> pa.Table:
        """Rows that pass, with the columns of the scan, made in this thread: one of Arrow's could outlive the scan."""
        steps = [Declaration("table_source", TableSourceNodeOptions(rows))]
        if self._filter is not None:
            steps.append(Declaration("filter", FilterNodeOptions(self._filter)))
        if isinstance(self._columns, Mapping):
            steps.append(Declaration("project", ProjectNodeOptions(list(self._columns.values()), list(self._columns))))
        if len(steps) > 1:
            rows = Declaration.from_sequence(steps).to_table(use_threads=False)
        return rows.select(self._columns) if isinstance(self._columns, list) else rows

    def _names(self) -> list[str]:
        """Columns that are read: those that the columns and the filter of the scan use."""
        if self._columns is None:
            return list(self._schema.names)
        names, used = self._schema.names, self._columns
        named = set(used)
        if isinstance(used, Mapping):
            named = set(chain(*(fields_of(value, names) for value in used.values())))
        if self._filter is not None:
            named.update(fields_of(self._filter, names))
        return [name for name in names if name in named] or [_SMALLEST]
