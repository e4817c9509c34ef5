"""TimerEnqueue: gives new messages with a time their slots (`TimerMessageStore`'s `TimerEnqueueGetService`)."""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.broker.clock import BrokerClock
from reput.broker.disk_work import DiskWork
from reput.broker.timer.timer_message import TimerMessage
from reput.errors import CorruptRecordError, WouldWaitError
from reput.events import Event
from reput.files import NeverWaiting
from reput.formats.java import string_hash
from reput.formats.metadata import TimerMetrics
from reput.formats.timer_log import TIMER_TOPIC, Magic, TimerUnit
from reput.kernels.records.timer_records import TimerRecords
from reput.service.timer_messages import slot_times
from reput.service.timer_stats import TimerStats
from reput.service.topic_metrics_manager import TopicMetricsManager
from reput.store.message_store import MessageStore
from reput.store.results import GetMessageStatus
from reput.store.timer.timer_message_store import TimerEntries, TimerMessageStore

logger = logging.getLogger("reput.broker")

#: Messages that one read of the queue gives by default, and reads that make one write of the timer log.
_MOST_READ, _MOST_READS = 32, 8


class Enqueued(NamedTuple):
    """A message that has its slot, of a time in ms."""

    time_ms: int
    message: TimerMessage
    unit: TimerUnit


class TimerEnqueue:
    """Takes rmq_sys_wheel_timer from its offset on.

    Args:
        clock, store: The broker's.
        timers: On the disk.
        work: The thread of the timers.
        metrics: Counts the messages that wait.
        stats: Counts what has been done.
    """

    def __init__(
        self,
        clock: BrokerClock,
        store: MessageStore,
        timers: TimerMessageStore,
        work: DiskWork,
        metrics: TopicMetricsManager[TimerMetrics],
        stats: TimerStats,
    ) -> None:
        self._clock, self._store, self._timers, self._work = clock, store, timers, work
        self._metrics, self._stats = metrics, stats
        config = store.config
        self._precision, self._window = config.timer_precision_ms, config.timer_roll_window_ms

    async def read(self, offset: int, end: int) -> tuple[list[bytes], int]:
        """The records of the next messages of the queue, as several reads give them; the offset after them."""
        read, found = partial(self._store.get_raw, TIMER_TOPIC, 0), []
        for _ in range(_MOST_READS):
            result = read(offset, _MOST_READ, may_wait=False) or await self._work.run(read, offset, _MOST_READ)
            assert result is not None, "a read that may wait has a result"
            if result.status is GetMessageStatus.FOUND:
                found.append(result.records)
            elif result.next_begin_offset == offset:
                break
            else:
                offsets = {"offset": offset, "min": result.min_offset, "max": result.max_offset}
                logger.warning(Event("the offset of the timers has no message", **offsets))
            offset = result.next_begin_offset
            if offset >= end:
                break
        return found, offset

    async def enqueue(self, records: bytes, open_ms: Collection[int]) -> list[Enqueued]:
        """Let successive messages of the queue wait, as reads gave them.

        Args:
            records: Of the messages.
            open_ms: Times of slots that are in memory, too.

        Returns:
            The messages that wait in one of these.
        """
        timers, now_ms = self._timers, self._clock.now_ms()
        write_ms = now_ms // self._precision * self._precision
        if not records:
            return []
        messages = TimerRecords.of(records, TIMER_TOPIC.encode())
        if messages.end < len(records):
            raise CorruptRecordError("", messages.end, f"expected a record of {TIMER_TOPIC}")
        lacking = int(np.count_nonzero(messages.out_ms < 0))
        if lacking:
            logger.error(Event("messages with a time name no time, or no topic to go to", messages=lacking))
        counted, rows, entries = self._entries(messages)
        try:
            with NeverWaiting():
                timers.enqueue(entries, write_ms)
        except WouldWaitError:  # once a file: a thread for each write would take longer than the write
            await self._work.run(timers.enqueue, entries, write_ms)
        self._count(messages, counted, now_ms)  # last: after an error they are read again
        found: list[Enqueued] = []
        if not (open_ms and len(entries.times) and entries.times.min() <= max(open_ms)):  # as most wait for longer
            return found
        for row in np.flatnonzero(np.isin(entries.times, list(open_ms))).tolist():
            time_ms, magic, *place = (int(column[row]) for column in entries)
            message = TimerMessage.of_record(records, int(messages.positions[rows[row]]))
            assert message is not None, "it has a time"
            found.append(Enqueued(time_ms, message, TimerUnit(-1, magic, write_ms, time_ms - write_ms, *place)))
        return found

    def _entries(self, messages: TimerRecords) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], TimerEntries]:
        """The rows of the messages that wait, the rows without a unit among them, and where these are to wait.

        The master of a former slave has delivered, or rolled, the others already. That can be known, as the slot of a
        message follows from its record alone, and those are named that wait in a later one.
        """
        timers, precision = self._timers, self._precision
        are_copied = messages.queue_offsets < timers.copied_to
        times = slot_times(messages.out_ms, messages.stored_ms // precision * precision, self._window, precision)
        are_done = are_copied & (times < timers.copied_read_time_ms)
        counted = np.flatnonzero((messages.out_ms >= 0) & ~are_done)
        rows = counted[~timers.have_units(messages.commit_log_offsets[counted])]
        late = rows[times[rows] < timers.read_time_ms]
        if len(late):
            timers.comes_late(int(messages.queue_offsets[late[0]]))
        magics = np.where(times == messages.out_ms, Magic.DEFAULT, Magic.DEFAULT | Magic.ROLL)
        magics = np.where(messages.deletes, magics | Magic.DELETE, magics).astype(np.int32)
        hashes = np.array([string_hash(name) for name in messages.topic_names], np.int32)
        entries = TimerEntries(
            np.maximum(times[rows], timers.read_time_ms), magics[rows], messages.commit_log_offsets[rows],
            messages.sizes[rows], hashes[messages.topics[rows]],
        )  # fmt: skip
        return counted, rows, entries

    def _count(self, messages: TimerRecords, rows: npt.NDArray[np.int64], now_ms: int) -> None:
        """Count messages that wait from now on, or have a unit which is younger than the counts: of before a kill."""
        if not len(rows):
            return
        delays_s: dict[tuple[str, int], int] = {}
        waiting: dict[str, int] = {}
        for number, topic in enumerate(messages.topic_names):
            some = rows[messages.topics[rows] == number]
            if not len(some):
                continue
            delays, times = np.unique((messages.out_ms[some] - messages.born_ms[some]) // 1000, return_counts=True)
            for delay_s, count in zip(delays.tolist(), times.tolist(), strict=True):
                delays_s[topic, delay_s] = delays_s.get((topic, delay_s), 0) + count
            # One that deletes another message takes one away, and is none itself.
            taken = 2 * int(np.count_nonzero(messages.deletes[some]))
            waiting[topic] = waiting.get(topic, 0) + len(some) - taken
        self._stats.enqueue(delays_s, int(messages.stored_ms[rows[-1]]), now_ms)
        self._metrics.add(waiting, now_ms)
