"""Parts of a store directory that reput does not write, or read (DLedger, RocksDB, compaction, tiered storage).

They are detected by their folders, and reported with what to do. A part that holds the log itself makes the store
unreadable. If it holds the queues, the log can be read, and queues can be built from it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from reput.errors import StoreFormatError
from reput.extras import how_to_install, is_installed
from reput.files import FileLayer
from reput.formats.archive import ARCHIVE_FILE
from reput.formats.backup import TARGET_FILE
from reput.formats.paths import COMMIT_LOG, CONFIG, CONSUME_QUEUE
from reput.log.rocksdb.databases import index_database, queue_databases, without_database_files

_DLEDGER_PREFIX = "dledger-"
_DLEDGER_DATA = "data"
#: Package that reads a RocksDB.
ROCKSDB_PACKAGE = "rocksdict"
_COMPACTION_LOG = ("compaction", "compactionLog")
_TIERED_METADATA = (CONFIG, "tieredStoreMetadata.json")

#: Copies of a store, by the file that only they have; both have the store's folder `config`.
_COPIES = {
    TARGET_FILE: "backups of a store, and no store: `reput backups` lists them, and a restore",
    ARCHIVE_FILE: "an archive of a store, and no store: `reput archive --verify` proves it, and a restore",
}

logger = logging.getLogger("reput.parts")


@dataclass(frozen=True, slots=True)
class ForeignPart:
    """Part of a store directory that reput does not write, or read.

    Attributes:
        path: the file or folder that shows it.
        text: what it is, and what to do.
        hides_log: whether it contains messages of the log.
        has_queues: whether it contains consume queues, which a writer would not keep up to date.
        hides_queues: whether these are not read.
        hides_index: whether it may contain the index of keys, in place of index files.
    """

    path: str
    text: str
    hides_log: bool = False
    has_queues: bool = False
    hides_queues: bool = False
    hides_index: bool = False

    @property
    def is_read(self) -> bool:
        """Whether all of it is read: consume queues, which are not written."""
        return self.has_queues and not self.hides_queues

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


def check_is_no_copy(root: str, names: Container[str]) -> None:
    """Raises StoreFormatError for a directory of backups or an archive, by the names in it."""
    for name, what in _COPIES.items():
        if name in names and COMMIT_LOG not in names:
            raise StoreFormatError(f"{root}: {what} makes a store: `reput restore {root} FOLDER`")


def foreign_parts(files: FileLayer, root: str) -> list[ForeignPart]:
    """Foreign parts of a store directory; empty for most stores. `rocksdbstore/` is none beside index files."""
    parts = []
    for entry in files.list_directory(root):
        data = os.path.join(root, entry.name, _DLEDGER_DATA)
        if entry.name.startswith(_DLEDGER_PREFIX) and _has_content(files, data):
            parts.append(dledger_part(data, os.path.join(root, COMMIT_LOG)))
    parts += [_queue_part(files, root, folder) for folder in queue_databases(files, root)]
    if (folder := index_database(files, root)) is not None:
        text = (
            "there are no index files, and keys may be indexed in this RocksDB (indexRocksDBEnable), which reput does "
            "not read: `reput query STORE --key KEY` without --topic finds messages in the log, and `reput rebuild` "
            "builds index files from it"
        )
        parts.append(ForeignPart(folder, text, hides_index=True))
    path = os.path.join(root, *_COMPACTION_LOG)
    if _has_content(files, path):
        text = (
            "topics with cleanup.policy=COMPACTION have their newest messages by key here, too, which reput does not "
            "read; it shows what the commit log still has of them"
        )
        parts.append(ForeignPart(path, text))
    path = os.path.join(root, *_TIERED_METADATA)
    if files.exists(path):
        text = "a tiered store; reput shows what the local commit log still has, not what is in the other tier alone"
        parts.append(ForeignPart(path, text))
    return parts


def warn_of_unread_parts(files: FileLayer, root: str) -> None:
    """Write the parts whose queues or index are not read into the log `reput.parts`, as warnings."""
    for part in foreign_parts(files, root):
        if part.hides_queues or part.hides_index:
            logger.warning("%s", part)


@contextmanager
def without_warnings() -> Iterator[None]:
    """Silence `warn_of_unread_parts` for a command that shows the parts in its own form."""
    former, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = former


def _queue_part(files: FileLayer, root: str, folder: str) -> ForeignPart:
    """Foreign part for consume queues in a RocksDB; a store may have queue files as well."""
    queues = os.path.join(root, CONSUME_QUEUE)
    names = files.list_names(queues) if files.is_directory(queues) else []
    is_read = is_installed(ROCKSDB_PACKAGE)
    if without_database_files(files, queues, names):
        text = "there are units in a RocksDB beside the queue files (rocksdbCQDoubleWriteEnable)"
        text += (
            ", which are read and not written"
            if is_read
            else ", neither read nor written: what files lack may be there"
        )
    else:
        text = "the consume queues are in a RocksDB (storeType=defaultRocksDB)"
        text += (
            ", read and not written" if is_read else ", neither read nor written: the log is shown without its queues"
        )
    text += "; `reput rebuild` builds queue files and index from the log"
    text += "" if is_read else f"; to read the units: {how_to_install(ROCKSDB_PACKAGE)}"
    return ForeignPart(folder, text, has_queues=True, hides_queues=not is_read)


def dledger_part(path: str, commit_log: str) -> ForeignPart:
    """Foreign part for a DLedger log in a folder."""
    text = (
        "a DLedger log (enableDLegerCommitLog), each record after a header of its own, which reput does not read; let "
        "a broker without DLedger consume the messages and store them again; or, for what was stored before DLedger "
        f"and lies in a plain log still, name {commit_log} as the commit log's folder (storePathCommitLog)"
    )
    return ForeignPart(path, text, hides_log=True)


def is_dledger_data(path: str) -> bool:
    """Whether a folder has the name of a DLedger log."""
    head, name = os.path.split(os.path.normpath(path))
    return name == _DLEDGER_DATA and os.path.basename(head).startswith(_DLEDGER_PREFIX)


def _has_content(files: FileLayer, folder: str) -> bool:
    return files.is_directory(folder) and bool(files.list_directory(folder))
