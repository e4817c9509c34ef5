"""The consume queues of a store for readers: those in files, and those in a RocksDB, which are shown as files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from reput.errors import CorruptConsumeQueueError
from reput.extras import is_installed
from reput.files import FileLayer
from reput.formats.consume_queue import DEFAULT_FILE_SIZE, FILLER, UNIT_SIZE
from reput.formats.java import INT64_MAX
from reput.formats.paths import CONSUME_QUEUE, file_name_to_offset, offset_to_file_name
from reput.kernels.queues.unit_types import UNIT_TYPE
from reput.log.directory import QueueFiles, StoreDirectory
from reput.log.foreign_parts import ROCKSDB_PACKAGE
from reput.log.queue_jumps import has_room
from reput.log.rocksdb.databases import queue_databases
from reput.log.rocksdb.queue_database import DatabaseQueue, QueueDatabase
from reput.log.rocksdb.queue_files import FILE_SIZE, DatabaseFiles


class AllQueues(NamedTuple):
    """Queues, sorted by topic and queue id, and the file layer that reads their files, of which some are on no disk."""

    queues: list[QueueFiles]
    files: FileLayer


class DatabaseQueues(NamedTuple):
    """Queues in databases, and the file layer that shows them as files."""

    queues: list[DatabaseQueue]
    files: DatabaseFiles


def all_queues(directory: StoreDirectory) -> AllQueues:
    """List the consume queues of a store, as `StoreDirectory.queues` lists those in files.

    A queue that is in both is read where it reaches further: a store may have gone over from one to the other. If that
    is in files, what a database has before the first of them comes before them. Databases are left out without the
    extra `rocksdb`.

    Raises:
        StoreFormatError: As `StoreDirectory.queues`.
        CorruptConsumeQueueError: A database is damaged.
    """
    listed = directory.queues()
    file_size = listed[0].file_size if listed else FILE_SIZE
    found = database_queues(directory, file_size)
    if found is None:
        return AllQueues(listed, directory.files)
    of_files = {(queue.topic, queue.queue_id): queue for queue in listed}
    further = _further(found.queues, listed, directory.files)
    names = {(queue.topic, queue.queue_id) for queue in further}
    begun = [
        begin
        for queue in found.queues
        if (queue.topic, queue.queue_id) not in names
        and (begin := _before(queue, of_files[queue.topic, queue.queue_id], file_size)) is not None
    ]
    if not further and not begun:
        return AllQueues(listed, directory.files)
    files = DatabaseFiles(found.files.folder, file_size, further, begun)
    for queue in (*further, *begun):
        name = (queue.topic, queue.queue_id)
        others = () if name in names else of_files[name].paths
        of_files[name] = QueueFiles(*name, (*files.paths(queue), *others), file_size)
    return AllQueues(sorted(of_files.values(), key=lambda queue: (queue.topic, queue.queue_id)), files)


def database_queues(directory: StoreDirectory, file_size: int = DEFAULT_FILE_SIZE) -> DatabaseQueues | None:
    """List the consume queues in databases; None without a database, or without the extra `rocksdb`.

    Of two databases with a queue the one counts that reaches further.

    Raises CorruptConsumeQueueError: a database is damaged, as one with more units of a queue than the log has room for.
    """
    folders = queue_databases(directory.files, directory.path)
    if not folders or not is_installed(ROCKSDB_PACKAGE):
        return None
    queues: dict[tuple[str, int], DatabaseQueue] = {}
    log_files = directory.log_files()
    log_end = log_files[-1].end_offset if log_files else INT64_MAX
    for folder in folders:
        database = QueueDatabase(folder)
        for queue in database.queues():
            if not has_room(queue.end, queue.begin, 0, log_end):
                raise CorruptConsumeQueueError(
                    folder, 0, f"the queue {queue.topic}/{queue.queue_id} has the queue offsets {queue.begin} to "
                    f"{queue.end - 1}, and the log ends at {log_end}: queues derive from the log: `reput rebuild` "
                    "builds them in files",
                )  # fmt: skip
            other = queues.setdefault((queue.topic, queue.queue_id), queue)
            if other.end < queue.end:
                queues[queue.topic, queue.queue_id] = queue
        database.close()
    of_store = sorted(queues.values())
    return DatabaseQueues(of_store, DatabaseFiles(os.path.join(directory.path, CONSUME_QUEUE), file_size, of_store))


def _before(queue: DatabaseQueue, of_files: QueueFiles, file_size: int) -> DatabaseQueue | None:
    """The queue of a database up to the first of its files; None unless it begins before, and goes as far."""
    first = file_name_to_offset(os.path.basename(of_files.paths[0])) if of_files.file_size == file_size else None
    if first is None or not queue.begin * UNIT_SIZE < first <= queue.end * UNIT_SIZE:
        return None
    return queue._replace(end=first // UNIT_SIZE)


def _further(found: Sequence[DatabaseQueue], listed: Sequence[QueueFiles], files: FileLayer) -> list[DatabaseQueue]:
    """Queues of a database whose last unit is not in their files."""
    of_files = {(queue.topic, queue.queue_id): queue for queue in listed}
    taken, both, paths, positions = [], [], [], []
    for queue in found:
        other = of_files.get((queue.topic, queue.queue_id))
        position = (queue.end - 1) * UNIT_SIZE
        path = ""
        if other is not None:
            inside = position % other.file_size
            path = os.path.join(os.path.dirname(other.paths[0]), offset_to_file_name(position - inside))
        if other is None or path not in other.paths:
            taken.append(queue)
        else:
            both.append(queue)
            paths.append(path)
            positions.append(inside)
    if not both:
        return taken
    sizes = np.full(len(both), UNIT_SIZE, np.int64)
    units = files.read_runs(paths, np.array(positions, np.int64), sizes).view(UNIT_TYPE)
    lacks = (units["size"] <= 0) | (units["size"] == FILLER.size)
    return [*taken, *(both[number] for number in np.flatnonzero(lacks).tolist())]
