"""Reading a queue: which messages one pull gets, and the result that holds them as one buffer with offsets."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from threading import local
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from reput.config.message_store import MessageStoreConfig
from reput.files import FileLayer
from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE
from reput.formats.java import string_hash
from reput.formats.message import MessageExt
from reput.kernels.batch_consume_queue import select_batch_units
from reput.kernels.consume_queue import PULL_RESULT_COUNT, PullLimits, select_units
from reput.kernels.index_file import scratch_row
from reput.kernels.record_scan import read_records_at
from reput.kernels.tags import keep_matching_tags
from reput.store.commit_log import CommitLog
from reput.store.consume_queue import ConsumeQueue
from reput.store.queue_tables import Queue, QueueTables
from reput.store.results import GetMessageStatus
from reput.store.statistics import StoreStatsService

if TYPE_CHECKING:
    import pyarrow as pa

_SELECTED = (
    GetMessageStatus.FOUND,
    GetMessageStatus.NO_MATCHED_MESSAGE,
    GetMessageStatus.MESSAGE_WAS_REMOVING,
)
_UNIT_SIZE = 20
_MAX_PULL_SIZE = 128 << 20
_MIN_PULL_SIZE = 100
_PAIR_SIZE = 16


class TagFilter(NamedTuple):
    """A tag expression, ready for the kernels: hashes int32[n], and the texts one behind the other."""

    hashes: npt.NDArray[np.int32]
    address: int
    texts: npt.NDArray[np.uint8]
    text_offsets: npt.NDArray[np.int32]


@lru_cache(maxsize=1024)
def parse_tags(expression: str | None) -> TagFilter | None:
    """`a || b` -> the tags it names; None where it takes all: empty, `*` (`FilterAPI.buildSubscriptionData`)."""
    if expression is None or expression.strip() in ("", "*"):
        return None
    tags = [tag for tag in (part.strip() for part in expression.split("||")) if tag]
    hashes = np.array([string_hash(tag) for tag in tags], np.int32)
    texts = [tag.encode() for tag in tags]
    offsets = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    return TagFilter(hashes, hashes.ctypes.data, np.frombuffer(b"".join(texts) or b"\0", np.uint8), offsets)


class GetMessageResult:
    """The messages of one pull: one buffer, and where in it each lies. Nothing is copied before it is asked for.

    Attributes:
        status: FOUND, or why there is nothing.
        next_begin_offset: The queue offset to ask for next.
        min_offset, max_offset: Of the queue.
        suggest_pulling_from_slave: More of the log lies behind this pull than what counts as in memory.
    """

    __slots__ = (
        "_base_offset",
        "_buffer",
        "_pairs",
        "_store_name",
        "max_offset",
        "min_offset",
        "next_begin_offset",
        "status",
        "suggest_pulling_from_slave",
    )

    def __init__(
        self,
        status: GetMessageStatus,
        next_begin_offset: int,
        min_offset: int,
        max_offset: int,
        pairs: bytes = b"",
        buffer: memoryview | None = None,
        base_offset: int = 0,
        store_name: str = "",
        suggest_pulling_from_slave: bool = False,
    ) -> None:
        self.status = status
        self.next_begin_offset = next_begin_offset
        self.min_offset = min_offset
        self.max_offset = max_offset
        self._pairs = pairs
        self._buffer = buffer
        self._base_offset = base_offset
        self._store_name = store_name
        self.suggest_pulling_from_slave = suggest_pulling_from_slave

    def __len__(self) -> int:
        return len(self._pairs) // _PAIR_SIZE

    def __repr__(self) -> str:
        return (
            f"GetMessageResult(status={self.status.name}, messages={len(self)}, "
            f"next_begin_offset={self.next_begin_offset}, min_offset={self.min_offset}, max_offset={self.max_offset})"
        )

    @property
    def pairs(self) -> npt.NDArray[np.int64]:
        """int64[messages, 2], commit log offset and size of each record."""
        return np.frombuffer(self._pairs, np.int64).reshape(-1, 2)

    @property
    def buffer(self) -> memoryview:
        """The bytes that hold the records (and others between them); `positions` say where."""
        return self._buffer if self._buffer is not None else memoryview(b"")

    @property
    def positions(self) -> npt.NDArray[np.int64]:
        """int64[messages], where in `buffer` each record starts."""
        return self.pairs[:, 0] - self._base_offset

    def messages(self) -> list[MessageExt]:
        """The messages; each decodes a field when it is first asked for. Bodies are as stored."""
        buffer = self.buffer
        return [MessageExt(buffer, position) for position in self.positions.tolist()]

    def raw(self) -> list[memoryview]:
        """The records' bytes, as they lie in the log."""
        buffer = self.buffer
        ends = (self.positions + self.pairs[:, 1]).tolist()
        return [buffer[a:b] for a, b in zip(self.positions.tolist(), ends, strict=True)]

    def to_arrow(self, columns: Sequence[str] | None = None, *, raw_body: bool = False) -> pa.RecordBatch:
        """The messages as Arrow; columns as in `read_log`, bodies decompressed unless `raw_body`.

        Raises:
            ConfigError: No such column.
        """
        import pyarrow as pa

        from reput.log.reader import record_batches
        from reput.log.selection import make_selection

        selection = make_selection(columns=columns, raw_body=raw_body, store=self._store_name)
        if not len(self):
            return pa.RecordBatch.from_pylist([], selection.schema)
        data = np.frombuffer(self.buffer, np.uint8)
        records = read_records_at(data, self.positions, self.pairs[:, 0].copy())
        batches = record_batches(records, selection)
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


