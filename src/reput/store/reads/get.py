"""Pull of messages from a queue: which messages one `get_message` returns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.config.message_store import MessageStoreConfig
from reput.files import FileLayer, Mapping
from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE
from reput.formats.consume_queue import UNIT_SIZE
from reput.kernels.queues import consume_queue
from reput.kernels.queues.batch_consume_queue import select_batch_units
from reput.kernels.queues.consume_queue import (
    ASKED_FILES,
    PULL_RESULT_COUNT,
    UNASKED,
    UNASKED_UNITS,
    SelectLimits,
    select_units,
)
from reput.store.log.commit_log import CommitLog
from reput.store.log.mapped_file import MappedFile
from reput.store.queues.consume_queue import ConsumeQueue
from reput.store.queues.tables import Queue, QueueTables
from reput.store.reads.get_result import PAIR_TYPE, GetMessageResult, GetRawResult
from reput.store.reads.message_filter import FilterPass, MessageFilter, unit_table
from reput.store.reads.pages import Cold, NotInMemory, Pages
from reput.store.reads.scratch import Scratch
from reput.store.reads.tag_filter import TagFilter, parse_tags
from reput.store.results import GetMessageStatus
from reput.store.statistics import StoreStatsService

_FOUND = GetMessageStatus.FOUND  # 50 ns less than the attribute of the class
_ONCE = Cold.ONCE
_SELECTED = (
    _FOUND,
    GetMessageStatus.NO_MATCHED_MESSAGE,
    GetMessageStatus.MESSAGE_WAS_REMOVING,
)
#: Bytes of messages after which a pull ends.
MOST_PULL_SIZE = 128 << 20
_MIN_PULL_SIZE = 100
#: The tags code of units that a filter wants.
_WANTED = np.array([1], np.int32)
_PAIR_SIZE = PAIR_TYPE.itemsize
#: Position of the pairs in what a kernel returns.
PAIRS = 8 * PULL_RESULT_COUNT
#: Memory for what kernels return of most pulls.
FIRST_PAIRS_SIZE = PAIRS + 64 * _PAIR_SIZE


def make_room_for_pairs(scratch: Scratch, max_msg_nums: int, most_count: int, examined: int) -> int:
    """Make room for what a kernel returns; the number of messages that it may take of `examined` units.

    There are no more pairs than units, whatever a client asks for and the configuration allows.
    """
    most = max(min(max_msg_nums, most_count, examined), 1)
    size = PAIRS + most * _PAIR_SIZE
    if size > scratch.size:
        scratch.grow(size)
    return most


class _Pull(NamedTuple):
    """A pull that the short way does not answer: what is asked for, and what there is of its queue and the log.

    Attributes:
        queue: The queue.
        offset: The first message, which the queue has.
        units: Address, number and map of the units from the offset on, in one file.
        max_msg_nums: Number of messages that are asked for.
        tag_filter: Chooses messages by their tags.
        message_filter: Chooses messages by their properties.
        most_size: Bytes of messages after which the pull ends.
        files: The log's files.
        log_begin: The commit log offset of the first one.
        end: The commit log offset after the last message that may be seen.
        cold: What is done at pages that are not in memory.
    """

    queue: Queue
    offset: int
    units: tuple[int, int, Mapping]
    max_msg_nums: int
    tag_filter: TagFilter | None
    message_filter: MessageFilter | None
    most_size: int
    files: list[MappedFile]
    log_begin: int
    end: int
    cold: Cold


class GetMessage:
    """`DefaultMessageStore.getMessage`: statuses, next offset, filter and limits as RocketMQ's.

    A pull never crosses a consume queue file. If a message matches, it returns one at least, whatever the limits.
    Unlike RocketMQ's it does not cross a commit log file either, as its result is one buffer: once a gigabyte a pull is
    short.

    Attributes:
        limits_address: Of the `SelectLimits` of all pulls.
        most_count: Messages of a pull at the most.
        memory_size: The last this many bytes of the log count as in memory.
        filter_units: Units that a pull with a filter examines.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTables,
        config: MessageStoreConfig,
        files: FileLayer,
        store_path: str,
        stats: StoreStatsService,
    ) -> None:
        self._log = log
        self._pages = Pages(files)
        self._stats = stats
        self._queues = queues.simple
        self._batch_queues = queues.batch
        self._store_path = store_path
        #: What `SelectLimits.asked` is, and the marks that it points to, which may live longer than their map.
        self._asked = np.full((ASKED_FILES, 2), -1, np.int64)
        self._marks: list[memoryview | None] = [None] * ASKED_FILES
        self._limits = np.array(
            SelectLimits(
                log.queue.file_size,
                files.physical_memory() * config.access_message_in_memory_max_ratio // 100,
                config.max_transfer_count_on_message_in_memory,
                config.max_transfer_bytes_on_message_in_memory,
                config.max_transfer_count_on_message_in_disk,
                config.max_transfer_bytes_on_message_in_disk,
                self._asked.ctypes.data,
            ),
            np.int64,
        )
        self.limits_address = self._limits.ctypes.data
        self.memory_size = int(self._limits[1])
        self.most_count = int(max(self._limits[2], self._limits[4]))
        self.filter_units = config.max_filter_message_size // UNIT_SIZE
        self._filter_batch_units = -(-config.max_filter_message_size // BATCH_UNIT_SIZE)
        self._scratch = Scratch(FIRST_PAIRS_SIZE)
        self.log_files_have(log.queue.file_size)

    def log_files_have(self, size: int) -> None:
        """Look for records in log files of `size` bytes from now on; changed only while the log has none."""
        self._file_size = self._limits[0] = size
        self._filtering = FilterPass(self._pages, size)

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_msg_nums: int,
        tags: str | None,
        max_total_size: int | None,
        cold: Cold = Cold.ONCE,
        message_filter: MessageFilter | None = None,
    ) -> GetMessageResult:
        """See `MessageStore.get_message`.

        Args:
            message_filter: Chooses messages by their properties; without `tags`.
            cold: What is done at pages that are not in memory.

        Raises:
            NotInMemory: With Cold.REFUSE.
            StoreError: The disk cannot read a page.
        """
        queue: Queue | None = self._queues.find(topic, queue_id)
        if queue is None:
            queue = self._batch_queues.find(topic, queue_id)
        if queue is None or queue.max_offset == 0:
            return self._empty(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
        low, high = queue.min_offset, queue.max_offset
        if offset < low:
            return self._empty(GetMessageStatus.OFFSET_TOO_SMALL, low, low, high)
        if offset >= high:
            overflow = offset == high
            return self._empty(
                GetMessageStatus.OFFSET_OVERFLOW_ONE if overflow else GetMessageStatus.OFFSET_OVERFLOW_BADLY,
                high, low, high,
            )  # fmt: skip
        if cold is Cold.REFUSE and not queue.is_at_hand(offset):
            raise NotInMemory
        units = queue.units_from(offset)
        if units is None:
            return self._empty(GetMessageStatus.OFFSET_FOUND_NULL, queue.roll_next_file(offset), low, high)
        tag_filter = None if tags is None else parse_tags(tags)
        # A conditional, as `min` would take a tenth of the call's time.
        most = max_msg_nums if max_msg_nums < self.most_count else self.most_count
        most_size = MOST_PULL_SIZE
        if max_total_size is not None:
            most_size = min(max(max_total_size, _MIN_PULL_SIZE), MOST_PULL_SIZE)
        log = self._log
        files, end = log.queue.mapped_files, log.confirm_offset  # the list is taken once: retention replaces it
        if tag_filter is None and message_filter is None and files and type(queue) is ConsumeQueue:
            address, count, mapping = units
            log_begin = files[0].start_offset
            fields = mapping.fields
            if cold is not _ONCE:
                fields = 0
                self._pages.look_at_units(cold, queue, offset, units, most)
            taken, size, first, is_on_disk = consume_queue.select_run(
                address, count, fields, log_begin, end, most, most_size, self.limits_address
            )
            if is_on_disk == UNASKED_UNITS:
                self._pages.look_at_units(cold, queue, offset, units, most)
                taken, size, first, is_on_disk = consume_queue.select_run(
                    address, count, 0, log_begin, end, most, most_size, self.limits_address
                )
                is_on_disk += UNASKED
            if taken:
                file = files[(first - log_begin) // self._file_size]  # retention maps a file before it deletes it
                if is_on_disk > 1 or not fields:
                    is_on_disk &= 1
                    self._look_at_records(cold, file, address, taken)
                counts = queue.counts
                counts.get_times += 1
                counts.got_messages += taken
                counts.got_bytes += size
                return GetMessageResult(
                    _FOUND, offset + taken, low, high, is_on_disk == 1, taken, mapping.view, address - mapping.address,
                    file.mapping.view, file.start_offset, self._store_path,
                )  # fmt: skip
        log_begin = files[0].start_offset if files else end
        return self._select(
            _Pull(
                queue, offset, units, max_msg_nums, tag_filter, message_filter, most_size, files, log_begin, end, cold
            )
        )

    def _look_at_records(self, cold: Cold, file: MappedFile, units: int, count: int) -> None:
        """Look at the records of units, and let `select_run` know what was asked for of their file."""
        self._pages.look_at_records(cold, file, units, count, are_pairs=False)
        if cold is _ONCE:
            mapping, number = file.mapping, file.start_offset // self._file_size % ASKED_FILES
            if self._marks[number] is not mapping.asked:
                self._asked[number, 0] = -1  # another thread must not meet the marks of another file
                self._marks[number] = mapping.asked
                self._asked[number] = file.start_offset, mapping.marks

    def get_raw(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_msg_nums: int,
        tags: str | None,
        message_filter: MessageFilter | None = None,
        *,
        may_wait: bool,
    ) -> GetRawResult | None:
        """See `MessageStore.get_raw`."""
        cold = Cold.READ if may_wait else Cold.REFUSE
        try:
            result = self.get(topic, queue_id, offset, max_msg_nums, tags, None, cold, message_filter)
        except NotInMemory:
            return None
        records = self._pages.gather(result.buffer) if result.status is _FOUND else b""
        return GetRawResult(
            result.status, result.next_begin_offset, result.min_offset, result.max_offset, records, len(result),
            result.suggest_pulling_from_slave,
        )  # fmt: skip

    def _empty(
        self, status: GetMessageStatus, following: int, low: int, high: int, is_on_disk: bool = False
    ) -> GetMessageResult:
        """A result without messages; `is_on_disk`: more of the log follows than memory is taken to hold."""
        self._stats.get_miss_times += 1
        return GetMessageResult(status, following, low, high, suggest_pulling_from_slave=is_on_disk)

    def _select(self, pull: _Pull) -> GetMessageResult:
        """A pull with a filter, from a batch consume queue, or whose first units give no message."""
        queue, files, scratch = pull.queue, pull.files, self._scratch
        low, high = queue.min_offset, queue.max_offset
        if type(queue) is ConsumeQueue:
            taken, examined, selected, size, last, first = self._select_units(pull, queue)
            following = pull.offset + examined
        else:
            taken, following, selected, size, last, first = self._select_batch_units(pull, high)
            following = max(following, pull.offset + 1)  # a damaged unit must not lead back
        is_on_disk = pull.end - last > self.memory_size
        if not taken:
            return self._empty(_SELECTED[selected], following, low, high, is_on_disk)
        file = files[(first - pull.log_begin) // self._file_size]
        self._pages.look_at_records(pull.cold, file, scratch.address + PAIRS, taken, are_pairs=True)
        mapping, base = file.mapping, file.start_offset
        kept = self._keep(pull, taken, mapping, base)
        if kept is not None:
            if not kept:
                return self._empty(GetMessageStatus.NO_MATCHED_MESSAGE, following, low, high, is_on_disk)
            taken, size = kept, sum(scratch.numbers[PULL_RESULT_COUNT + 1 : PULL_RESULT_COUNT + 2 * kept : 2])
            self._pages.look_at_records(pull.cold, file, scratch.address + PAIRS, taken, are_pairs=True)
        counts = queue.counts
        counts.get_times += 1
        counts.got_messages += taken
        counts.got_bytes += size
        pairs = bytes(scratch.view[PAIRS : PAIRS + taken * _PAIR_SIZE])
        return GetMessageResult(
            _FOUND, following, low, high, is_on_disk, taken, pairs, 0, mapping.view, base, self._store_path,
            PAIR_TYPE,
        )  # fmt: skip

    def _select_units(self, pull: _Pull, queue: ConsumeQueue) -> list[int]:
        """Let the kernel choose units of a consume queue; their pairs are in the scratch, its numbers are returned."""
        scratch, tag_filter, message_filter, cold = self._scratch, pull.tag_filter, pull.message_filter, pull.cold
        tags, tag_count = (0, 0) if tag_filter is None else (tag_filter.address, tag_filter.hashes.size)
        address, count, _ = pull.units
        examine = min(max(pull.max_msg_nums, self.filter_units), count)
        most = make_room_for_pairs(scratch, pull.max_msg_nums, self.most_count, examine)
        self._pages.look_at_units(cold, queue, pull.offset, pull.units, examine)
        resolved: npt.NDArray[np.generic] | None = None  # kept until the kernel has read it
        if tag_count and queue.ext is not None:
            if cold is Cold.REFUSE:
                raise NotInMemory
            resolved = queue.ext.resolve(address, examine)
            address = resolved.ctypes.data
        elif message_filter is not None:  # its answers stand in place of the tags codes
            resolved = unit_table(address, examine)
            address = resolved.ctypes.data
            examine = self._filtering.mark(message_filter, resolved, most, pull.files, pull.end, cold)
            tags, tag_count = _WANTED.ctypes.data, 1
        select_units(
            address, examine, pull.log_begin, pull.end, tags, tag_count, most, pull.most_size, self.limits_address,
            scratch.address,
        )  # fmt: skip
        numbers: list[int] = scratch.numbers[:PULL_RESULT_COUNT].tolist()
        return numbers

    def _select_batch_units(self, pull: _Pull, max_offset: int) -> list[int]:
        """As `_select_units`, from a batch consume queue; the second number is the offset to go on at."""
        scratch, tag_filter = self._scratch, pull.tag_filter
        tags, tag_count = (0, 0) if tag_filter is None else (tag_filter.address, tag_filter.hashes.size)
        address, count, _ = pull.units
        make_room_for_pairs(scratch, self.most_count, self.most_count, count)
        # RocketMQ looks through (first message of a unit - offset) * 46 bytes, whatever the number of units.
        examine = max(pull.max_msg_nums, self._filter_batch_units)
        select_batch_units(
            address, count, min(pull.offset + examine, max_offset), pull.log_begin, pull.end, tags, tag_count,
            pull.max_msg_nums, pull.most_size, self.limits_address, scratch.address,
        )  # fmt: skip
        numbers: list[int] = scratch.numbers[:PULL_RESULT_COUNT].tolist()
        return numbers

    def _keep(self, pull: _Pull, count: int, mapping: Mapping, base: int) -> int | None:
        """Keep the pairs that a filter wants whose answer is not in the units; their number, None without one."""
        if pull.tag_filter is not None:
            return pull.tag_filter.keep_matching(mapping, base, self._scratch.address + PAIRS, count)
        if pull.message_filter is not None and type(pull.queue) is not ConsumeQueue:
            return self._keep_wanted(count, pull.message_filter, pull.files, pull.cold)
        return None

    def _keep_wanted(self, count: int, message_filter: MessageFilter, files: list[MappedFile], cold: Cold) -> int:
        """Keep the pairs of the messages that a filter wants, at the front; returns their number."""
        pairs = np.frombuffer(self._scratch.numbers, np.int64, 2 * count, PAIRS).reshape(-1, 2)
        wanted, _ = self._filtering.look(message_filter, pairs.copy(), files, cold)
        kept = pairs[wanted]
        pairs[: len(kept)] = kept
        return len(kept)
