"""Placeholders: records that a salvage puts in place of lost bytes. They are no messages for what reads or counts some.

A placeholder is a rolled back record of no host, whose topic is `PLACEHOLDER_TOPIC`, or its first letters if there is
no room. It is in no queue and no index. Only what copies or proves a log, byte by byte, sees it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reput.formats.record_layout import BORN_HOST, STORE_HOST, SysFlag
from reput.kernels.records.columns import N_QUEUE, RecordColumns

#: Topic of placeholders.
PLACEHOLDER_TOPIC = "DAMAGED"
#: Host that stores placeholders, and that they were born on.
PLACEHOLDER_HOST = "0.0.0.0:0"
_TOPIC = np.frombuffer(PLACEHOLDER_TOPIC.encode(), np.uint8)
_HOSTS = np.array([start + i for start in (BORN_HOST, STORE_HOST) for i in range(8)])


def are_placeholders(columns: RecordColumns) -> npt.NDArray[np.bool_]:
    """bool[rows], whether a record stands in for lost bytes."""
    found: npt.NDArray[np.bool_] = columns["sys_flag"] == SysFlag.TRANSACTION_ROLLBACK
    if found.any():
        found &= columns["topic_size"] <= _TOPIC.size
        rows = np.flatnonzero(found)
        letters = np.arange(_TOPIC.size)
        topics = columns.buffer.take(columns["topic_position"][rows, None] + letters, mode="clip")
        is_topic = (topics == _TOPIC) | (letters >= columns["topic_size"][rows, None])
        hosts = columns.buffer.take(columns["position"][rows, None] + _HOSTS)
        found[rows] = is_topic.all(axis=1) & ~hosts.any(axis=1)
    return found


def message_count(columns: RecordColumns) -> int:
    """Count of records that are messages."""
    return int(np.count_nonzero(~are_placeholders(columns)))


def without_placeholders(columns: RecordColumns) -> RecordColumns:
    """The records that are messages, with their queues and keys."""
    kept = ~are_placeholders(columns)
    if kept.all():
        return columns
    wide, narrow, queue_rows = columns.wide[:, kept], columns.narrow[:, kept], columns.queue_rows
    if queue_rows.size:  # queues are numbered in the order of their first records
        _, firsts, numbers = np.unique(narrow[N_QUEUE], return_index=True, return_inverse=True)
        narrow[N_QUEUE], queue_rows = numbers, firsts.astype(np.int32)
    key_rows = (np.cumsum(kept) - 1).astype(np.int32)[columns.key_rows]
    return RecordColumns(
        columns.buffer, columns.base_offset, columns.consumed, columns.stop, wide, narrow, queue_rows,
        columns.key_hashes, key_rows,
    )  # fmt: skip
