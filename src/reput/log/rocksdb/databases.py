"""Search for the databases of RocksDB in a store directory: of consume queues, and of the index of keys."""

from __future__ import annotations

import os

from reput.files import FileLayer
from reput.formats.paths import CONSUME_QUEUE, INDEX
from reput.formats.rocksdb import CURRENT, ROCKSDB_CONSUME_QUEUE, ROCKSDB_STORE, is_rocksdb_file

#: Ends of names of files with keys and values: of a table on the disk, and of RocksDB's log.
_WITH_ROWS = (".sst", ".log")


def is_database(files: FileLayer, folder: str) -> bool:
    """Whether a folder has a database; beside it may lie other files, as the folders of topics do."""
    return files.exists(os.path.join(folder, CURRENT))


def queue_databases(files: FileLayer, root: str) -> list[str]:
    """Folders of a store that have consume queues in a RocksDB: that of a key of 5.5, and the queues' own one."""
    folders = (os.path.join(root, name) for name in (ROCKSDB_CONSUME_QUEUE, CONSUME_QUEUE))
    return [folder for folder in folders if is_database(files, folder)]


def index_database(files: FileLayer, root: str) -> str | None:
    """Folder of a store that may have the index of keys in a RocksDB; None if there are index files, or no rows in it.

    5.5 makes the database always, and has rows in it with `indexRocksDBEnable`, and with keys for timers and half
    messages.
    """
    folder, index = os.path.join(root, ROCKSDB_STORE), os.path.join(root, INDEX)
    if not is_database(files, folder) or (files.is_directory(index) and files.list_names(index)):
        return None
    entries = files.list_directory(folder)
    return folder if any(entry.size and entry.name.endswith(_WITH_ROWS) for entry in entries) else None


def without_database_files(files: FileLayer, folder: str, names: list[str]) -> list[str]:
    """Names in a folder of queues without the files of a database that lies in the same folder."""
    return [name for name in names if not is_rocksdb_file(name)] if is_database(files, folder) else names
