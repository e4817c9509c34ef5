"""Queries for messages: by key, by time, by commit log offset and by message id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby, pairwise

import numpy as np
import numpy.typing as npt

from reput.errors import CorruptRecordError
from reput.files import FileLayer
from reput.formats.consume_queue import FILLER, UNIT_SIZE, Unit
from reput.formats.message_ext import MessageExt
from reput.formats.message_id import decode_message_id
from reput.formats.record_layout import TOTAL_SIZE
from reput.kernels.queues import index_search
from reput.kernels.queues.index_search import (
    KEY_SEPARATOR,
    TopicFields,
    scratch_row,
    split_index_keys,
    topic_hash,
    verify_keys,
)
from reput.store.index.index_file import KernelFields
from reput.store.index.index_service import TIME_STEP_MS, IndexService, last_time
from reput.store.log.commit_log import CommitLog
from reput.store.log.mapped_file import MappedFile
from reput.store.log.mapped_file_queue import FEW_LOG_FILES, LogMaps
from reput.store.queues.consume_queue import ConsumeQueue
from reput.store.queues.tables import Queue
from reput.store.reads.pages import Cold, NotInMemory, Pages
from reput.store.reads.scratch import Scratch

_END_OF_TIME = (1 << 62) - 1
_SEPARATOR = chr(KEY_SEPARATOR)
#: Characters of a topic that is remembered: a client may ask for others of megabytes.
_MOST_REMEMBERED = 512


def _fields_of(topic: str) -> KernelFields:
    fields = _topic_fields if len(topic) <= _MOST_REMEMBERED else _topic_fields.__wrapped__
    return fields(topic)


@lru_cache(maxsize=1024)
def _topic_fields(topic: str) -> KernelFields:
    data = _encoded(topic)
    text = np.frombuffer(data or b"\0", np.uint8)
    return KernelFields(TopicFields(int(topic_hash(data)), text.ctypes.data, len(data)), text)


def _encoded(text: str) -> bytes:
    """UTF-8; no message has a topic or a key with a lone surrogate, of which this makes what is no UTF-8."""
    return text.encode("utf-8", "surrogatepass")


class _WantedKeys:
    """Keys of one topic, each once, in order, as one text for the kernels, which is faster than an Arrow array.

    Attributes:
        keys: The keys.
        topic: The topic in UTF-8.
        text, offsets, hashes: See `split_index_keys`.
    """

    def __init__(self, topic: str, keys: list[str]) -> None:
        self.topic = _encoded(topic)
        self.keys = keys
        if not self._split(keys):
            self.keys = list(dict.fromkeys(keys))
            # No message has a key with the separator in it, nor an empty one.
            self._split(["" if _SEPARATOR in key else key for key in self.keys])

    def _split(self, keys: list[str]) -> bool:
        """Split the keys' text for the kernels; False if two keys are equal, or one has the separator in it."""
        text, count = _encoded(_SEPARATOR.join(keys)), len(keys)
        self.text = np.frombuffer(text or b"\0", np.uint8)
        self.offsets, self.hashes = np.empty(count + 1, np.int32), np.empty(count, np.int32)
        table = np.zeros(2 << count.bit_length(), np.int32)
        state, address = topic_hash(self.topic), self.text.ctypes.data
        return bool(split_index_keys(state, address, len(text), self.offsets, self.hashes, table) == count)


