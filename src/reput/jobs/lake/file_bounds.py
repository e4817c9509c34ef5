"""Bounds of a file's columns by which messages are searched. Readers of tables skip files by them."""

from __future__ import annotations

from typing import Any

from pyarrow import parquet

_BOUNDED = ("commit_log_offset", "queue_offset", "queue_id", "store_timestamp", "born_timestamp")


def file_bounds(path: str) -> dict[str, tuple[Any, Any]]:
    """(least, greatest) value of each such column of a Parquet file, from its footer."""
    metadata = parquet.read_metadata(path)
    bounds: dict[str, tuple[Any, Any]] = {}
    for group in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(column)
            name, statistics = chunk.path_in_schema, chunk.statistics
            if name in _BOUNDED and statistics is not None and statistics.has_min_max:
                low, high = bounds.get(name, (statistics.min, statistics.max))
                bounds[name] = min(low, statistics.min), max(high, statistics.max)
    return bounds
