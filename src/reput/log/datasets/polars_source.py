"""LazyFrame of polars over a scan of a log, by polars' plug-ins for sources."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
from polars.io.plugins import register_io_source

from reput.kernels.records.record_batch import SCHEMA
from reput.log.datasets.batch_scanner import Batches
from reput.log.datasets.polars_filters import arrow_filter
from reput.log.reads.open_batches import OpenBatches


def lazy_frame(batches: Batches) -> pl.LazyFrame:
    """LazyFrame whose queries read the columns that they need, the ranges of the log that their filters leave, and no
    more batches than have the rows that they ask for.
    """

    def read(
        columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        return OpenBatches(frames(columns, predicate, n_rows))

    def frames(columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None) -> Iterator[pl.DataFrame]:
        wanted = SCHEMA.names if columns is None else columns
        used = wanted if predicate is None else {*wanted, *predicate.meta.root_names()}
        names = [name for name in SCHEMA.names if name in used] or SCHEMA.names[:1]
        # With both, polars wants those of the first rows that pass: no row before them may be left out.
        pruned = None if predicate is None or n_rows is not None else arrow_filter(predicate)
        left = n_rows
        for batch in batches(names, pruned):
            frame = pl.DataFrame(batch)
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            yield (frame if predicate is None else frame.filter(predicate)).select(wanted)
            if left == 0:
                return

    return register_io_source(read, schema=dict(pl.DataFrame(SCHEMA.empty_table()).schema), explain_name="reput")
