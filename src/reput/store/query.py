"""Finding messages by key, by time, by commit log offset and by message id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from threading import local

import numpy as np
import numpy.typing as npt

from reput.errors import CorruptRecordError
from reput.formats.consume_queue import FILLER
from reput.formats.message import MessageExt, decode_message_id
from reput.formats.record import TOTAL_SIZE
from reput.kernels.index_file import find_key, hash_index_keys, scratch_row, topic_hash, verify_keys
from reput.store.commit_log import CommitLog
from reput.store.index_service import IndexService
from reput.store.mapped_file_queue import FEW_LOG_FILES, LogMaps
from reput.store.queue_tables import Queue

_END_OF_TIME = (1 << 62) - 1


class _Scratch(local):
    """Memory of one thread for a query by one key; addresses are taken once, for asking costs 1 us."""

    def __init__(self) -> None:
        self.grow(1024, 64)

    def grow(self, text_size: int, count: int) -> None:
        """Make room for the text of `topic#key`, and for so many offsets."""
        text = np.empty(text_size, np.uint8)
        self.text_size, self.count = text_size, count
        self.text, self.text_address = text.data, text.ctypes.data
        self.offsets = np.empty(count, np.int64)
        self.address = self.offsets.ctypes.data


class QueryMessageResult(Mapping[str, "list[MessageExt]"]):
    """The messages of many keys: a mapping from each key to its messages, oldest first, made when they are asked for.

    Attributes:
        numbers: int32[n], the key of each hit by its place in the mapping's order; ascending.
        offsets: int64[n], the commit log offset of each hit; ascending for each key.
    """

    def __init__(
        self,
        keys: list[str],
        numbers: npt.NDArray[np.int32],
        offsets: npt.NDArray[np.int64],
        views: dict[int, memoryview],
        file_size: int,
    ) -> None:
        self._keys = keys
        self._views = views
        self._file_size = file_size
        self._borders: dict[str, tuple[int, int]] | None = None
        self.numbers = numbers
        self.offsets = offsets

    def __getitem__(self, key: str) -> list[MessageExt]:
        if self._borders is None:
            borders = np.searchsorted(self.numbers, np.arange(len(self._keys) + 1)).tolist()
            self._borders = dict(zip(self._keys, pairwise(borders), strict=True))
        begin, end = self._borders[key]
        views, size = self._views, self._file_size
        return [MessageExt(views[offset // size], offset % size) for offset in self.offsets[begin:end].tolist()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"QueryMessageResult(keys={len(self._keys)}, messages={self.offsets.size})"


class QueryMessage:
    """Queries over the log of one store; `index` is None where it has none."""

    def __init__(self, log: CommitLog, index: IndexService | None) -> None:
        self._log = log
        self._index = index
        self._scratch = _Scratch()

    def by_key(self, topic: str, key: str, max_num: int, begin: int, end: int | None) -> list[MessageExt]:
        """The newest `max_num` messages of one key, oldest first; see `MessageStore.query_message`."""
        if self._index is None or max_num <= 0:
            return []
        if len(self._log.queue.mapped_files) > FEW_LOG_FILES:
            return self.by_keys(topic, [key], max_num, begin, end)[key]
        text = f"{topic}#{key}".encode()
        topic_size = len(text) - len(key.encode()) - 1
        scratch = self._scratch
        if len(text) > scratch.text_size or max_num > scratch.count:
            scratch.grow(max(len(text), scratch.text_size), max(max_num, scratch.count))
        scratch.text[: len(text)] = text
        log = self._log
        last = _END_OF_TIME if end is None else end
        maps, log_end = log.queue.maps(), log.confirm_offset
        log_begin, addresses, mappings = maps
        found = 0
        for file in reversed(self._index.index_files):
            file_begin, file_end, _, _, _, count = file.header.tolist()
            if count > 1 and file_begin <= last and file_end >= begin:
                found = find_key(
                    scratch.text_address, topic_size, len(text), file.address, file.slots, count, file_begin,
                    begin, last, log_begin, log_end, log.queue.file_size, scratch.address, found, max_num, addresses,
                )  # fmt: skip
            if file_begin < begin or found == max_num:
                break
        offsets = scratch.offsets[:found].tolist()
        if found > 1:
            offsets = sorted(set(offsets))  # a record can carry a key twice
            if len(offsets) < max_num == found:
                return self.by_keys(topic, [key], max_num, begin, end)[key]  # older ones were left out for the repeats
        size = log.queue.file_size
        return [MessageExt(mappings[(offset - log_begin) // size].view, offset % size) for offset in offsets]

    def by_keys(self, topic: str, keys: Sequence[str], max_num: int, begin: int, end: int | None) -> QueryMessageResult:
        """The newest `max_num` messages of each key, oldest first; see `MessageStore.query_messages`."""
        unique = dict.fromkeys(keys)
        numbers, offsets, maps = np.empty(0, np.int32), np.empty(0, np.int64), None
        if self._index is not None and unique and max_num > 0:
            last = _END_OF_TIME if end is None else end
            numbers, offsets, maps = self._find(topic, list(unique), max_num, begin, last)
            if (numbers[max_num:] == numbers[:-max_num]).any():
                newest = np.searchsorted(numbers, numbers, "right") - np.arange(numbers.size) <= max_num
                numbers, offsets = numbers[newest], offsets[newest]
        # Maps of the files with hits alone: they outlive the files, and the store.
        size, views = self._log.queue.file_size, {}
        if maps is not None and offsets.size:
            first = maps.begin_offset // size
            hit = set((offsets // size).tolist()) if maps.addresses.size > 1 else {first}
            views = {index: maps.mappings[index - first].view for index in hit}
        return QueryMessageResult(list(unique), numbers, offsets, views, size)

    def _find(
        self, topic: str, keys: list[str], max_num: int, begin: int, end: int
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], LogMaps]:
        """(key numbers, commit log offsets), sorted by both, of records that really carry the keys; and their files."""
        import pyarrow as pa  # 70 ms that an open can do without

        assert self._index is not None
        name = np.frombuffer(topic.encode(), np.uint8)
        text = pa.array(keys, pa.string())
        buffers = text.buffers()
        offsets = np.frombuffer(buffers[1], np.int32, len(keys) + 1)
        data = buffers[2].address if buffers[2] is not None else 0
        hashes = np.empty(len(keys), np.int32)
        hash_index_keys(topic_hash(topic.encode()), data, offsets, len(keys), hashes)
        log = self._log
        wanted = max_num
        while True:
            numbers, found = self._index.find(hashes, wanted, begin, end)
            verified = np.empty(found.size, np.uint8)
            maps = log.queue.maps(found)
            verify_keys(
                maps.addresses, maps.begin_offset, log.confirm_offset, log.queue.file_size, name.ctypes.data,
                name.size, data, offsets, numbers, found, *np.empty((2, found.size), np.int64), verified,
                *scratch_row(),
            )  # fmt: skip
            kept = verified == 1
            pairs = _sorted_pairs(numbers[kept], found[kept])
            if pairs[0].size == numbers.size:
                return *pairs, maps
            # Repeats, and entries of other keys with the same hash, took the place of what was asked for: look at more.
            short = np.bincount(numbers, minlength=len(keys)) >= wanted
            short &= np.bincount(pairs[0], minlength=len(keys)) < max_num
            if not short.any():
                return *pairs, maps
            wanted *= 4

    def by_offset(self, commit_log_offset: int) -> MessageExt | None:
        """The message whose record starts at an offset; None where none does (`lookMessageByOffset`)."""
        head = self._log.view(commit_log_offset, 8)
        if head is None:
            return None
        size = int.from_bytes(head[TOTAL_SIZE : TOTAL_SIZE + 4], "big", signed=True)
        record = self._log.view(commit_log_offset, size)
        if record is None:
            return None
        message = MessageExt(record)
        try:
            return message if message.commit_log_offset == commit_log_offset else None
        except CorruptRecordError:
            return None

    def by_message_id(self, message_id: str) -> MessageExt | None:
        """The message of an offset message id; None where no record of that host lies there.

        Raises:
            MessageIllegalError: The text is no message id.
        """
        message = self.by_offset(decode_message_id(message_id)[1])
        return message if message is not None and message.message_id == message_id.upper() else None

    def store_timestamp(self, queue: Queue, offset: int) -> int:
        """Store time (ms) of the message at a queue offset; -1 where the log no longer has it."""
        unit = queue.unit(offset)
        if unit is None or unit == FILLER:
            return -1
        message = self.by_offset(unit.commit_log_offset)
        return -1 if message is None else message.store_timestamp

    def offset_by_time(self, queue: Queue, timestamp_ms: int, *, upper: bool) -> int:
        """See `MessageStore.offset_by_time`; times are in order, so this is a binary search."""
        low, high = queue.min_offset, queue.max_offset
        while low < high:
            middle = (low + high) // 2
            when = self.store_timestamp(queue, middle)
            if when < timestamp_ms or (upper and when == timestamp_ms):
                low = middle + 1
            else:
                high = middle
        return max(low - 1, queue.min_offset) if upper else low


def _sorted_pairs(
    numbers: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """By number and offset, each pair once: a record can carry a key twice."""
    if (numbers[1:] > numbers[:-1]).all():
        return numbers, offsets
    order = np.lexsort((offsets, numbers))
    numbers, offsets = numbers[order], offsets[order]
    same = np.zeros(numbers.size, bool)
    same[1:] = (numbers[1:] == numbers[:-1]) & (offsets[1:] == offsets[:-1])
    return (numbers[~same], offsets[~same]) if same.any() else (numbers, offsets)
