"""Preload: read the newest messages of a store, with their units and index entries, into the page cache."""

from __future__ import annotations

from typing import NamedTuple

from reput.files import FileLayer
from reput.formats.index_file import entry_position
from reput.formats.paths import offset_to_file_name
from reput.log.directory import open_listed
from reput.store.parts import Parts

_BLOCK_SIZE = 1 << 20


class Preloaded(NamedTuple):
    """Bytes that were read of log, queues and index."""

    commit_log_bytes: int
    consume_queue_bytes: int
    index_bytes: int


def preload(parts: Parts, files: FileLayer, log_bytes: int) -> Preloaded:
    """Read the last `log_bytes` bytes of the log, and the queue and index files of their records.

    Of each queue with a message among them the last file is read, and each index file with an entry for them. The log
    is read last, so that it stays in memory if memory cannot hold all.
    """
    buffer = memoryview(bytearray(_BLOCK_SIZE))

    def read(path: str, begin: int, end: int) -> int:
        with open_listed(files, path) as file:
            for position in range(begin, end, _BLOCK_SIZE):
                file.read_into(position, buffer[: min(_BLOCK_SIZE, end - position)])
        return end - begin

    log_end = parts.log.confirm_offset
    log_begin = max(parts.log.min_offset, log_end - log_bytes)
    queue_bytes = index_bytes = loaded = 0
    for queue in parts.queues.queues():
        if queue.max_physical_offset > log_begin and queue.max_offset > queue.min_offset:
            end = queue.end_position
            start = (end - 1) // queue.file_size * queue.file_size
            queue_bytes += read(f"{queue.path}/{offset_to_file_name(start)}", 0, end - start)
    for index_file in parts.index.index_files if parts.index is not None else ():
        if index_file.count > 1 and index_file.end_offset >= log_begin:
            index_bytes += read(index_file.path, 0, entry_position(index_file.slots, index_file.count))
    for log_file in parts.log.queue.mapped_files:
        begin = max(log_begin - log_file.start_offset, 0)
        end = min(log_end - log_file.start_offset, log_file.size)
        if begin < end:
            loaded += read(log_file.path, begin, end)
    return Preloaded(loaded, queue_bytes, index_bytes)
