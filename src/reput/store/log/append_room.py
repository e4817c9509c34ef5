"""Room for what is appended: the last file of the log and the next one, made under the lock or ahead of the appends."""

from __future__ import annotations

from collections.abc import Callable

from reput.config.message_store import OS_PAGE_SIZE
from reput.errors import MessageIllegalError, ReputError, StoreFullError, StoreSyncError, WouldWaitError
from reput.files import Mapping, NeverWaiting, may_wait
from reput.formats.java import INT64_MAX
from reput.formats.record import encode_blank
from reput.formats.record_layout import BLANK_SIZE
from reput.store.log.append_gate import AppendGate, refuse
from reput.store.log.mapped_file import RESERVE_STEP, MappedFile
from reput.store.log.mapped_file_queue import MappedFileQueue


class RecordTooLargeError(MessageIllegalError):
    """Raised when a record, or a batch, is larger than what a file of the log holds (`mappedFileSizeCommitLog`)."""


class AppendRoom(AppendGate):
    """The last file of a log, with room for what comes; the log inherits it for the same reason as `AppendGate`.

    An append that holds the lock asks `_room` for a file. `make_room` does the same for one that may not wait, and
    `make_ready` before anybody asks.

    Args:
        folder, busy_timeout_ms: See `AppendGate`.
        queue: The log's files.
    """

    def __init__(self, folder: str, busy_timeout_ms: int, queue: MappedFileQueue) -> None:
        super().__init__(folder, busy_timeout_ms)
        self.queue = queue
        self._last: MappedFile | None = None
        #: Of the last file, once a put needs its address.
        self._last_map: Mapping | None = None
        self._low_at = 0

    @property
    def max_record_size(self) -> int:
        """The largest record that a file holds, in bytes."""
        return self.queue.file_size - BLANK_SIZE

    def check_size(self, size: int) -> None:
        """Refuse a record that no file can hold, before anything is written."""
        if size > self.max_record_size:
            raise RecordTooLargeError(
                f"the record takes {size} bytes; a commit log file of {self.queue.file_size} bytes "
                f"(mappedFileSizeCommitLog) holds records up to {self.max_record_size}"
            )

    @property
    def refusal_of_small(self) -> ReputError | None:
        """`refusal`, unless it is for lack of space and records of a page (4 KB) still have room."""
        files = (self._last, self.queue.made_ahead)
        rooms = [file.reserved_position - file.wrote_position for file in files if file is not None]
        # Room for all that was refused is none: a file system that copies on write lacked space there.
        has_room = any(OS_PAGE_SIZE + BLANK_SIZE <= room < self._lacking for room in rooms)
        return self._refusal if has_room else self.refusal

    # -- under the append lock

    def _room(self, size: int) -> MappedFile:
        """The last file, with room for a record of `size` bytes and a blank record after it; rolls if needed.

        Raises:
            StoreFullError: No space for the next file, or for these bytes; nothing has changed.
            WouldWaitError: In `NeverWaiting`, if `make_room` has not been called; nothing has changed.
        """
        return self._found(self._room_for, size, BLANK_SIZE)

    def _room_for_copies(self, size: int) -> MappedFile:
        """The last file, or the next one if that is full to its last byte, with room for copies of `size` bytes.

        Errors as of `_room`.
        """
        return self._found(self._copies_room_for, size, 0)

    def _found(self, find: Callable[[int], MappedFile], size: int, blank: int) -> MappedFile:
        try:
            file = find(size)
        except WouldWaitError as error:
            error.room = max(size, 1)
            raise
        except StoreFullError as error:
            self._refuse_without_room(size + blank, error)
            raise
        self._accept_with_room(size + blank)
        return file

    def _room_for(self, size: int) -> MappedFile:
        files = self.queue.mapped_files
        if not files:
            self.queue.append_file(self._next_file())
            files = self.queue.mapped_files
        file = files[-1]
        if file is not self._last:  # the first one, or a KeyboardInterrupt came between the next two lines below
            self._go_on_in(file)
        position = file.wrote_position
        if position + size + BLANK_SIZE > file.size:
            following = self._next_file()
            left = file.size - position
            if left:  # at least BLANK_SIZE: every append leaves as much
                file.reserve(position + BLANK_SIZE)
                file.view[position : position + BLANK_SIZE] = encode_blank(left)
            file.wrote_position = file.size
            self.queue.append_file(following)
            self._go_on_in(following)
            file, position = following, 0
        if position + size + BLANK_SIZE > file.reserved_position:
            file.reserve(position + size + BLANK_SIZE)
        return file

    def _write(self, file: MappedFile, position: int, data: memoryview) -> None:
        """Write bytes for which there is room; a file system that copies on write may lack space all the same."""
        try:
            file.write(position, data)
        except StoreFullError as error:
            self._refuse_without_room(len(data), error)
            raise

    def _next_file(self) -> MappedFile:
        try:
            return self.queue.next_file()
        except StoreSyncError as error:
            self.failure = error
            raise

    def _go_on_in(self, file: MappedFile) -> None:
        file.begin_appending()
        self._last, self._last_map, self._low_at = file, None, 0

    def _copies_room_for(self, size: int) -> MappedFile:
        files = self.queue.mapped_files
        if not files or files[-1].wrote_position == files[-1].size:
            self.queue.append_file(self._next_file())
        file = self.queue.mapped_files[-1]
        if file is not self._last:
            self._go_on_in(file)
        file.reserve(file.wrote_position + size)
        return file

    # -- ahead

    def make_room(self, size: int) -> None:
        """Go on in the next file, or reserve space, so that records of `size` bytes have room.

        The disk is waited for without the append lock, so that others go on appending.

        Raises:
            MessageIllegalError: No file can hold them.
            StoreBusyError, StorePoisonedError, StoreFullError: As `append`; nothing has changed.
            WouldWaitError: In `NeverWaiting`, if the disk would have to be waited for.
        """
        self.check_size(size)
        while True:
            self._wait()
            with self._lock, NeverWaiting():
                if self._put_refusal is not None:
                    refuse(self._put_refusal)
                try:
                    self._room(size)
                    return
                except WouldWaitError as error:
                    would_wait = error
            if not may_wait():
                raise would_wait
            self._prepare_room(size + BLANK_SIZE)

    def _prepare_room(self, size: int) -> None:
        """Do what `_found` would wait for the disk for, without the append lock.

        Args:
            size: Bytes of the records and of the blank record after them; copies need none after them.
        """
        file = self._last
        try:
            if file is not None:
                position = file.wrote_position
                is_last = position + size <= file.size
                file.reserve(min(file.size, position + (size if is_last else BLANK_SIZE)))
                if is_last:
                    return
            self.queue.make_ahead().reserve(size)
        except StoreFullError as error:
            with self._lock:
                self._refuse_without_room(size, error)
            raise
        except StoreSyncError as error:
            self.failure = error
            raise

    def make_ready(self) -> None:
        """Make the next file, and reserve disk space, before a put needs them; called by a thread that may wait.

        The next file is made once half of the last file is written. The append lock is not held. If an append got no
        space, this tries to get it.

        Raises:
            StoreFullError: No space; puts go on as long as there is room.
            StoreSyncError: A sync failed; nothing is appended any more.
        """
        if self._no_room is not None:
            lacking = self._lacking
            self._prepare_room(lacking)
            with self._lock:
                self._accept_with_room(lacking)
        file = self._last
        if file is None:
            return
        if file.reserved_position - file.wrote_position < RESERVE_STEP // 2:
            file.reserve(min(file.size, file.wrote_position + RESERVE_STEP))
        if file is self._last and file.wrote_position >= file.size // 2:
            self._next_file()
        if file is self._last:
            self._low_at = self._low_position(file)

    def _low_position(self, file: MappedFile) -> int:
        """Position in the last file from which on `make_ready` has something to do."""
        of_space = INT64_MAX if file.reserved_position == file.size else file.reserved_position - RESERVE_STEP // 2
        of_file = INT64_MAX if self.queue.made_ahead is not None else file.size // 2
        return min(of_space, of_file)

    def tell_if_low(self) -> None:
        """Call `on_due` when `make_ready` is due, once until it is done."""
        file = self._last
        if file is not None and file.wrote_position >= self._low_at:
            self._low_at = INT64_MAX
            self.on_due()