class QueryMessageResult(Mapping[str, "list[MessageExt]"]):
    """Messages of many keys: a mapping from each key to its messages, oldest first, which are made on access.

    Attributes:
        numbers: int32[n], the key of each hit by its number in the mapping's order; ascending.
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
    """Queries over the log of one store; `index` is None if it has none.

    What is not in memory is read without the interpreter lock, but for the query of one key (`by_key`), a kernel of a
    microsecond that keeps it.
    """

    def __init__(self, log: CommitLog, index: IndexService | None, files: FileLayer) -> None:
        self._log = log
        self._index = index
        self._pages = Pages(files)
        self._scratch = Scratch(2048)

    def by_key(self, topic: str, key: str, max_num: int, begin: int, end: int | None) -> list[MessageExt]:
        """The newest `max_num` messages of one key, oldest first; see `MessageStore.query_message`.

        Not `by_keys` of one key, which takes twenty times as long.
        """
        if self._index is None or max_num <= 0:
            return []
        if len(self._log.queue.mapped_files) > FEW_LOG_FILES:
            return self.by_keys(topic, [key], max_num, begin, end)[key]
        text, scratch, log = _encoded(key), self._scratch, self._log
        size, text_at = len(text), 8 * max_num  # after the offsets that are found
        if text_at + size > scratch.size:
            scratch.grow(text_at + size)
        scratch.view[text_at : text_at + size] = text
        address = scratch.address
        first_ms, last_ms = max(begin - TIME_STEP_MS, 0), _END_OF_TIME if end is None else end
        maps, log_end, topic_fields = log.queue.maps(), log.confirm_offset, _fields_of(topic)
        found = 0
        files = self._index.index_files
        for number in range(len(files) - 1, -1, -1):
            fields, file_begin, file_end, is_empty = files[number].lookup
            latest_ms = last_ms if end is None else last_time(files, number, last_ms)
            if file_begin <= last_ms and file_end >= first_ms and not is_empty:
                found = index_search.find_key(
                    topic_fields.address, address + text_at, size, fields.address, maps.fields_address, log_end,
                    first_ms, latest_ms, address, found, max_num,
                )  # fmt: skip
                if found < 0:  # a page cannot be read, and there the error is told
                    return self.by_keys(topic, [key], max_num, begin, end)[key]
            if file_begin < first_ms or found == max_num:
                break
        file_size = log.queue.file_size
        if found == 1:
            offset = scratch.numbers[0]
            messages = [MessageExt(maps.mappings[(offset - maps.begin_offset) // file_size].view, offset % file_size)]
        else:
            offsets = sorted(set(scratch.numbers[:found]))  # a record can have a key twice
            views = {i: mapping.view for i, mapping in maps.mappings.items()} if offsets else {}
            first = maps.begin_offset
            messages = [MessageExt(views[(offset - first) // file_size], offset % file_size) for offset in offsets]
        if begin > 0 or end is not None:
            messages = [message for message in messages if begin <= message.store_timestamp <= last_ms]
        if len(messages) < max_num == found:  # repeats, and other times, took the room of older messages
            return self.by_keys(topic, [key], max_num, begin, end)[key]
        return messages

    def by_keys(self, topic: str, keys: Sequence[str], max_num: int, begin: int, end: int | None) -> QueryMessageResult:
        """The newest `max_num` messages of each key, oldest first; see `MessageStore.query_messages`."""
        wanted = _WantedKeys(topic, list(keys))
        numbers, offsets, maps = np.empty(0, np.int32), np.empty(0, np.int64), None
        if self._index is not None and wanted.keys and max_num > 0:
            numbers, offsets, maps = self._find(wanted, max_num, begin, _END_OF_TIME if end is None else end)
            if (numbers[max_num:] == numbers[:-max_num]).any():
                newest = np.searchsorted(numbers, numbers, "right") - np.arange(numbers.size) <= max_num
                numbers, offsets = numbers[newest], offsets[newest]
        # Maps only of files with hits: the maps outlive the files, and the store.
        size, views = self._log.queue.file_size, {}
        if maps is not None and offsets.size:
            first = maps.begin_offset // size
            hit = set((offsets // size).tolist()) if maps.addresses.size > 1 else {first}
            views = {index: maps.mappings[index - first].view for index in hit}
        return QueryMessageResult(wanted.keys, numbers, offsets, views, size)

    def _find(
        self, wanted: _WantedKeys, max_num: int, begin: int, end: int
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], LogMaps]:
        """(key numbers, commit log offsets) of records that really have the keys, sorted by both; and the maps."""
        assert self._index is not None
        name, log, count = np.frombuffer(wanted.topic or b"\0", np.uint8), self._log, len(wanted.keys)
        each = max_num
        while True:
            numbers, found = self._index.find(wanted.hashes, each, begin, end)
            verified = np.empty(found.size, np.uint8)
            maps = log.queue.maps(found)
            unreadable = verify_keys(
                maps.addresses, maps.begin_offset, log.confirm_offset, log.queue.file_size, name.ctypes.data,
                name.size, wanted.text.ctypes.data, wanted.offsets, numbers, found,
                *np.empty((3, found.size), np.int64), verified, *scratch_row(),
            )  # fmt: skip
            if unreadable >= 0:
                offset, size = int(found[unreadable]), log.queue.file_size
                maps.mappings[(offset - maps.begin_offset) // size].refuse(offset % size)
            kept = verified == 1
            if begin > 0 or end < _END_OF_TIME:
                kept[kept] = [begin <= self._stored_ms(maps, offset) <= end for offset in found[kept].tolist()]
            pairs = _sorted_pairs(numbers[kept], found[kept])
            if pairs[0].size == numbers.size:
                return *pairs, maps
            # Repeats, entries of other keys with the same hash, and of times beside the bounds, took the room of wanted
            # messages: look at more.
            short = np.bincount(numbers, minlength=count) >= each
            short &= np.bincount(pairs[0], minlength=count) < max_num
            if not short.any():
                return *pairs, maps
            each *= 4

    def _stored_ms(self, maps: LogMaps, offset: int) -> int:
        """Store time of the record at an offset of the maps."""
        size = self._log.queue.file_size
        return MessageExt(maps.mappings[(offset - maps.begin_offset) // size].view, offset % size).store_timestamp

    def by_offset(self, commit_log_offset: int) -> MessageExt | None:
        """The message whose record starts at an offset; None if no record does (`lookMessageByOffset`)."""
        head = self._view(commit_log_offset, 8)
        if head is None:
            return None
        size = int.from_bytes(head[TOTAL_SIZE : TOTAL_SIZE + 4], "big", signed=True)
        record = self._view(commit_log_offset, size)
        if record is None:
            return None
        message = MessageExt(record)
        try:
            return message if message.commit_log_offset == commit_log_offset else None
        except CorruptRecordError:
            return None

    def records(self, places: Sequence[tuple[int, int]], *, may_wait: bool) -> list[bytes | None] | None:
        """See `MessageReader.look_records`."""
        cold, found = Cold.READ if may_wait else Cold.REFUSE, list[bytes | None]()
        for file, some in groupby(places, lambda place: self._log.queue.find(place[0])):
            of_file = list(some)
            try:
                found += [None] * len(of_file) if file is None else self._records_of(file, of_file, cold)
            except NotInMemory:
                return None
        return found

    def _records_of(self, file: MappedFile, places: Sequence[tuple[int, int]], cold: Cold) -> list[bytes | None]:
        begin, end = file.start_offset, min(file.start_offset + file.size, self._log.confirm_offset)
        inside = [begin <= offset and 0 < size <= end - offset for offset, size in places]
        pairs = np.array([place for place, is_inside in zip(places, inside, strict=True) if is_inside], np.int64)
        if not len(pairs):
            return [None] * len(places)
        self._pages.look_at_records(cold, file, pairs.ctypes.data, len(pairs), are_pairs=True)
        data, position = self._pages.gather(file.view), 0
        found: list[bytes | None] = []
        for (_, size), is_inside in zip(places, inside, strict=True):
            found.append(data[position : position + size] if is_inside else None)
            position += size * is_inside
        return found

    def _view(self, offset: int, size: int) -> memoryview | None:
        """`CommitLog.view` of bytes that are in memory."""
        file, view = self._log.queue.find(offset), self._log.view(offset, size)
        if file is not None and view is not None:
            self._pages.read_in(file.path, file.mapping, offset - file.start_offset, size)
        return view

    def by_message_id(self, message_id: str) -> MessageExt | None:
        """The message of an offset message id; None if the offset has no record, or a record of another host.

        Raises:
            MessageIllegalError: The text is no message id.
        """
        message = self.by_offset(decode_message_id(message_id)[1])
        return message if message is not None and message.message_id == message_id.upper() else None

    def units(self, queue: Queue, offset: int, count: int) -> list[Unit]:
        """See `MessageStore.units`."""
        units = []
        for one in range(offset, min(offset + count, queue.max_offset)):
            unit = self._unit(queue, one)
            if unit is None:
                break
            ext = queue.ext_unit(one) if isinstance(queue, ConsumeQueue) else None
            units.append(unit if ext is None else unit._replace(tags_code=ext.tags_code))
        return units

    def _unit(self, queue: Queue, offset: int) -> Unit | None:
        """The unit at a queue offset, whose page is read without the interpreter lock; None if there is none."""
        found = queue.units_from(offset) if type(queue) is ConsumeQueue else None
        if found is not None:
            position = found[0] - found[2].address
            self._pages.read_in(queue.file_path(offset * UNIT_SIZE - position), found[2], position, UNIT_SIZE)
        return queue.unit(offset)

    def store_timestamp(self, queue: Queue, offset: int) -> int:
        """Store time (ms) of the message at a queue offset; -1 if the log no longer has it."""
        unit = self._unit(queue, offset)
        if unit is None or unit == FILLER:
            return -1
        message = self.by_offset(unit.commit_log_offset)
        return -1 if message is None else message.store_timestamp

    def offset_by_time(self, queue: Queue, timestamp_ms: int, *, upper: bool) -> int:
        """See `MessageStore.offset_by_time`; store times are in order, so this is a binary search."""
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
    """Sort pairs by number and offset, each pair once: a record can have a key twice."""
    if (numbers[1:] > numbers[:-1]).all():
        return numbers, offsets
    order = np.lexsort((offsets, numbers))
    numbers, offsets = numbers[order], offsets[order]
    same = np.zeros(numbers.size, bool)
    same[1:] = (numbers[1:] == numbers[:-1]) & (offsets[1:] == offsets[:-1])
    return (numbers[~same], offsets[~same]) if same.any() else (numbers, offsets)
