"""Faults of whole records: a record contradicts its own CRC, or its topic or queue offset is impossible."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from reput.formats.message_batch import MIN_ITEM_SIZE
from reput.formats.paths import topic_folder_name
from reput.formats.record_layout import SysFlag
from reput.kernels.records.columns import RecordColumns, RecordStatus
from reput.log.damages import Damage

_CONTRADICTS = "the property __CRC32# says otherwise than the record's bytes"


def faulty_records(path: str, columns: RecordColumns) -> list[Damage]:
    """Faulty ones of scanned records, as damage of the file `path`."""
    reasons = dict.fromkeys(np.flatnonzero(columns["status"] & RecordStatus.BAD_PROPERTY_CRC).tolist(), _CONTRADICTS)
    wrong = wrong_queue_offsets(columns)
    if not all(_names_folder(topic) for topic, _ in columns.queues()):
        without = [number for number, (topic, _) in enumerate(columns.queues()) if not _names_folder(topic)]
        wrong |= np.isin(columns["queue"], without)
    if wrong.any():
        rows = np.flatnonzero(wrong & has_units(columns)).tolist()
        reasons = {row: queue_fault(columns, row) for row in rows} | reasons
    return [record_damage(path, columns, row, reasons[row]) for row in sorted(reasons)]


def record_damage(path: str, columns: RecordColumns, row: int, reason: str) -> Damage:
    """Damage that covers one whole record."""
    begin = int(columns["commit_log_offset"][row])
    return Damage(path, begin, begin + int(columns["store_size"][row]), reason)


def has_units(columns: RecordColumns) -> npt.NDArray[np.bool_]:
    """bool[rows], whether a record has a unit: False for prepared and rolled back messages."""
    kind = columns["sys_flag"] & SysFlag.TRANSACTION_MASK
    return np.asarray((kind != SysFlag.TRANSACTION_PREPARED) & (kind != SysFlag.TRANSACTION_ROLLBACK))


def wrong_queue_offsets(columns: RecordColumns) -> npt.NDArray[np.bool_]:
    """bool[rows], True for an impossible queue offset: negative, or more messages than the log before it can hold.

    Each earlier message of the queue takes at least MIN_ITEM_SIZE bytes of the log, alone or in an inner batch.
    """
    queue_offsets, offsets = columns["queue_offset"], columns["commit_log_offset"]
    if queue_offsets.min() >= 0 and int(queue_offsets.max()) <= int(offsets[0]) // MIN_ITEM_SIZE:
        return np.zeros(columns.rows, np.bool_)
    return (queue_offsets < 0) | (queue_offsets > offsets // MIN_ITEM_SIZE)


def queue_fault(columns: RecordColumns, row: int) -> str:
    """Reason why a whole record cannot have a unit."""
    topic = columns.queues()[columns["queue"][row]][0]
    if not _names_folder(topic):
        shown = topic[:80].decode("utf-8", "replace")
        return f"the topic {shown!r} cannot name a folder; look at the record with `reput dump`"
    return (
        f"the record says queue offset {columns['queue_offset'][row]}, but before it the log can hold at most "
        f"{int(columns['commit_log_offset'][row]) // MIN_ITEM_SIZE} messages; look at it with `reput dump`"
    )


def misnumbered_fault(queue_offset: int) -> str:
    """Reason why a record whose queue offset the records around it contradict has no unit."""
    return (
        f"the record says queue offset {queue_offset}, which the next records of its queue contradict; "
        "look at it with `reput dump`"
    )


@lru_cache(maxsize=1 << 16)
def _names_folder(topic: bytes) -> bool:
    return topic_folder_name(topic) is not None
