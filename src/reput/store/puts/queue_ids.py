"""The queue ids of a put of several messages: one for all of them, or one for each."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reput.config.arguments import is_whole
from reput.errors import MessageIllegalError
from reput.formats.record_layout import MAX_QUEUE_ID


def queue_ids_of(queue_id: object, count: int) -> npt.NDArray[np.int32]:
    """int32[count], the queue id of each message.

    Args:
        queue_id: A whole number for all messages, or a sequence or an array of NumPy's with one for each.
        count: Messages.

    Raises:
        MessageIllegalError: A wrong type, a wrong length, or a number that is no queue id, with the message's number.
    """
    if isinstance(queue_id, str | bytes) or not isinstance(queue_id, Sequence | np.ndarray):
        return np.full(
            count, checked_queue_id(queue_id, wanted="a whole number, or a list with one for each message"), np.int32
        )
    return _one_each(queue_id, count)


def _one_each(queue_ids: Sequence[Any] | npt.NDArray[Any], count: int) -> npt.NDArray[np.int32]:
    if len(queue_ids) != count:
        raise MessageIllegalError(
            f"{len(queue_ids)} queue ids for {count} messages; pass one for each, or a single one for all of them"
        )
    try:
        ids = np.asarray(queue_ids)
    except ValueError:  # lists among the numbers
        ids = np.empty(0)
    are_numbers = ids.ndim == 1 and ids.dtype.kind in "iu" and ids.size and not _has_flags(queue_ids)
    if are_numbers and ids.min() >= 0 and ids.max() <= MAX_QUEUE_ID:
        return ids.astype(np.int32)
    return np.array([checked_queue_id(one, f"message {row}: ") for row, one in enumerate(queue_ids)], np.int32)


def _has_flags(queue_ids: Sequence[Any] | npt.NDArray[Any]) -> bool:
    """Whether True or False stand among numbers, where NumPy takes them for 1 and 0."""
    return not isinstance(queue_ids, np.ndarray) and bool in set(map(type, queue_ids))


def checked_queue_id(queue_id: object, what: str = "", wanted: str = "a whole number") -> int:
    """A queue id as Python's number; raises MessageIllegalError for what is none, `what` says whose it is."""
    if not is_whole(queue_id):
        raise MessageIllegalError(f"{what}queue_id must be {wanted}, not {type(queue_id).__name__}")
    number = operator.index(queue_id)  # type: ignore[arg-type]
    if not 0 <= number <= MAX_QUEUE_ID:
        raise MessageIllegalError(f"{what}queue_id {number} is not between 0 and {MAX_QUEUE_ID}")
    return number