class _Scratch(local):
    """Memory of one thread for the kernel's answer; addresses are taken once, for asking costs 1 us."""

    def __init__(self) -> None:
        self.grow(64)

    def grow(self, count: int) -> None:
        """Make room for so many pairs, behind what the kernel says of them."""
        answer = np.empty(PULL_RESULT_COUNT + 2 * count, np.int64)
        self.count = count
        self.address = answer.ctypes.data
        self.pairs_address = self.address + 8 * PULL_RESULT_COUNT
        self.result = answer[:PULL_RESULT_COUNT]
        self.pairs = answer[PULL_RESULT_COUNT:].data.cast("B")


class GetMessage:
    """`DefaultMessageStore.getMessage`: statuses, next offset, filter and limits as RocketMQ's.

    A get never crosses a consume queue file, and always returns one message where one matches, whatever the limits.
    Unlike RocketMQ's it does not cross a commit log file either: once a gigabyte a pull is short; a pull is one buffer.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTables,
        config: MessageStoreConfig,
        files: FileLayer,
        store_name: str,
        stats: StoreStatsService,
    ) -> None:
        self._log = log
        self._stats = stats
        self._queues = queues.simple
        self._batch_queues = queues.batch
        self._store_name = store_name
        self._limits = np.array(
            PullLimits(
                log.queue.file_size,
                files.physical_memory() * config.access_message_in_memory_max_ratio // 100,
                config.max_transfer_count_on_message_in_memory,
                config.max_transfer_bytes_on_message_in_memory,
                config.max_transfer_count_on_message_in_disk,
                config.max_transfer_bytes_on_message_in_disk,
            ),
            np.int64,
        )
        self._limits_address = self._limits.ctypes.data
        self._file_size = log.queue.file_size
        self._memory_size = int(self._limits[1])
        self._most_count = int(max(self._limits[2], self._limits[4]))
        self._filter_units = config.max_filter_message_size // _UNIT_SIZE
        self._filter_batch_units = -(-config.max_filter_message_size // BATCH_UNIT_SIZE)
        self._scratch = _Scratch()

    def get(
        self, topic: str, queue_id: int, offset: int, max_msg_nums: int, tags: str | None, max_total_size: int | None
    ) -> GetMessageResult:
        """See `MessageStore.get_message`."""
        queue: Queue | None = self._queues.find(topic, queue_id)
        if queue is None:
            queue = self._batch_queues.find(topic, queue_id)
        if queue is None or queue.max_offset == 0:
            return self._nothing(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
        low, high = queue.min_offset, queue.max_offset
        if offset < low:
            return self._nothing(GetMessageStatus.OFFSET_TOO_SMALL, low, low, high)
        if offset >= high:
            overflow = offset == high
            return self._nothing(
                GetMessageStatus.OFFSET_OVERFLOW_ONE if overflow else GetMessageStatus.OFFSET_OVERFLOW_BADLY,
                high, low, high,
            )  # fmt: skip
        units = queue.units_from(offset)
        if units is None:
            following = offset + queue.file_size // _UNIT_SIZE
            following -= following % (queue.file_size // _UNIT_SIZE)
            return self._nothing(GetMessageStatus.OFFSET_FOUND_NULL, following, low, high)
        tag_filter = None if tags is None else parse_tags(tags)
        return self._select(queue, offset, units[0], units[1], max_msg_nums, tag_filter, max_total_size)

    def _nothing(
        self, status: GetMessageStatus, following: int, low: int, high: int, behind: bool = False
    ) -> GetMessageResult:
        self._stats.get_miss_times += 1
        return GetMessageResult(status, following, low, high, suggest_pulling_from_slave=behind)

    def _select(
        self,
        queue: Queue,
        offset: int,
        address: int,
        count: int,
        max_msg_nums: int,
        tag_filter: TagFilter | None,
        max_total_size: int | None,
    ) -> GetMessageResult:
        scratch = self._scratch
        # Conditionals instead of min and max, which would be a tenth of the call.
        most = self._most_count if max_msg_nums > self._most_count else max_msg_nums if max_msg_nums > 1 else 1
        if most > scratch.count:
            scratch.grow(most)
        size = _MAX_PULL_SIZE if max_total_size is None else min(max(max_total_size, _MIN_PULL_SIZE), _MAX_PULL_SIZE)
        tags, tag_count = (0, 0) if tag_filter is None else (tag_filter.address, tag_filter.hashes.size)
        log, low, high = self._log, queue.min_offset, queue.max_offset
        files, end = log.queue.mapped_files, log.confirm_offset  # these files: retention replaces the list
        log_begin = files[0].start_offset if files else end
        if type(queue) is ConsumeQueue:
            examine = max_msg_nums if max_msg_nums > self._filter_units else self._filter_units
            examine = examine if examine < count else count
            resolved = None  # kept until the kernel has read it
            if tag_count and queue.ext is not None:
                resolved = queue.ext.resolve(address, examine)
                address = resolved.ctypes.data
            select_units(
                address, examine, log_begin, end, tags, tag_count, most, size, self._limits_address, scratch.address,
            )  # fmt: skip
            taken, examined, selected, size, last, first = scratch.result.tolist()
            following = offset + examined
        else:
            if self._most_count > scratch.count:
                scratch.grow(self._most_count)
            # RocketMQ looks through (first message of a unit - offset) * 46 bytes, however many units these are.
            examine = max(max_msg_nums, self._filter_batch_units)
            select_batch_units(
                address, count, min(offset + examine, high), log_begin, end, tags, tag_count, max_msg_nums, size,
                self._limits_address, scratch.address,
            )  # fmt: skip
            taken, following, selected, size, last, first = scratch.result.tolist()
            following = max(following, offset + 1)  # whatever a damaged unit says
        behind = end - last > self._memory_size
        if not taken:
            return self._nothing(_SELECTED[selected], following, low, high, behind)
        file = files[(first - log_begin) // self._file_size]  # mapped already where retention deletes it just now
        buffer, base = file.mapping.view, file.start_offset
        if tag_filter is not None:
            taken = _keep_matching(scratch, taken, buffer, base, tag_filter)
            if not taken:
                return self._nothing(GetMessageStatus.NO_MATCHED_MESSAGE, following, low, high, behind)
            size = sum(scratch.pairs[: taken * _PAIR_SIZE].cast("q")[1::2])
        counts = queue.counts
        counts.get_times += 1
        counts.got_messages += taken
        counts.got_bytes += size
        pairs = scratch.pairs[: taken * _PAIR_SIZE].tobytes()
        return GetMessageResult(
            GetMessageStatus.FOUND, following, low, high, pairs, buffer, base, self._store_name, behind
        )


def _keep_matching(scratch: _Scratch, count: int, buffer: memoryview, base: int, tag_filter: TagFilter) -> int:
    """Close the pairs up to those whose tags have the wanted text; returns how many."""
    data = np.frombuffer(buffer, np.uint8)
    return int(
        keep_matching_tags(
            data.ctypes.data,
            data.size,
            base,
            scratch.pairs_address,
            count,
            tag_filter.texts.ctypes.data,
            tag_filter.text_offsets,
            *scratch_row(),
        )
    )
