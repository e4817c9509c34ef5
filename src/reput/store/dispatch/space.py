"""Space of the disk that the log leaves to queues and index: what is answered can be dispatched, and so consumed."""

from __future__ import annotations

import logging
from collections.abc import Callable

from reput.config.message_store import OS_PAGE_SIZE
from reput.errors import StoreFullError
from reput.files import FileLayer
from reput.store.log.mapped_file import RESERVE_STEP
from reput.store.parts import Parts

logger = logging.getLogger("reput.store")


class DispatchSpace:
    """The rule by which the log takes disk space, or refuses puts.

    It takes space for more records only if enough stays free for all records that are not dispatched yet, these
    included: as many bytes as they have, for units and entries; a page for each queue; the slots of the index files
    that they may begin. A message with one key has 20 bytes of unit and 40 of entries, and 150 of log at the least.

    Two cases may take more, and then messages wait until there is space: short keys by the hundred in one message, and
    thousands of new queues at once. So they do if another process takes the last bytes.

    Args:
        path: The store's directory, with queues and index; the log may be on other disks.
        files: The file layer.
        parts: Log and index.
        dispatched: Commit log offset of the first record that is not dispatched.
    """

    def __init__(self, path: str, files: FileLayer, parts: Parts, dispatched: Callable[[], int]) -> None:
        self._path = path
        self._files = files
        self._log = parts.log
        self._index = parts.index
        self._dispatched = dispatched

    def needed(self, room_end: int) -> tuple[int, int]:
        """Bytes that units and entries of the records before an offset may take, and what the index takes beside."""
        behind = max(0, room_end - self._dispatched())
        pages = len(self._log.queue_offsets.numbers) * OS_PAGE_SIZE
        return behind + pages, self._index.space_beside(behind) if self._index is not None else 0

    def check(self, path: str, taken: int, room_end: int) -> None:
        """Raise StoreFullError if the log may not take `taken` bytes of the disk of `path`.

        Args:
            path: Of a log file, or of the folder where one is to be made.
            taken: Bytes.
            room_end: Commit log offset up to which records then have room.
        """
        of_records, of_index = self.needed(room_end)
        kept = of_records + of_index
        reason = f"{kept} that stay free for queues and index"
        if of_index > of_records:
            reason += f" ({of_index} for slots and first entries: see maxHashSlotNum, messageIndexEnable)"
        if self._files.identity(path)[0] == self._files.identity(self._path)[0]:
            self._check_disk(path, taken + kept, f"{taken} bytes needed, and {reason}")
        else:
            self._check_disk(path, taken, f"{taken} bytes needed")
            self._check_disk(self._path, kept, reason)

    def _check_disk(self, path: str, needed: int, what: str) -> None:
        if (free := self._files.disk_free(path)) < needed:
            raise StoreFullError(
                f"{path}: cannot allocate: {what}, {free} free: no space left on the disk; free some and try again"
            )

    def warn(self) -> None:
        """Say so in the log if the next step of the log would be refused now."""
        queue = self._log.queue
        step = min(queue.file_size, RESERVE_STEP)
        lacks = []
        for folder in queue.folders:
            try:
                self.check(folder, step, queue.room_end + step)
            except StoreFullError as error:
                lacks.append(error)
        if len(lacks) == len(queue.folders):
            logger.warning("puts will be refused once the log needs space: %s", lacks[0])
