"""Messages that only the queues of a damaged store know. A salvage counts them; it works where an audit cannot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reput.files import DISK
from reput.formats.java import INT64_MAX
from reput.formats.multi_dispatch import LMQ_PREFIX
from reput.formats.record_layout import MIN_RECORD_SIZE
from reput.jobs.audit.ascending_runs import Int64s
from reput.jobs.audit.files import ListedQueue, ListedQueues, StoreListing
from reput.jobs.audit.lost_ranges import follow
from reput.jobs.audit.unit_reader import is_used
from reput.kernels.queues.unit_types import BATCH_UNIT_TYPE, UNIT_TYPE


class Known(NamedTuple):
    """Messages that queues have in a range of the log, and the end of their last record; 0 without messages."""

    messages: int
    end: int


def known_messages(
    listing: StoreListing, log_end: int, losses: Sequence[tuple[int, int]]
) -> tuple[int, Known, *tuple[Known, ...]]:
    """Count the messages that queues know and the log has not, without light queues, which repeat messages.

    Behind the log's end a unit counts if a record can follow there, and if the next unit of its queue is of a later
    record. So the bytes of a damaged unit count for nothing.

    Args:
        log_end: commit log offset after the last whole record.
        losses: ranges of commit log offsets before it, in order.

    Returns:
        The commit log offset up to which queues know messages; the messages behind the log's end, and of each loss.
    """
    ranges = np.array(losses, np.int64).reshape(-1, 2)
    counts = np.zeros(len(losses), np.int64)
    ends = np.zeros(len(losses), np.int64)
    reached, behind = 0, [np.zeros((0, 3), np.int64)]
    for units, nexts in _units(listing):
        is_behind = units[:, 0] >= log_end
        behind.append(units[is_behind & (units[:, 1] <= nexts)])
        units = units[~is_behind]
        reached = max(reached, int(units[:, 1].max(initial=0)))
        at = np.searchsorted(ranges[:, 0], units[:, 0], "right") - 1
        inside = (at >= 0) & (units[:, 0] < ranges[at, 1]) if len(ranges) else np.zeros(len(units), np.bool_)
        np.add.at(counts, at[inside], units[inside, 2])
        np.maximum.at(ends, at[inside], units[inside, 1])
    tail = np.concatenate(behind)
    tail = tail[np.argsort(tail[:, 0], kind="stable")]
    tail = tail[follow(log_end, tail[:, 0], tail[:, 1], listing.log_files[0].size)]
    last = int(tail[:, 1].max(initial=0))
    of_losses = (Known(*one) for one in zip(counts.tolist(), ends.tolist(), strict=True))
    return max(reached, last), Known(int(tail[:, 2].sum()), last), *of_losses


def _units(listing: StoreListing) -> Iterator[tuple[Int64s, Int64s]]:
    """Units, a queue file at a time.

    int64[n, 3], their commit log offset, end and messages; int64[n], the commit log offset of the next unit.
    """
    for folder, kind in ((listing.queues, UNIT_TYPE), (listing.batch_queues, BATCH_UNIT_TYPE)):
        for queue in folder.queues:
            if not queue.topic.startswith(LMQ_PREFIX):
                yield from _of_queue(folder, queue, kind)


def _of_queue(folder: ListedQueues, queue: ListedQueue, kind: npt.DTypeLike) -> Iterator[tuple[Int64s, Int64s]]:
    following = INT64_MAX  # of the first unit of the next file
    for start in sorted(queue.starts, reverse=True):
        data = DISK.read_bytes(folder.file_path(queue.topic, queue.queue_id, start))
        units: npt.NDArray[Any] = np.frombuffer(data, kind, len(data) // np.dtype(kind).itemsize)
        units = units[is_used(units)]
        offsets, sizes = units["commit_log_offset"].astype(np.int64), units["size"].astype(np.int64)
        messages = units["message_count"].astype(np.int64) if kind == BATCH_UNIT_TYPE else np.ones_like(offsets)
        can_be = (offsets >= 0) & (sizes >= MIN_RECORD_SIZE) & (offsets <= INT64_MAX - sizes)
        rows = np.stack([offsets, offsets + sizes, messages], axis=1)[can_be]
        starts = np.append(rows[:, 0], following)
        yield rows, starts[1:]
        following = int(starts[0])
