"""Index files of a store, in order: roll to a new file, put keys, find records by key, recover after a kill."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from itertools import takewhile
from threading import Lock

import numpy as np
import numpy.typing as npt

from reput.errors import CorruptIndexFileError, StoreError, StoreFormatError
from reput.files import FileLayer
from reput.formats.index_file import ENTRY_SIZE, HEADER_SIZE, IndexHeader, decode_header, entry_position, file_size
from reput.formats.java import INT64_MAX
from reput.formats.paths import INDEX, index_file_name_after
from reput.kernels.queues.index_file import END_OFFSET, IndexKeys, IndexTable, index_keys
from reput.kernels.records.columns import RecordColumns
from reput.log.directory import IndexFilePath
from reput.log.dispatch_marks import DispatchMark, IndexMark
from reput.log.geometry.index_geometry import build_index_again
from reput.store.index.index_file import RESERVE_STEP, IndexFile
from reput.store.index.restore import slots_of
from reput.store.index.verification import IndexCheck, VerifiedIndexFile

#: An entry has whole seconds, rounded down, so its time may be so much before its message's.
TIME_STEP_MS = 999


class IndexService:
    """RocketMQ's `IndexService`.

    Attributes:
        flushed_timestamp: End time (ms) of the last full file that is on the disk, for the checkpoint.
    """

    def __init__(self, files: FileLayer, path: str, slots: int, capacity: int, *, writable: bool) -> None:
        self._files = files
        self._path = f"{path}/{INDEX}"
        self._slots = slots
        self._capacity = capacity
        self._writable = writable
        self._file_size = file_size(slots, capacity)
        self._unsynced: list[IndexFile] = []
        # Between `load` and `settle`: files that may be wrong after a kill, and files of no length.
        self._was_killed = False
        self._unsafe: list[str] = []
        self._useless: list[str] = []
        self._check: IndexCheck | None = None
        # The last record with entries, and how many of its keys have an entry: all keys before are in the index.
        self._last_offset = -1
        self._last_keys = 0
        self._making = ""  # the path of a file that is being made, or could not be made
        self._changing = Lock()
        self._flush_lock = Lock()
        #: Replaced by a new list, never changed in place: readers take it without a lock.
        self.index_files: list[IndexFile] = []
        self.flushed_timestamp = 0

    def check(self, listed: list[IndexFilePath]) -> None:
        """Check sizes and headers of listed files; nothing is changed. An empty file passes: a kill may leave one.

        Raises:
            StoreFormatError: A file has another size than the configured slots and entries make.
            CorruptIndexFileError: A header says more entries than fit.
        """
        for entry in listed:
            if entry.size not in (0, self._file_size):
                raise StoreFormatError(
                    f"{entry.path}: {entry.size} bytes, but {self._slots} hash slots and {self._capacity} entries "
                    f"(maxHashSlotNum, maxIndexNum) make {self._file_size}; give the numbers that it was written "
                    f"with; or, if the file was cut: {build_index_again(entry.path)}"
                )
            if entry.size:
                with self._files.open(entry.path) as file:
                    count = decode_header(file.read(0, HEADER_SIZE)).index_count
                if count > self._capacity:
                    raise CorruptIndexFileError(
                        entry.path,
                        0,
                        f"the header says that the next entry has number {count}, more than {self._capacity}; "
                        f"{build_index_again(entry.path)}",
                    )

    def load(
        self, listed: list[IndexFilePath], *, safe_timestamp: int | None, mark: DispatchMark | None = None
    ) -> None:
        """Take over listed files; nothing on the disk changes.

        Args:
            listed: The files, oldest first.
            safe_timestamp: After a kill the checkpoint's indexMsgTimestamp. Files that end later, or are not full,
                count only as far as `verify` finds their entries. If several files end at that very millisecond, only
                the first is trusted: files are synced in order, and the checkpoint may speak of the first alone. None
                after a clean exit, and for readers.
            mark: The mark of an interrupted start: files count up to the mark, whatever the timestamp.

        Raises:
            StoreError, CorruptIndexFileError: The files do not fit the mark.
        """
        begun = mark.index if mark is not None else None
        self._forget()
        self._was_killed = safe_timestamp is not None
        is_safe = True
        for entry in listed:
            if entry.size == 0:  # its writer was killed while it made the file
                self._useless.append(entry.path)
                continue
            file = IndexFile(
                self._files, entry.path, self._slots, self._capacity, writable=self._writable, create=False
            )
            if mark is not None:
                is_safe = begun is not None and file.name < begun.name
            elif safe_timestamp is not None:
                is_safe = is_safe and file.is_full and file.end_timestamp <= safe_timestamp
            if is_safe:
                self.index_files.append(file)
                is_safe = safe_timestamp is None or file.end_timestamp < safe_timestamp
            elif begun is not None and file.name == begun.name:
                file.header = np.array(begun.header, np.int64)
                self.index_files.append(file)
            else:
                file.close()
                self._unsafe.append(entry.path)
        self._find_last()
        last = self.index_files[-1] if self.index_files else None
        previous = (last.end_timestamp, last.end_offset) if last is not None else (0, 0)
        checked = self._resume(begun) if begun is not None else None
        self._check = IndexCheck(self._files, self._unsafe, self._slots, self._capacity, *previous, checked)

    def _resume(self, mark: IndexMark) -> VerifiedIndexFile:
        """Go on with the file of a mark, whose entries are right up to the mark: later entries are to be verified."""
        if not self.index_files or self.index_files[-1].name != mark.name:
            raise StoreError(f"{self._path}/{mark.name}: the index was verified up to this file, and the file is gone")
        table = IndexTable(self._slots, self._capacity)
        table.slot_table = slots_of(self._files, os.path.dirname(self._path), mark, self._slots, self._capacity)
        table.header = np.array(mark.header, np.int64)
        file = self.index_files.pop()
        file.close()
        self._unsafe.insert(0, file.path)
        return VerifiedIndexFile(self._files, file.path, table)

    @property
    def mark(self) -> IndexMark | None:
        """Mark of the index as of now: the file that takes the next key; None if no key was put or verified yet."""
        last: VerifiedIndexFile | IndexFile | None = self._check.last if self._check is not None else None
        if last is None:
            last = self.index_files[-1] if self.index_files else None
        if last is None:
            return None
        header = last.table.header if isinstance(last, VerifiedIndexFile) else last.header
        return IndexMark(os.path.basename(last.path), IndexHeader(*header.tolist()))

    def _forget(self) -> None:
        for file in self.index_files:
            file.close()
        self.index_files, self._useless, self._unsafe = [], [], []

    def _find_last(self) -> None:
        """Read from the files which record was indexed last, and how many of its keys."""
        self.flushed_timestamp = max((file.end_timestamp for file in self.index_files if file.is_full), default=0)
        self._last_offset, self._last_keys = -1, 0
        if self.index_files and self.index_files[-1].count > 1:
            self._last_offset = self.index_files[-1].end_offset
            for file in reversed(self.index_files):
                keys = file.trailing_keys(self._last_offset)
                self._last_keys += keys
                if keys < file.count - 1:
                    break
        elif len(self.index_files) > 1:
            self._last_offset = self.index_files[-1].end_offset
            self._last_keys = self.index_files[-2].trailing_keys(self._last_offset)

    def verify(self, columns: RecordColumns) -> bool:
        """Whether all keys of scanned records have entries after a kill; `dispatch` drops verified keys."""
        keys = self._missing(index_keys(columns))
        taken = self._check.verify(keys) if self._check is not None else 0
        self._remember(keys, 0, taken)
        return taken == keys.hashes.size

    def judge(self, log_end: int) -> bool:
        """Whether all entries that `load` and `verify` trust can be kept; the others do not count any more.

        Nothing is changed on the disk: `settle` does that.

        Args:
            log_end: Commit log offset after the last record. A file with later records, which a power cut took from the
                log, is to be removed: it would keep out the keys of new records at the same offsets.
        """
        if not self._was_killed:
            return True
        assert self._check is not None
        kept = list(takewhile(lambda file: file.end_offset < log_end, self.index_files))
        lost = self.index_files[len(kept) :]
        if not lost and all(int(checked.table.header[END_OFFSET]) < log_end for checked in self._check.checked):
            return True
        for file in lost:
            file.close()
        self._unsafe += [file.path for file in lost]
        self.index_files = kept
        self._check.close()  # nothing after the kept files counts
        self._check = IndexCheck(self._files, [], self._slots, self._capacity)
        self._find_last()
        return False

    def write_again(self) -> None:
        """Write again and sync what is read of the files that `load` does not trust; see `File.write_again`."""
        for path in self._unsafe:
            with self._files.open(path, writable=True) as file:
                file.write_again()

    def settle(self) -> None:
        """Repair the files with verified entries, and remove all files that do not count."""
        check, self._check = self._check, None
        assert check is not None
        check.close()
        useless = [*self._useless, *self._unsafe]
        for checked in check.checked:
            if checked.table.count > 1:
                checked.repair()
                useless.remove(checked.path)
                file = IndexFile(self._files, checked.path, self._slots, self._capacity, writable=True, create=False)
                self.index_files.append(file)
                if file.is_full:
                    self._unsynced.append(file)
        for path in sorted(useless):
            self._files.unlink(path)

    @property
    def restart_offset(self) -> int:
        """Commit log offset of the first record whose keys may be missing; -1 if nothing is indexed."""
        return self._last_offset

    def follow(self, last_name: str) -> None:
        """Take over the files and entries that another process has made, up to the file `last_name`.

        A later file may be removed again, and its keys put into another file.
        """
        last = self.index_files[-1:]
        entries = self._files.list_directory(self._path) if self._files.is_directory(self._path) else []
        paths = [f"{self._path}/{entry.name}" for entry in entries if entry.name <= last_name]
        added = [
            IndexFile(self._files, path, self._slots, self._capacity, writable=False, create=False)
            for path in paths
            if not last or path > last[0].path
        ]
        for file in (*last, *added):
            file.follow()
        with self._changing:
            self.index_files = [*self.index_files, *added]
        full = [file.end_timestamp for file in (*last, *added) if file.is_full]
        self.flushed_timestamp = max([self.flushed_timestamp, *full])

    def take_over(self, paths: Sequence[str]) -> None:
        """Take over files that tasks have built and synced, the next ones after the last file, which is full."""
        added = [
            IndexFile(self._files, path, self._slots, self._capacity, writable=True, create=False) for path in paths
        ]
        if added:
            with self._changing:
                self.index_files = [*self.index_files, *added]
            self._find_last()

    def dispatch(self, columns: RecordColumns) -> None:
        """Put the keys of scanned records; keys that are in the index are dropped, so dispatching again does no harm.

        Raises:
            StoreFullError: No space. The same call may succeed later.
        """
        self.put(index_keys(columns))

    def put(self, keys: IndexKeys) -> None:
        """Put keys, in log order; see `dispatch`."""
        keys = self._missing(keys)
        taken = 0
        while taken < keys.hashes.size:
            file = self._last_file()
            begin = taken
            taken = file.put(keys, taken)
            self._remember(keys, begin, taken)

    def _missing(self, keys: IndexKeys) -> IndexKeys:
        if not keys.offsets.size or keys.offsets[0] > self._last_offset:
            return keys
        first = int(np.searchsorted(keys.offsets, self._last_offset, side="left"))
        same = int(np.searchsorted(keys.offsets, self._last_offset, side="right")) - first
        begin = first + min(same, self._last_keys)
        return IndexKeys(keys.hashes[begin:], keys.offsets[begin:], keys.timestamps[begin:])

    def _remember(self, keys: IndexKeys, begin: int, end: int) -> None:
        if end > begin:
            last = keys.offsets[end - 1]
            same = end - max(begin, int(keys.offsets.searchsorted(last)))  # the method: a third of the function's time
            self._last_keys = same + (self._last_keys if last == self._last_offset else 0)
            self._last_offset = int(last)

    def _last_file(self) -> IndexFile:
        """The file that takes the next key; a new file if there is none, or the last file is full."""
        if self.index_files and not self.index_files[-1].is_full:
            return self.index_files[-1]
        previous = self.index_files[-1] if self.index_files else None
        self._files.make_directories(self._path)
        path = self._making = self._making or self._new_path()
        file = IndexFile(self._files, path, self._slots, self._capacity, writable=True, create=True)
        self._making = ""
        if previous is not None:
            file.continue_from(previous)
            self._unsynced.append(previous)
        with self._changing:
            self.index_files = [*self.index_files, file]
        return file

    def space_beside(self, entry_bytes: int) -> int:
        """Bytes of the disk that `entry_bytes` of entries take beside their own, at the most.

        Slots of the files that they begin, holes of the last file, and the rest of a step.
        """
        size, last = self._capacity * ENTRY_SIZE, self.index_files[-1] if self.index_files else None
        left = size - last.count * ENTRY_SIZE if last is not None else 0
        begun = max(0, -(-(entry_bytes - left) // size))
        holes = last.hole_bytes if last is not None else 0
        return begun * entry_position(self._slots, 0) + holes + min(RESERVE_STEP, size)

    def _new_path(self) -> str:
        """Path with a name by the time of creation, as RocketMQ's (`index_file_name_after`)."""
        now = int(time.time() * 1000)
        last = self.index_files[-1].path.rpartition("/")[2] if self.index_files else ""
        return f"{self._path}/{index_file_name_after(last, now, time.localtime(now / 1000).tm_gmtoff)}"

    def find(
        self, hashes: npt.NDArray[np.int32], max_count: int, begin: int, end: int
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Find candidates for many keys in all files, at most `max_count` a key, newest first for each key.

        Other keys with the same hash are among them (`IndexService.queryOffset`), and messages of other times.

        Args:
            begin, end: bounds of the messages' store times, ms.

        Returns:
            (key numbers int32[n], commit log offsets int64[n])
        """
        wanted = np.full(hashes.size, max_count, np.int32)
        of_files, first, files = [], max(begin - TIME_STEP_MS, 0), self.index_files  # once: retention replaces it
        for number, file in reversed(list(enumerate(files))):
            if file.count > 1 and file.header[0] <= end and file.end_timestamp >= first:
                of_files.append(file.find(hashes, wanted, first, last_time(files, number, end)))
            if file.header[0] < first or not wanted.any():
                break
        if len(of_files) == 1:
            return of_files[0]
        if not of_files:
            return np.empty(0, np.int32), np.empty(0, np.int64)
        return np.concatenate([pair[0] for pair in of_files]), np.concatenate([pair[1] for pair in of_files])

    def delete_expired(self, min_commit_log_offset: int) -> dict[str, int]:
        """Delete the files whose records the log no longer has, oldest first (`IndexService.deleteExpiredFile`).

        Never the last file, nor a file that waits for its sync. Queries that have found a file go on reading it.

        Returns:
            Path and size of each deleted file.
        """
        self.flush_full_files()
        deleted = {}
        while len(files := self.index_files) > 1:
            first = files[0]
            if first.end_offset >= min_commit_log_offset or first in self._unsynced:
                break
            try:
                self._files.unlink(first.path)
            finally:
                if not self._files.exists(first.path):
                    with self._changing:
                        self.index_files = self.index_files[1:]
                    first.close()
            deleted[first.path] = self._file_size
        return deleted

    def flush_full_files(self) -> None:
        """Sync the files that became full; `flushed_timestamp` moves."""
        with self._flush_lock:
            while self._unsynced:
                file = self._unsynced[0]
                file.flush()
                self.flushed_timestamp = max(self.flushed_timestamp, file.end_timestamp)
                self._unsynced.pop(0)

    def flush(self) -> None:
        """Sync all files, also the file that takes the next key; before `settle` the verified files."""
        if self._check is not None:
            self._check.sync()
        self.flush_full_files()
        if self.index_files and self._writable:
            last = self.index_files[-1]
            last.flush()
            if last.is_full:
                self.flushed_timestamp = max(self.flushed_timestamp, last.end_timestamp)

    def close(self) -> None:
        """Close all files."""
        if self._check is not None:
            self._check.close()
        for file in self.index_files:
            file.close()


def last_time(files: Sequence[IndexFile], number: int, end: int) -> int:
    """Latest time that an entry has in the file of this number, of a message that was stored until `end`, ms.

    The entries of a file's first message count their seconds from the end of the file before (`IndexFile.putKey`).
    """
    if not number:
        return end
    gap = files[number].lookup[1] - files[number - 1].lookup[2]
    return min(end + max(gap, 0), INT64_MAX)
