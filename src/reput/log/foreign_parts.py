"""Parts of a store directory that reput does not read (DLedger, RocksDB, compaction, tiered storage).

They are detected by their folders, and reported with what to do. A part that holds the log itself makes the store
unreadable. If it holds the queues, the log can be read, and queues can be built from it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from reput.files import FileLayer
from reput.formats.paths import COMMIT_LOG, CONFIG, CONSUME_QUEUE

_DLEDGER_PREFIX = "dledger-"
_DLEDGER_DATA = "data"
#: RocksDB's file that names the valid ones of its other files.
_ROCKSDB_CURRENT = "CURRENT"
_ROCKSDB_CONSUME_QUEUE = "consumequeue_rocksdb"
_COMPACTION_LOG = ("compaction", "compactionLog")
_TIERED_METADATA = (CONFIG, "tieredStoreMetadata.json")


@dataclass(frozen=True, slots=True)
class ForeignPart:
    """Part of a store directory that reput does not read.

    Attributes:
        path: the file or folder that shows it.
        text: what it is, and what to do.
        hides_log: whether it contains messages of the log.
        hides_queues: whether it contains consume queues.
    """

    path: str
    text: str
    hides_log: bool = False
    hides_queues: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


def foreign_parts(files: FileLayer, root: str) -> list[ForeignPart]:
    """Foreign parts of a store directory; empty for most stores. `rocksdbstore/`, which 5.5.0 always makes, is none."""
    parts = []
    for entry in files.list_directory(root):
        data = os.path.join(root, entry.name, _DLEDGER_DATA)
        if entry.name.startswith(_DLEDGER_PREFIX) and _has_content(files, data):
            parts.append(dledger_part(data, os.path.join(root, COMMIT_LOG)))
    for folder in (_ROCKSDB_CONSUME_QUEUE, CONSUME_QUEUE):  # 5.3 has the database in the queues' own folder
        path = os.path.join(root, folder)
        if files.exists(os.path.join(path, _ROCKSDB_CURRENT)):
            text = (
                "the consume queues are in a RocksDB (storeType=defaultRocksDB), which reput does not read; the log is "
                "a plain one: read it with `reput dump`, `reput stats` or read_log, and build queues and index from it "
                "with `reput rebuild`"
            )
            parts.append(ForeignPart(path, text, hides_queues=True))
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
