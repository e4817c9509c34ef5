"""DatabaseFiles: a file layer that shows queues of a RocksDB as the files that RocketMQ's file store would have."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from reput.errors import StoreError
from reput.files import DISK, Entry, File, FileLayer, Mapping
from reput.formats.consume_queue import UNIT_SIZE
from reput.formats.paths import file_name_to_offset, offset_to_file_name
from reput.log.rocksdb.queue_database import DatabaseQueue, QueueDatabase

if TYPE_CHECKING:
    import numpy as np
    from _typeshed import WriteableBuffer
    from numpy.typing import NDArray

#: Bytes of a file if the store has no queue files: 16,384 units, which are read at once to be mapped.
FILE_SIZE = 16_384 * UNIT_SIZE
#: Units that are read at once.
_BLOCK_UNITS = 1 << 16


class DatabaseFiles(FileLayer):
    """Files of queues that databases have, read only, beside files of the disk. Picklable.

    Args:
        folder: Folder in which the files seem to lie, of consume queues.
        file_size: Bytes of each file.
        queues: Queues whose files are a database's.
        begun: Queues of which a database has the first files, up to their ends, and the disk the others.

    Attributes:
        folder: As given.
        bytes_of_a_file: As `file_size`.
    """

    def __init__(
        self, folder: str, file_size: int, queues: Iterable[DatabaseQueue], begun: Iterable[DatabaseQueue] = ()
    ) -> None:
        self.folder, self.bytes_of_a_file = folder, file_size
        self._queues, self._begun = (
            {os.path.join(folder, queue.topic, str(queue.queue_id)): queue for queue in some}
            for some in (queues, begun)
        )
        self._opened: dict[str, QueueDatabase] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": {}}

    def database_of(self, queue: DatabaseQueue) -> QueueDatabase:
        """The database of a queue, opened at its first use."""
        database = self._opened.get(queue.database)
        return self._opened.setdefault(queue.database, QueueDatabase(queue.database)) if database is None else database

    def close(self) -> None:
        """Close the databases that are open."""
        while self._opened:
            self._opened.popitem()[1].close()

    def lacks_files_of(self, topic: str) -> bool:
        """Whether units of a topic are in a database, or would be, since no folder has files of the topic."""
        return any(queue.topic == topic for queue in self._queues.values()) or not super().is_directory(
            f"{self.folder}/{topic}"
        )

    def paths(self, queue: DatabaseQueue) -> tuple[str, ...]:
        """Paths of the files of a queue, in order."""
        folder = os.path.join(self.folder, queue.topic, str(queue.queue_id))
        return tuple(os.path.join(folder, offset_to_file_name(start)) for start in self.starts(queue))

    def starts(self, queue: DatabaseQueue) -> range:
        """First bytes of the files of a queue, as positions in the queue."""
        begin = queue.begin * UNIT_SIZE
        return range(begin - begin % self.bytes_of_a_file, queue.end * UNIT_SIZE, self.bytes_of_a_file)

    def list_directory(self, path: str) -> list[Entry]:
        """As `FileLayer.list_directory`; of a queue's folder."""
        queue = self._queues.get(path) or self._begun.get(path)
        names = [] if queue is None else map(os.path.basename, self.paths(queue))
        entries = [Entry(name, self.bytes_of_a_file, is_directory=False, allocated_bytes=0) for name in names]
        return entries if path in self._queues else [*entries, *super().list_directory(path)]

    def is_directory(self, path: str) -> bool:
        """As `FileLayer.is_directory`."""
        return path in self._queues or super().is_directory(path)

    def open(
        self, path: str, *, writable: bool = False, create: bool = False, size: int | None = None, mode: int = 0o644
    ) -> File:
        """As `FileLayer.open`; a file of the database is not opened for writing."""
        named = self._named(path)
        if named is None:
            return super().open(path, writable=writable, create=create, size=size, mode=mode)
        if writable:
            raise StoreError(f"{path}: cannot be written: its units are in {named[0].database}, which is only read")
        return _DatabaseFile(path, self.database_of(named[0]), *named, self.bytes_of_a_file)

    def exists(self, path: str) -> bool:
        """As `FileLayer.exists`."""
        named = self._named(path)
        if named is None:
            return super().exists(path)
        queue, begin = named
        return self.database_of(queue).has_units(queue, begin, begin + self.bytes_of_a_file // UNIT_SIZE)

    def read_runs(self, paths: Sequence[str], positions: NDArray[np.int64], sizes: NDArray[np.int64]) -> Any:
        """As `FileLayer.read_runs`, a look for each run of a database's file."""
        import numpy as np  # here: a client that decompresses a body imports the file layers

        is_of_disk = np.array([self._named(path) is None for path in paths], np.bool_)
        if is_of_disk.all():
            return super().read_runs(paths, positions, sizes)
        data, ends = np.zeros(int(sizes.sum()), np.uint8), np.cumsum(sizes)
        for number, path in enumerate(paths):
            run = data[ends[number] - sizes[number] : ends[number]]
            with self.open(path) as file:
                file.read_into(int(positions[number]), run.data)
        return data

    def _named(self, path: str) -> tuple[DatabaseQueue, int] | None:
        """Queue and first queue offset of a file of a database; None for another path."""
        folder, _, name = path.rpartition("/")
        queue, start = self._queues.get(folder), file_name_to_offset(name)
        if queue is None and start is not None and (begun := self._begun.get(folder)) is not None:
            queue = begun if start < begun.end * UNIT_SIZE else None
        return None if queue is None or start is None else (queue, start // UNIT_SIZE)


class _DatabaseFile(File):
    """One file of a queue; each read asks the database for its units."""

    __slots__ = ("_begin", "_database", "_queue", "_size")

    def __init__(self, path: str, database: QueueDatabase, queue: DatabaseQueue, begin: int, size: int) -> None:
        super().__init__(path, -1)
        self._database, self._queue, self._begin, self._size = database, queue, begin, size

    @property
    def size(self) -> int:
        """Bytes of the file, the unused ones after its units counted."""
        return self._size

    def read(self, position: int, size: int) -> bytes:
        """As `File.read`."""
        end = min(position + size, self._size)
        if position >= end:
            return b""
        first = position // UNIT_SIZE
        count = -(-end // UNIT_SIZE) - first
        units = self._database.units(self._queue, self._begin + first, count)
        return units[position - first * UNIT_SIZE : end - first * UNIT_SIZE]

    def read_into(self, position: int, buffer: WriteableBuffer) -> int:
        """As `File.read_into`."""
        view = memoryview(buffer).cast("B")
        data = self.read(position, view.nbytes)
        view[: len(data)] = data
        return len(data)

    def read_runs(self, positions: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.uint8]:
        """As `File.read_runs`, a look for each."""
        import numpy as np

        runs = zip(positions.tolist(), sizes.tolist(), strict=True)
        data = [self.read(position, size).ljust(size, b"\0") for position, size in runs]
        return np.frombuffer(b"".join(data), np.uint8)

    def map(self, *, writable: bool = False, random: bool = False, expected: int = 0) -> Mapping:
        """Map of all units, read now, in memory."""
        with DISK.make_memory_file(self.path, self.read(0, self._size)) as file:
            return file.map(random=random)

    def _data_from(self, position: int, *, with_zeros: bool = False) -> Iterator[tuple[int, bytes]]:
        """As of `File`: blocks of whole units, as far as the queue has some."""
        end = self._begin + self._size // UNIT_SIZE
        for first in range(self._begin + position // UNIT_SIZE, end, _BLOCK_UNITS):
            if not self._database.has_units(self._queue, first, end):
                return
            start = (first - self._begin) * UNIT_SIZE
            yield start, self.read(start, min(_BLOCK_UNITS * UNIT_SIZE, self._size - start))
