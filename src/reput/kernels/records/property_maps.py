"""Properties of messages as an Arrow map column: with one more in each row, or without some names."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_PAIRS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))


def with_property(properties: pa.Array | None, name: str, values: pa.Array) -> pa.Array:
    """The column with a property at the end of each row.

    Args:
        properties: map<string, string>; None, and null, for rows without one.
        name: Of the property.
        values: Text, a value for each row.
    """
    rows = len(values)
    column = pa.nulls(rows, _PAIRS) if properties is None else properties.cast(_PAIRS)
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(counts + 1)])
    is_new = np.zeros(offsets[-1], bool)
    is_new[offsets[1:] - 1] = True
    pairs = pc.list_flatten(column)
    taken = np.empty(offsets[-1], np.int64)
    taken[~is_new], taken[is_new] = np.arange(len(pairs)), len(pairs) + np.arange(rows)
    names = pa.concat_arrays([pairs.field(0), pa.repeat(pa.scalar(name), rows)]).take(pa.array(taken))
    texts = pa.concat_arrays([pairs.field(1), values]).take(pa.array(taken))
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), names, texts)


def without_properties(properties: pa.Array, names: Iterable[str]) -> pa.Array:
    """The column, map<string, string>, without the properties of these names; a null becomes an empty map."""
    column = properties.cast(_PAIRS)
    pairs = pc.list_flatten(column)
    is_kept = pc.invert(pc.is_in(pairs.field(0), pa.array(list(names), pa.string())))
    rows = pc.list_parent_indices(column).to_numpy()[is_kept.to_numpy(zero_copy_only=False)]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(column)))])
    kept = pairs.filter(is_kept)
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), kept.field(0), kept.field(1))
