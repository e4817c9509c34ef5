"""Ranges of queues: which messages a batch and a task read; pure. The rules are from Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from reput.remoting.queue_tables import QueueKey


class QueueRange(NamedTuple):
    """Messages of one queue, from an offset to another one, which is not read."""

    queue: QueueKey
    begin: int
    end: int

    @property
    def size(self) -> int:
        """Number of messages."""
        return self.end - self.begin


def cut(
    ranges: Sequence[QueueRange], min_partitions: int | None = None, max_records: int | None = None
) -> list[QueueRange]:
    """Cut ranges into the ranges of tasks (`KafkaOffsetRangeCalculator`).

    Args:
        ranges: Those without messages are left out.
        min_partitions: About the fewest tasks: large ranges are cut into more pieces.
        max_records: No piece is larger.
    """
    wanted = [one for one in ranges if one.size > 0]
    total = sum(one.size for one in wanted)
    pieces: list[QueueRange] = []
    for one in wanted:
        parts = 1 if max_records is None else -(-one.size // max_records)
        if min_partitions is not None and min_partitions > len(wanted):
            parts = max(parts, round(one.size * min_partitions / total))
        parts = min(parts, one.size)
        bounds = [one.begin + one.size * number // parts for number in range(parts + 1)]
        pieces += [QueueRange(one.queue, low, high) for low, high in pairwise(bounds)]
    return pieces


def limited(begins: Mapping[QueueKey, int], ends: Mapping[QueueKey, int], most: int | None) -> dict[QueueKey, int]:
    """Ends of a batch of at most about `most` messages: each queue has a share by what waits in it (`rateLimit`).

    Each queue with messages has one at least, so none waits for ever.
    """
    sizes = {queue: max(end - begins[queue], 0) for queue, end in ends.items()}
    total = sum(sizes.values())
    if most is None or total <= most:
        return dict(ends)
    return {
        queue: begins[queue] + min(max(most * size // total, 1), size) if size else ends[queue]
        for queue, size in sizes.items()
    }
