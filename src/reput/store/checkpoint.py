"""Checkpoint and abort marker on the disk: how far the files are flushed, and whether the last exit was clean."""

from __future__ import annotations

import os
from threading import Lock

from reput.files import FileLayer
from reput.formats.checkpoint import CHECKPOINT_SIZE, USED_SIZE, Checkpoint, decode_checkpoint, encode_checkpoint
from reput.formats.paths import ABORT, CHECKPOINT


class StoreCheckpoint:
    """RocketMQ's `StoreCheckpoint`: one page, rewritten in place; its 48 bytes lie in one sector of any disk.

    A missing checkpoint is made with the given times, as a whole or not at all.
    """

    def __init__(self, files: FileLayer, path: str, times: Checkpoint) -> None:
        name = f"{path}/{CHECKPOINT}"
        if not files.exists(name):
            files.write_atomically(name, encode_checkpoint(times))
        self._file = files.open(name, writable=True, size=CHECKPOINT_SIZE)
        self._lock = Lock()
        self._written = decode_checkpoint(self._file.read(0, CHECKPOINT_SIZE))

    @property
    def written(self) -> Checkpoint:
        """The times that are on the disk."""
        return self._written

    def flush(self, physic_msg_timestamp: int, logics_msg_timestamp: int, index_msg_timestamp: int) -> None:
        """Write and sync the times (ms) up to which log, queues and index are on the disk; 0 leaves a time as it is."""
        with self._lock:
            old = self._written
            new = old._replace(
                physic_msg_timestamp=physic_msg_timestamp or old.physic_msg_timestamp,
                logics_msg_timestamp=logics_msg_timestamp or old.logics_msg_timestamp,
                index_msg_timestamp=index_msg_timestamp or old.index_msg_timestamp,
            )
            if new != old:
                self._file.write(0, encode_checkpoint(new)[:USED_SIZE])
                self._file.sync()
                self._written = new

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def forget_logics_physical_offset(files: FileLayer, path: str, checkpoint: Checkpoint) -> None:
    """Let RocketMQ from 5.5.0 on go by the checkpoint's times, as 5.4.0 does, durably.

    After a kill it dispatches nothing that lies before the log file of this offset, whatever the times say. reput keeps
    the times, and may cut or make anew what is before the offset.

    Args:
        path: The store's directory.
        checkpoint: What its checkpoint has.
    """
    if checkpoint.logics_physical_offset:
        with files.open(f"{path}/{CHECKPOINT}", writable=True, size=CHECKPOINT_SIZE) as file:
            file.write(0, encode_checkpoint(checkpoint._replace(logics_physical_offset=0))[:USED_SIZE])
            file.sync()


class AbortFile:
    """RocketMQ's file `abort`: it exists while a store is open, and after a kill."""

    def __init__(self, files: FileLayer, path: str) -> None:
        self._files = files
        self._path = f"{path}/{ABORT}"
        self._text = str(os.getpid()).encode()

    def create(self) -> None:
        """Mark the store as open, durably; the content is the process id, as RocketMQ 5 writes it."""
        self._files.write_atomically(self._path, self._text)

    def is_in_place(self) -> bool:
        """Whether the file has the text that `create` wrote, or is missing; another text is that of another writer."""
        return not self._files.exists(self._path) or self._files.read_bytes(self._path) == self._text

    def remove(self) -> None:
        """Mark the store as cleanly closed, durably."""
        self._files.unlink(self._path)
