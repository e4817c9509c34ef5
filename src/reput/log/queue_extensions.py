"""Consume queue extensions of a store directory (docs/formats/consume-queue-ext.md): their files and units."""

from __future__ import annotations

import os
from collections import Counter

from reput.errors import CorruptConsumeQueueError
from reput.files import DISK, FileLayer
from reput.formats.consume_queue_ext import ExtUnit, decode_address, decode_ext_unit, is_ext_address
from reput.formats.paths import CONSUME_QUEUE_EXT, file_name_to_offset, offset_to_file_name, queue_folder_id
from reput.log.directory import MOST_FILE_BYTES, QueueFiles, check_entry


def queue_extensions(store_path: str, files: FileLayer = DISK) -> list[QueueFiles]:
    """The extension files of each queue that has any, in order.

    They are derived from the log, so files with other names are ignored, and so are files that do not have the most
    frequent size of the queue's files; files may be missing in between. Raises StoreFormatError for a folder that has
    the name of a file.
    """
    listing = []
    for topic, topic_path in subfolders(files, os.path.join(store_path, CONSUME_QUEUE_EXT)):
        for queue_id, path in subfolders(files, topic_path):
            if (number := queue_folder_id(queue_id)) is not None:
                entries = [entry for entry in files.list_directory(path) if file_name_to_offset(entry.name) is not None]
                for entry in entries:
                    check_entry(entry, os.path.join(path, entry.name))
                sizes = {
                    os.path.join(path, entry.name): entry.size for entry in entries if 0 < entry.size <= MOST_FILE_BYTES
                }
                if sizes:
                    # Of equally frequent sizes the oldest file's: damage changes the last file, which is written to.
                    (file_size, _), *_ = Counter(sizes.values()).most_common(1)
                    paths = tuple(name for name, size in sizes.items() if size == file_size)
                    listing.append(QueueFiles(topic, number, paths, file_size))
    return listing


def read_ext_unit(extension: QueueFiles, address: int, files: FileLayer = DISK) -> ExtUnit | None:
    """The ext unit at an address; None if the files do not have it."""
    if not is_ext_address(address):
        return None
    offset = decode_address(address)
    path = os.path.join(os.path.dirname(extension.paths[0]), offset_to_file_name(offset - offset % extension.file_size))
    if path not in extension.paths:
        return None
    with files.open(path) as file:
        return decode_whole(file.read(offset % extension.file_size, 1 << 15))


def decode_whole(data: bytes) -> ExtUnit | None:
    """The ext unit at the start of `data`; None if there is none or it is damaged."""
    try:
        return decode_ext_unit(data)
    except CorruptConsumeQueueError:
        return None


def subfolders(files: FileLayer, path: str) -> list[tuple[str, str]]:
    """(name, path) of each sub-folder of a folder; empty if the folder is missing."""
    if not files.is_directory(path):
        return []
    return [(entry.name, os.path.join(path, entry.name)) for entry in files.list_directory(path) if entry.is_directory]
