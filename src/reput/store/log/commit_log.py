"""The log of all messages: gives each its place and its time, and knows what of it may be read.

Everything that decides an order happens under one lock, for a few microseconds: queue offset, store timestamp, log
offset, bytes. Encoding a table, waiting for the disk and building queues and index happen outside.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from reput.files import FileLayer, Mapping
from reput.formats.message import Message
from reput.formats.record_layout import BLANK_SIZE
from reput.kernels.machine.mapped_pages import PART_SHIFT, PART_SIZE
from reput.kernels.records import message_objects
from reput.kernels.records.columns import RecordColumns
from reput.kernels.records.log_room import LogRoom
from reput.kernels.records.record_encode import patch
from reput.kernels.records.record_scan import RecordScanner
from reput.log.directory import LogFile
from reput.store.log.append_gate import refuse
from reput.store.log.append_room import AppendRoom
from reput.store.log.mapped_file import MappedFile
from reput.store.log.mapped_file_queue import MappedFileQueue
from reput.store.log.pending import AppendedRows, EncodedRows
from reput.store.log.queue_offsets import QueueKey, QueueOffsets

_new_tuple = tuple.__new__


class CommitLog(AppendRoom):
    """RocketMQ's `CommitLog`: append, roll, read.

    Attributes:
        queue_offsets: The counter table, in memory; recovery fills it from the queues.
        confirm_offset: Only records before it are dispatched and served: the log's end, or with SYNC_FLUSH the end of
            what is flushed.

    With `property_crc` the last 20 bytes of each record's properties are reserved for the CRC of the record.
    """

    def __init__(
        self,
        files: FileLayer,
        folders: Sequence[str],
        file_size: int,
        *,
        writable: bool = True,
        serve_flushed_only: bool = False,
        warm_sync_bytes: int | None = None,
        busy_timeout_ms: int = 1000,
        read_ahead: bool = True,
        property_crc: bool = False,
    ) -> None:
        queue = MappedFileQueue(
            files, folders, file_size, writable=writable, warm_sync_bytes=warm_sync_bytes, read_ahead=read_ahead
        )
        super().__init__(folders[0] if folders else "", busy_timeout_ms, queue)
        self.queue_offsets = QueueOffsets()
        self.flushed_offset = 0
        self.last_store_timestamp = 0
        self._serve_flushed_only = serve_flushed_only
        self._property_crc = property_crc
        self._offsets_array: npt.NDArray[np.int64] | None = None
        self._offsets_address = 0

    def load(self, found: list[LogFile]) -> None:
        """Take over existing files; where their written part ends is for recovery to say, with `start_at`."""
        self.queue.load(found)

    def start_at(self, offset: int) -> None:
        """Go on appending at an offset: all before it is written and on the disk."""
        files = self.queue.mapped_files
        if files:
            last = files[-1]
            last.wrote_position = last.flushed_position = offset - last.start_offset
            last.reserved_position = last.wrote_position
            self._go_on_in(last)
        self.flushed_offset = offset

    @property
    def min_offset(self) -> int:
        """The log's first offset."""
        return self.queue.min_offset

    @property
    def max_offset(self) -> int:
        """Commit log offset after the last record that was appended."""
        return self.queue.max_offset

    @property
    def confirm_offset(self) -> int:
        """Commit log offset up to which records may be dispatched and served (`CommitLog.getConfirmOffset`)."""
        if self._serve_flushed_only:
            return self.flushed_offset
        files = self.queue.mapped_files
        return files[-1].start_offset + files[-1].wrote_position if files else 0

    def append_plain(
        self, message: Message, queue_id: int, number: int, encoder: int, clock_s: float
    ) -> tuple[int, int, int, int] | None:
        """Append a message that nobody has checked or encoded yet, if it is plain (`message_objects`).

        The short way beside `append_rows`, for which a row alone takes several times as long.

        Args:
            message: The message.
            queue_id: Its queue.
            number: That of the topic and the queue in `queue_offsets`.
            encoder: `MessageEncoder.address`.
            clock_s: `time.time()`.

        Returns:
            The values of `Append`; None: it is not plain, or the last file has no room for it, and nothing has changed.

        Raises:
            StoreBusyError, StorePoisonedError: As `append_rows`.
        """
        if self._lock.locked():
            self._wait()
        with self._lock:
            if self._put_refusal is not None:
                refuse(self._put_refusal)
            file, mapping = self._last, self._last_map
            if file is None:
                return None
            if mapping is None:
                mapping = self._last_map = file.mapping
            now = int(clock_s * 1000)
            if now < self.last_store_timestamp:
                now = self.last_store_timestamp
            position = file.wrote_position
            offset = file.start_offset + position
            queue_offset = self.queue_offsets.values[number]
            size = message_objects.encode_message(
                encoder, id(message), mapping.address + position, file.reserved_position - position - BLANK_SIZE,
                queue_id, queue_offset, offset, now,
            )  # fmt: skip
            if size <= 0:
                return None
            file.wrote_position = position + size
            self.queue_offsets.values[number] = queue_offset + 1
            self.last_store_timestamp = now
            return offset, offset + size, queue_offset, now

    def put_time_forward(self, time_ms: int) -> None:
        """Give no record from now on a store time before this one: times never go back."""
        with self._lock:
            self.last_store_timestamp = max(self.last_store_timestamp, time_ms)

    def append_written(self, write: Callable[[LogRoom], int], clock_s: float, size: int = 0) -> int:
        """Let records be written at the log's end, by a kernel for example, under the append lock.

        Args:
            write: Writes whole records, one after the other, counts on in `queue_offsets`, and returns their bytes, 0
                if there is no room; what it raises is raised again, and it has changed nothing then.
            clock_s: `time.time()`.
            size: Bytes for which there must be room, in the next file if need be; 0: what is there is enough.

        Returns:
            Commit log offset after the last record.

        Raises:
            StoreBusyError, StorePoisonedError, StoreFullError: As `append_rows`; nothing has changed.
            WouldWaitError: In `NeverWaiting`; `make_room` helps.
        """
        if self._lock.locked():
            self._wait()
        with self._lock:
            if self._put_refusal is not None:
                refuse(self._put_refusal)
            file = (None if size else self._last) or self._room(size)
            mapping = self._last_map
            if mapping is None:
                mapping = self._last_map = file.mapping
            array = self.queue_offsets.array
            if array is not self._offsets_array:
                self._offsets_array, self._offsets_address = array, array.ctypes.data  # asking takes 1 us
            now = int(clock_s * 1000)
            if now < self.last_store_timestamp:
                now = self.last_store_timestamp
            position = file.wrote_position
            offset = file.start_offset + position
            end = file.reserved_position - BLANK_SIZE
            view = mapping.view[position : end if end > position else position]
            room = view, mapping.address + position, offset, now, self._offsets_address
            size = write(_new_tuple(LogRoom, room))  # by their names it takes 0.1 us more
            if size:
                file.wrote_position = position + size
                self.last_store_timestamp = now
            return offset + size

    def number_queues(self, keys: list[QueueKey]) -> npt.NDArray[np.int32]:
        """int32[len(keys)], the queues' numbers for `EncodedRows`; new queues get one."""
        self._wait()
        with self._lock:
            return self.queue_offsets.numbers_of(keys)

    def append_rows(
        self, rows: EncodedRows, row: int = 0, *, store_timestamp: int = 0, together: bool = False
    ) -> AppendedRows:
        """Append encoded rows, as many as have space reserved; the next call takes the rest.

        Args:
            rows: The records, of any topics and queues.
            row: The first one to append.
            store_timestamp: Their store time (ms), not before the last record's; 0 for now.
            together: All rows from `row` on, in one file, or none of them.

        Raises:
            MessageIllegalError: No file can hold what is to be together.
            StoreBusyError: The disk does not keep up; nothing has changed.
            StoreFullError: No space; nothing has changed.
            StorePoisonedError: A sync failed before.
        """
        size = int(rows.positions[-1] if together else rows.positions[row + 1]) - int(rows.positions[row])
        self.check_size(size)
        self._wait()
        with self._lock:
            if self._put_refusal is not None:
                refuse(self._put_refusal)
            now = store_timestamp or max(int(time.time() * 1000), self.last_store_timestamp)
            return self._append_some(self._room(size), rows, row, now)

    def _append_some(self, file: MappedFile, rows: EncodedRows, row: int, now: int) -> AppendedRows:
        """Append as many rows as go into the space that the last file has reserved."""
        positions = rows.positions
        room = file.reserved_position - file.wrote_position - BLANK_SIZE
        limit = min(int(positions[row]) + room, int(positions[-1]))  # their sum can be more than an int32 holds
        end = int(np.searchsorted(positions, np.int32(limit), side="right")) - 1
        position, offset = file.wrote_position, file.start_offset + file.wrote_position
        queues, next_offsets = rows.queues[row:end], self.queue_offsets.array
        commit_log_offsets, queue_offsets = np.empty(end - row, np.int64), np.empty(end - row, np.int64)
        before = next_offsets[queues]
        try:
            patch(
                rows.data.ctypes.data, end - row, positions[row : end + 1], queues, next_offsets, offset, now,
                self._property_crc, commit_log_offsets, queue_offsets,
            )  # fmt: skip
            data = rows.data[positions[row] : positions[end]]
            self._write(file, position, data.data)
        except BaseException:
            next_offsets[queues] = before
            raise
        file.wrote_position = position + data.size
        self.last_store_timestamp = now
        return AppendedRows(end, offset + data.size, now, commit_log_offsets, queue_offsets)

    def append_copies(self, data: memoryview, last_store_timestamp: int) -> int:
        """Append records of another log as they are, blank records too (`CommitLog.appendData`).

        Args:
            data: Records that prove themselves at this log's end, of one file; a blank record may end anywhere.
            last_store_timestamp: Of the last record (ms).

        Returns:
            Commit log offset after them.

        Raises:
            StoreBusyError, StoreFullError, StorePoisonedError: As `append_rows`; nothing has changed.
        """
        self._wait()
        with self._lock:
            if self._refusal is not None:
                refuse(self._refusal)
            file = self._room_for_copies(len(data))
            position = file.wrote_position
            self._write(file, position, data)
            file.wrote_position = position + len(data)
            self.last_store_timestamp = max(self.last_store_timestamp, last_store_timestamp)
            return file.start_offset + file.wrote_position

    def view(self, offset: int, size: int) -> memoryview | None:
        """The bytes of a record, as they lie; None outside what may be read."""
        file = self.queue.find(offset)
        if file is None or size <= 0 or offset < file.start_offset or offset + size > self.confirm_offset:
            return None
        position = offset - file.start_offset
        return file.view[position : position + size] if position + size <= file.size else None

    def window(self, offset: int, max_size: int) -> memoryview:
        """Bytes that may be read from an offset to the end of its file, at most `max_size` bytes.

        Raises:
            StoreError: The disk cannot read it.
        """
        file = self.queue.find(offset)
        if file is None:
            return memoryview(b"")
        position = offset - file.start_offset
        end = max(self._readable_end(file, position, max_size), position)
        mapping = file.mapping
        mapping.ask_now(position, end)
        return mapping.view[position:end]

    def scan(self, scanner: RecordScanner, offset: int, max_size: int) -> RecordColumns | None:
        """Scan what may be read from an offset to the end of its file, at most `max_size` bytes; None for nothing.

        Raises:
            StoreError: The disk cannot read it.
        """
        file = self.queue.find(offset)
        if file is None:
            return None
        position = offset - file.start_offset
        end = self._readable_end(file, position, max_size)
        return file.scan(scanner, position, end, left=file.size - position) if position < end else None

    def span(self, offset: int, max_size: int) -> tuple[int, int, Mapping | None]:
        """Address and size of `window`, and the map that must be held meanwhile; (0, 0, None) if there is nothing.

        Raises:
            StoreError: The disk cannot read it.
        """
        file = self.queue.find(offset)
        if file is None:
            return 0, 0, None
        position, mapping = offset - file.start_offset, file.mapping
        end = max(self._readable_end(file, position, max_size), position)
        asked = mapping.asked
        if max_size > PART_SIZE or not (asked[position >> PART_SHIFT] and asked[end >> PART_SHIFT]):
            mapping.ask(position, end)
        return mapping.address + position, end - position, mapping

    def _readable_end(self, file: MappedFile, position: int, max_size: int) -> int:
        """Position in a file up to which may be read, at most `max_size` bytes from another position on."""
        return min(file.size, self.confirm_offset - file.start_offset, position + max_size)

    def close(self) -> None:
        """Close the files."""
        self._last_map = None
        self.queue.close()
