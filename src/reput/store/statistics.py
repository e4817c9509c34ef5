"""Statistics of an open store, as RocketMQ's `StoreStatsService` counts them; a count costs a few additions.

The dispatch thread counts put messages, a batch at a time, from the columns of its scan; puts themselves are only
timed. Several threads add to plain numbers without a lock: if there is an interpreter lock, CPython gives it away at
calls and jumps, and never inside of `x.n += 1`.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, chain, repeat
from threading import Lock
from typing import NamedTuple

import numpy as np

from reput.errors import StoreError
from reput.kernels.records.columns import RecordColumns
from reput.kernels.records.size_ranges import SIZE_BOUNDS, SIZE_RANGES

#: Upper bounds in ms, exclusive, and RocketMQ's names of the ranges before, between and after them.
_RANGE_BOUNDS_MS = (1, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
RANGE_NAMES = (
    "[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]",
    "[1~2s]", "[2~3s]", "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]",
)  # fmt: skip
#: Finer ranges for the percentiles: width in ms, and number of ranges (`PUT_MESSAGE_ENTIRE_TIME_BUCKETS`).
_STEPS = ((1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1000, 9))
_FINE_BOUNDS_MS = tuple(accumulate(chain.from_iterable(repeat(width, count) for width, count in _STEPS)))
#: A put that takes less is counted by the put itself; longer puts call `put_took`.
FAST_PUT_S = 0.001
#: Seconds over which rates are taken.
WINDOWS_S = (1, 10, 60, 600)
_SAMPLE_INTERVAL_S = 0.95
#: Time between two samples, in times of what one takes of a processor: 100,000 topics take 15 ms.
_SAMPLE_SHARE = 200


class TopicCounts:
    """Counts of one topic since the store was opened.

    Attributes:
        put_messages, put_bytes: Messages put, and the bytes of their records.
        put_sizes: Messages put, by the range of their record's size (`SIZE_BOUNDS`).
        get_times: Pulls that found messages.
        got_messages, got_bytes: Messages that these pulls returned, and the bytes of their records.
    """

    __slots__ = ("get_times", "got_bytes", "got_messages", "put_bytes", "put_messages", "put_sizes")

    def __init__(self) -> None:
        self.put_messages = 0
        self.put_bytes = 0
        self.put_sizes = [0] * SIZE_RANGES
        self.get_times = 0
        self.got_messages = 0
        self.got_bytes = 0

    def count_puts(self, messages: int, size: int, size_counts: Sequence[int]) -> None:
        """Count messages: how many, the bytes of their records, and how many of these are in each range of sizes."""
        self.put_messages += messages
        self.put_bytes += size
        for number, count in enumerate(size_counts):
            if count:
                self.put_sizes[number] += count


class Totals(NamedTuple):
    """Sums over all topics at one moment; `at` in seconds of the monotonic clock."""

    at: float
    put_messages: int
    put_bytes: int
    get_times: int
    miss_times: int
    got_messages: int


class StoreStatsService:
    """RocketMQ's `StoreStatsService` of one open store.

    Args:
        topics: Counts by topic; the queues' own table, to which pulls add.

    Attributes:
        fast_put_times: Puts that took less than a millisecond.
        put_failed_times: Puts that failed because of the store, not because of the message.
        put_entire_time_max_ms: Time of the longest put.
        get_entire_time_max_s: Time of the longest pull.
        get_miss_times: Pulls that found no message.
    """

    def __init__(self, topics: dict[str, TopicCounts]) -> None:
        self.topics = topics
        self.boot_timestamp = int(time.time() * 1000)
        self.fast_put_times = 0
        self.put_failed_times = 0
        self.put_entire_time_max_ms = 0
        self.get_entire_time_max_s = 0.0
        self.get_miss_times = 0
        self._by_bytes: dict[bytes, TopicCounts] = {}
        self._slow = Lock()
        self._ranges = [0] * len(RANGE_NAMES)
        self._fine_ranges = [0] * (len(_FINE_BOUNDS_MS) + 1)
        self._sample_s = 0.0  # of a processor, that the last one took
        self._samples = deque([self.totals()], maxlen=max(WINDOWS_S) + 1)

    def put_took(self, seconds: float, count: int = 1) -> None:
        """Count a put by its time, or `count` puts in one call (`setPutMessageEntireTimeMax`).

        Faster puts than `FAST_PUT_S` count themselves.
        """
        elapsed_ms = int(seconds * 1000)
        with self._slow:
            self._ranges[bisect_right(_RANGE_BOUNDS_MS, elapsed_ms)] += count
            self._fine_ranges[bisect_left(_FINE_BOUNDS_MS, elapsed_ms)] += count
            self.put_entire_time_max_ms = max(self.put_entire_time_max_ms, elapsed_ms)

    def get_took(self, seconds: float) -> None:
        """Note the time of a pull that may be the longest one (`setGetMessageEntireTimeMax`)."""
        with self._slow:
            self.get_entire_time_max_s = max(self.get_entire_time_max_s, seconds)

    @contextmanager
    def timing(self) -> Iterator[None]:
        """Time a put of many messages, or count it as failed."""
        begin = time.monotonic()
        try:
            yield
        except StoreError:
            self.put_failed_times += 1
            raise
        self.put_took(time.monotonic() - begin)

    def dispatch(self, columns: RecordColumns) -> None:
        """Count scanned records by topic; as the last of all dispatchers, so that no record is counted twice."""
        if not columns.rows:
            return
        queues = columns.queues()
        numbers = columns["queue"]
        messages = np.bincount(numbers, minlength=len(queues)).tolist()
        sizes = np.bincount(numbers, columns["store_size"], len(queues)).tolist()
        ranges = SIZE_RANGES * numbers + np.searchsorted(SIZE_BOUNDS, columns["store_size"])
        size_counts = np.bincount(ranges, minlength=SIZE_RANGES * len(queues)).reshape(-1, SIZE_RANGES).tolist()
        for (topic, _), count, size, in_ranges in zip(queues, messages, sizes, size_counts, strict=True):
            counts = self._by_bytes.get(topic)
            if counts is None:
                counts = self.topics.setdefault(topic.decode("utf-8", "replace"), TopicCounts())
                self._by_bytes[topic] = counts
            counts.count_puts(count, int(size), in_ranges)

    def totals(self) -> Totals:
        """Sums over all topics, as of now."""
        topics = list(self.topics.values())
        return Totals(
            time.monotonic(),
            sum(one.put_messages for one in topics),
            sum(one.put_bytes for one in topics),
            sum(one.get_times for one in topics),
            self.get_miss_times,
            sum(one.got_messages for one in topics),
        )

    def sample(self) -> None:
        """Keep the sums once a second, of very many topics less often, for the rates; for a thread that is awake."""
        if time.monotonic() - self._samples[-1].at >= max(_SAMPLE_INTERVAL_S, _SAMPLE_SHARE * self._sample_s):
            begun = time.thread_time()
            self._samples.append(self.totals())
            self._sample_s = time.thread_time() - begun

    def per_second(self) -> dict[int, Totals | None]:
        """Growth of each sum per second over the last 1, 10, 60 and 600 seconds; None before the store is that old.

        `at` is the time in seconds over which the rate is really taken: samples are about a second apart.
        """
        now, samples = self.totals(), list(self._samples)
        rates: dict[int, Totals | None] = {}
        for window in WINDOWS_S:
            old = [one for one in samples if now.at - one.at >= window * _SAMPLE_INTERVAL_S]
            if not old:
                rates[window] = None
                continue
            seconds = now.at - old[-1].at
            grown = ((b - a) / seconds for a, b in zip(old[-1][1:], now[1:], strict=True))
            rates[window] = Totals(seconds, *grown)  # type: ignore[arg-type]
        return rates

    def put_distribution(self) -> dict[str, int]:
        """Number of puts in each range of times, by RocketMQ's names of the ranges."""
        with self._slow:
            return dict(zip(RANGE_NAMES, [self.fast_put_times + self._ranges[0], *self._ranges[1:]], strict=True))

    def put_latency_ms(self, share: float) -> float:
        """Percentile of the put times, in ms (`findPutMessageEntireTimePX`); inside a range, by proportion.

        All puts since the store was opened count; RocketMQ takes the puts of the last minute. `share`: 0.99 for p99.
        """
        with self._slow:
            counts = [self.fast_put_times + self._fine_ranges[0], *self._fine_ranges[1:]]
        wanted = int(sum(counts) * share)
        low = 0
        for count, high in zip(counts, (*_FINE_BOUNDS_MS, self.put_entire_time_max_ms), strict=True):
            if wanted <= count:
                return low + (high - low) * wanted / count if count else 0.0
            wanted -= count
            low = high
        return float(self.put_entire_time_max_ms)
