"""Swap the folders of queues and index for rebuilt ones, so that a kill at any moment does no harm.

Four folders cannot be exchanged atomically. So first the checkpoint says that no queue and no index is on the disk, and
the store is marked as killed: RocketMQ or reput, opening the store, would dispatch the whole log again, and drop queues
and index. Then all old folders are moved away before the first new folder comes: a kill leaves new folders only, and
the next start dispatches what is missing. The last steps restore the mark and write the final checkpoint.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from reput.errors import StoreFormatError, StoreLockedError
from reput.files import DISK
from reput.files.attempts import end_attempts
from reput.formats.checkpoint import CHECKPOINT_SIZE, USED_SIZE, Checkpoint, encode_checkpoint
from reput.formats.paths import (
    ABORT,
    BATCH_CONSUME_QUEUE,
    CHECKPOINT,
    CONFIG,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    LOCK,
)
from reput.formats.shutdown import SHUTDOWN_FILE
from reput.jobs.rebuild.build import RebuildResult
from reput.jobs.rebuild.originals import free_name, keep_copy
from reput.log.directory import StoreDirectory
from reput.log.dispatch_marks import DISPATCH_FILE, DISPATCHER_LOCK, RECOVERY_FILE, attempts_path, marks_path

#: Folders in the order in which the new ones come. Without consume queues a start of RocketMQ dispatches everything.
_FOLDERS = (CONSUME_QUEUE, BATCH_CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX)

#: Small files that a swap changes or removes.
_SMALL_FILES = (CHECKPOINT, os.path.join(CONFIG, SHUTDOWN_FILE), os.path.join(CONFIG, DISPATCH_FILE))


@dataclass(frozen=True, slots=True)
class Swap:
    """Plan of a swap, made durable before its first step.

    Attributes:
        store: the store's directory.
        built: the folder with the new folders.
        aside: the folder for old folders that are to be removed.
        names: of the new folders.
        was_killed: whether the store was marked as killed before the swap.
        checkpoint: of the store at the end.
        kept: paths of old folders that are kept, and of copies of small files, by their names.
    """

    store: str
    built: str
    aside: str
    names: tuple[str, ...]
    was_killed: bool
    checkpoint: Checkpoint
    kept: Mapping[str, str] = field(default_factory=dict)

    def run(self) -> None:
        """Do all steps. Steps that were done before a kill are repeated, or found done."""
        self._write_checkpoint(self.checkpoint._replace(logics_msg_timestamp=0, index_msg_timestamp=0))
        abort = os.path.join(self.store, ABORT)  # after the checkpoint: with both, RocketMQ loses nothing of the index
        if not DISK.exists(abort):
            DISK.write_atomically(abort, str(os.getpid()).encode())
        for name in (SHUTDOWN_FILE, DISPATCH_FILE, RECOVERY_FILE):
            path = os.path.join(self.store, CONFIG, name)
            if DISK.exists(path):  # it describes the old folders; without it a start looks at the files
                DISK.unlink(path)
        DISK.make_directories(self.aside)
        for name in reversed(_FOLDERS):
            path, old = os.path.join(self.store, name), self.kept.get(name, os.path.join(self.aside, name))
            if name == INDEX and name not in self.names:  # no index was built
                continue
            if DISK.exists(path) and (name not in self.names or DISK.exists(os.path.join(self.built, name))):
                if DISK.exists(old):  # `old` is the old folder; `path` was made by a start between a kill and now
                    old = os.path.join(self.aside, name)
                    if DISK.exists(old):
                        DISK.remove_tree(old)
                DISK.rename(path, old)
        for name in _FOLDERS:
            new = os.path.join(self.built, name)
            if DISK.exists(new):
                DISK.rename(new, os.path.join(self.store, name))
        if not self.was_killed:
            DISK.unlink(abort)
        self._write_checkpoint(self.checkpoint)

    def _write_checkpoint(self, checkpoint: Checkpoint) -> None:
        path = os.path.join(self.store, CHECKPOINT)
        with DISK.open(path, writable=True, create=True, size=CHECKPOINT_SIZE) as file:
            file.write(0, encode_checkpoint(checkpoint)[:USED_SIZE])  # one sector: all old or all new values
            file.sync()
        DISK.sync_directory(self.store)


def plan_swap(directory: StoreDirectory, built: str, aside: str, result: RebuildResult, *, keep_old: bool) -> Swap:
    """Plan the swap of built folders, all synced, into a store that no process has open. `keep_old`: see `rebuild`."""
    before = directory.checkpoint() or Checkpoint(0, 0, 0)
    after = before._replace(
        logics_msg_timestamp=result.last_timestamp, index_msg_timestamp=result.index_timestamp, logics_physical_offset=0
    )
    names = tuple(name for name in _FOLDERS if DISK.exists(os.path.join(built, name)))
    paths = {name: os.path.join(directory.path, name) for name in _FOLDERS}
    kept = {name: free_name(DISK, path) for name, path in paths.items() if DISK.exists(path)} if keep_old else {}
    for name in _SMALL_FILES:
        path = os.path.join(directory.path, name)
        if keep_old and DISK.exists(path) and any(DISK.read_bytes(path)):
            kept[name] = keep_copy(DISK, path)
    return Swap(directory.path, built, aside, names, directory.was_killed, after, kept)


@contextmanager
def locked(store: str) -> Iterator[None]:
    """Hold the locks of a store and of its dispatcher, so that no other process writes the store's queues.

    Raises StoreLockedError if another process holds one of them.
    """
    with ExitStack() as held:
        held.callback(DISK.lock(os.path.join(store, LOCK)).release)
        if DISK.exists(marks_path(store)):
            path = os.path.join(store, CONFIG, DISPATCHER_LOCK)
            try:
                held.callback(DISK.lock(path).release)
            except StoreLockedError:
                raise StoreLockedError(
                    f"{path}: another process dispatches the log of {store}; stop it first"
                ) from None
            end_attempts(attempts_path(store), DISK)  # a dispatcher that was killed may have left some
        yield


def check_folders(directory: StoreDirectory) -> None:
    """Raise StoreFormatError if a store's queues and index cannot be swapped."""
    for foreign in directory.foreign_parts():
        if foreign.has_queues:
            raise StoreFormatError(
                f"{foreign}; a rebuild in place would take it away: use `reput rebuild --output DIR`"
            )
    for name in _SMALL_FILES:
        path = os.path.join(directory.path, name)
        if DISK.is_directory(path):
            raise StoreFormatError(f"{path}: a folder lies where a file is expected; move it away")
    for name in _FOLDERS:
        path = os.path.join(directory.path, name)
        if os.path.ismount(path) or os.path.realpath(path) != os.path.join(os.path.realpath(directory.path), name):
            raise StoreFormatError(
                f"{path}: leads to another disk or folder, which cannot be swapped at once; use `reput rebuild "
                "--output DIR`, and move what is built there by hand while the store is closed"
            )
