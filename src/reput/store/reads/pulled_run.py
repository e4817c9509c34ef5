"""PulledRunFinder: records of a plain pull as they lie in the mapped log, for a loop that copies them once."""

from __future__ import annotations

from time import monotonic
from typing import NamedTuple

from reput.files import Mapping
from reput.formats.consume_queue import UNIT_SIZE
from reput.kernels.queues import consume_queue
from reput.kernels.queues.consume_queue import PULL_RESULT_COUNT, select_units
from reput.kernels.records import pulled_records
from reput.store.log.commit_log import CommitLog
from reput.store.queues.consume_queue import ConsumeQueue
from reput.store.queues.tables import QueueTables
from reput.store.reads.get import FIRST_PAIRS_SIZE, MOST_PULL_SIZE, PAIRS, GetMessage, make_room_for_pairs
from reput.store.reads.pages import Pages
from reput.store.reads.scratch import Scratch
from reput.store.reads.tag_filter import TagFilter, parse_tags

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
        self._limits, self._most_count, self._memory_size = (
            getting.limits_address,
            getting.most_count,
            getting.memory_size,
        )
        self._filter_units = getting.filter_units
        self._scratch = Scratch(FIRST_PAIRS_SIZE)

    def find(
        self, topic: str, queue_id: int, offset: int, max_msg_nums: int, tags: str | None, most_size: int
    ) -> PulledRun | None:
        """See `MessageReader.find_pull`."""
        queue = self._queues.find(topic, queue_id)
        if type(queue) is not ConsumeQueue:
            return None
        low, high, pages, log = queue.min_offset, queue.max_offset, self._pages, self._log.queue
        if not low <= offset < high or not queue.is_at_hand(offset):
            return None
        units = queue.units_from(offset)  # before the log's end: who reads it earlier passes over units behind it
        files, end = log.mapped_files, self._log.confirm_offset  # the list is taken once: retention replaces it
        tag_filter = None if tags is None else parse_tags(tags)
        if units is None or not files or (tag_filter is not None and queue.ext is not None):
            return None
        log_begin = files[0].start_offset
        if tag_filter is None:
            records, taken, examined, first, is_on_disk = self._select_run(units, max_msg_nums, log_begin, end)
        else:
            records, taken, examined, first, is_on_disk = self._select_tagged(
                units, max_msg_nums, tag_filter, log_begin, end
            )
        if not taken or is_on_disk:
            return None
        file = files[(first - log_begin) // log.file_size]
        if not file.is_mapped:
            return None
        are_pairs, limit = tag_filter is not None, min(end - file.start_offset, file.size)
        segments, count, size, mapping = pages.find_records(file, records, taken, are_pairs=are_pairs)
        begin, last = pulled_records.span_of_segments(segments, count)
        if not self._are_recent(
            mapping, begin - mapping.address, last - mapping.address, limit
        ) and not pages.are_in_memory(mapping, segments, count):
            return None
        if tag_filter is not None:  # hashes are equal; texts may differ
            taken = tag_filter.keep_matching(mapping, file.start_offset, records, taken)
            segments, count, size, mapping = pages.find_records(file, records, taken, are_pairs=True)
        if not taken or size > most_size:
            return None
        counts = queue.counts
        counts.get_times += 1
        counts.got_messages += taken
        counts.got_bytes += size
        return PulledRun(offset + examined, low, high, taken, size, segments, count, mapping)

    def _select_run(
        self, units: tuple[int, int, Mapping], max_msg_nums: int, log_begin: int, end: int
    ) -> tuple[int, int, int, int, bool]:
        """The first units: their address, how many (twice), the first message's place, whether it counts as on disk."""
        address, count, mapping = units
        most = max_msg_nums if max_msg_nums < self._most_count else self._most_count
        if not self._are_units_in_memory(address, max(min(count, most), 1), count, mapping):
            return 0, 0, 0, 0, False
        taken, _, first, is_on_disk = consume_queue.select_run(
            address, count, 0, log_begin, end, most, MOST_PULL_SIZE, self._limits
        )
        return address, taken, taken, first, is_on_disk != 0

    def _select_tagged(
        self, units: tuple[int, int, Mapping], max_msg_nums: int, tag_filter: TagFilter, log_begin: int, end: int
    ) -> tuple[int, int, int, int, bool]:
        """Units with a wanted hash: address of their pairs, how many, how many were examined, then as `_select_run`."""
        address, count, mapping = units
        examine = min(max(max_msg_nums, self._filter_units), count)
        if not self._are_units_in_memory(address, examine, count, mapping):
            return 0, 0, 0, 0, False
        scratch = self._scratch
        most = make_room_for_pairs(scratch, max_msg_nums, self._most_count, examine)
        select_units(
            address, examine, log_begin, end, tag_filter.address, tag_filter.hashes.size, most, MOST_PULL_SIZE,
            self._limits, scratch.address,
        )  # fmt: skip
        taken, examined, _, _, last, first = scratch.numbers[:PULL_RESULT_COUNT].tolist()
        return scratch.address + PAIRS, taken, examined, first, end - last > self._memory_size

    def _are_units_in_memory(self, address: int, asked: int, count: int, mapping: Mapping) -> bool:
        """Whether the first ones of `count` units are in memory."""
        begin, size = address - mapping.address, asked * UNIT_SIZE
        return self._are_recent(
            mapping, begin, begin + size, begin + count * UNIT_SIZE
        ) or self._pages.are_in_memory_at(mapping, begin, size)

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
