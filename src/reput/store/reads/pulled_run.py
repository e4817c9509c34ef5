"""PulledRunFinder: records of a plain pull as they lie in the mapped log, for a loop that copies them once."""

from __future__ import annotations

from time import monotonic
from typing import NamedTuple

from reput.errors import StoreError
from reput.files import Mapping
from reput.formats.consume_queue import UNIT_SIZE
from reput.kernels.queues import consume_queue as kernels
from reput.store.log.commit_log import CommitLog
from reput.store.queues.consume_queue import ConsumeQueue
from reput.store.queues.tables import QueueTables
from reput.store.reads.get import MOST_PULL_SIZE, GetMessage
from reput.store.reads.pages import Pages

#: A window of 256 KiB that was in memory counts so for a while: asking for each pull takes as long as all the rest.
_RECENT_S, _WINDOW_SHIFT = 0.05, 18
#: A pull whose messages lie in more windows asks for the messages alone.
_MOST_WINDOWS = 4


class PulledRun(NamedTuple):
    """Messages of one pull, and where the queue begins and ends.

    Attributes:
        following: The queue offset after them.
        min_offset, max_offset: The queue's.
        messages, size: Their number, and the bytes of their records.
        segments, segment_count: Address and number of the segments that they lie in (`kernels.records.pulled_records`);
            good until the thread's next call.
        mapping: Their file's map, which must live as long as they are read.
    """

    following: int
    min_offset: int
    max_offset: int
    messages: int
    size: int
    segments: int
    segment_count: int
    mapping: Mapping


class PulledRunFinder:
    """Finds what a plain pull takes, as `GetMessage` does, which is to be asked where this finds nothing.

    Args:
        log, queues: The store's.
        getting: Knows the limits of pulls.
        pages: Asks for pages.
    """

    def __init__(self, log: CommitLog, queues: QueueTables, getting: GetMessage, pages: Pages) -> None:
        self._log, self._queues, self._pages = log, queues.simple, pages
        self._limits, self._most_count = getting.limits_address, getting.most_count

    def find(self, topic: str, queue_id: int, offset: int, max_msg_nums: int, most_size: int) -> PulledRun | None:
        """See `MessageReader.find_pull`."""
        queue = self._queues.find(topic, queue_id)
        if type(queue) is not ConsumeQueue:
            return None
        low, high, pages = queue.min_offset, queue.max_offset, self._pages
        if not low <= offset < high or not queue.is_at_hand(offset):
            return None
        log = self._log.queue
        files, end = log.mapped_files, self._log.confirm_offset  # the list is taken once: retention replaces it
        most = max_msg_nums if max_msg_nums < self._most_count else self._most_count
        try:
            units = queue.units_from(offset)
            if units is None or not files:
                return None
            address, count, mapping = units
            begin, asked = address - mapping.address, max(min(count, most), 1)
            if not self._are_recent(
                mapping, begin, begin + asked * UNIT_SIZE, begin + count * UNIT_SIZE
            ) and not pages.are_in_memory_at(mapping, begin, asked * UNIT_SIZE):
                return None
            log_begin = files[0].start_offset
            taken, size, first, is_on_disk = kernels.select_run(
                address, count, 0, log_begin, end, most, MOST_PULL_SIZE, self._limits
            )
            if not taken or is_on_disk or size > most_size:
                return None
            file = files[(first - log_begin) // log.file_size]
            if not file.is_mapped:
                return None
            segments, segment_count, begin, last, mapping = pages.find_records(file, address, taken)
            if not self._are_recent(
                mapping, begin, last, min(end - file.start_offset, file.size)
            ) and not pages.are_in_memory(mapping, segments, segment_count):
                return None
        except StoreError:  # the plain way says what it is
            return None
        counts = queue.counts
        counts.get_times += 1
        counts.got_messages += taken
        counts.got_bytes += size
        return PulledRun(offset + taken, low, high, taken, size, segments, segment_count, mapping)

    def _are_recent(self, mapping: Mapping, begin: int, end: int, limit: int) -> bool:
        """Whether the windows that [begin, end) of a map lies in are in memory up to a limit, or were a moment ago."""
        first, last = begin >> _WINDOW_SHIFT, end - 1 >> _WINDOW_SHIFT
        if last - first >= _MOST_WINDOWS:
            return False
        recent, now = mapping.recent, monotonic()
        for window in range(first, last + 1):
            window_begin = window << _WINDOW_SHIFT
            window_end = min(window_begin + (1 << _WINDOW_SHIFT), limit)
            until, known = recent.get(window, (0.0, 0))
            if until > now and known >= min(end, window_end):
                continue
            if not self._pages.are_in_memory_at(mapping, window_begin, window_end - window_begin):
                return False
            recent[window] = now + _RECENT_S, window_end
        return True
