"""Units of queues and entries of index files in NumPy: structured types, made of the tables of fields in formats."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reput.formats import batch_consume_queue, consume_queue, consume_queue_ext, index_file
from reput.formats.field import Field


def _type(fields: Sequence[Field], names: Sequence[str]) -> np.dtype[np.void]:
    """Fields in a row, under the names that the class of one such row gives them."""
    return np.dtype([(name, f">{field.code}") for name, field in zip(names, fields, strict=True)])


UNIT_TYPE = _type(consume_queue.FIELDS, consume_queue.Unit._fields)
BATCH_UNIT_TYPE = _type(batch_consume_queue.FIELDS, batch_consume_queue.BatchUnit._fields)
EXT_HEAD_TYPE = _type(consume_queue_ext.HEAD_FIELDS, consume_queue_ext.ExtHead._fields)
INDEX_ENTRY_TYPE = _type(index_file.ENTRY_FIELDS, index_file.IndexEntry._fields)
