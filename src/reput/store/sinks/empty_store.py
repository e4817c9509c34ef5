"""Removal of a new store into which a failed command has put nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from reput.config.message_store import MessageStoreConfig
from reput.errors import ReputError, StoreLockedError
from reput.files import FileLayer
from reput.formats.paths import LOCK
from reput.formats.sink_commit import STAGING
from reput.log.directory import numbered_files
from reput.store.recovery.listing import commit_log_folders, configured_folders, is_fresh
from reput.store.sinks.staging_folder import is_used


@contextmanager
def no_empty_store(path: str | os.PathLike[str], config: MessageStoreConfig, files: FileLayer) -> Iterator[None]:
    """After a ReputError remove the store at `path`, if nothing was there before and no message is in it.

    A store that another process has open, or stages messages for, stays, and so does an empty folder of the user.
    """
    path = os.path.abspath(os.path.expanduser(path))
    is_new, had_folder = is_fresh(files, path), files.exists(path)
    try:
        yield
    except ReputError:
        if is_new and files.is_directory(path):
            _remove_if_empty(path, config, files, keep_folder=had_folder)
        raise


def _remove_if_empty(path: str, config: MessageStoreConfig, files: FileLayer, *, keep_folder: bool) -> None:
    try:
        lock = files.lock(os.path.join(path, LOCK))
    except StoreLockedError:
        return
    try:
        folders = configured_folders(config) or commit_log_folders(path, config)
        log_files = numbered_files(files, *filter(files.is_directory, folders))
        has_messages = any(_has_record(files, file.path) for file in log_files)
        if not has_messages and not is_used(files, os.path.join(path, STAGING)):
            for entry in files.list_directory(path) if keep_folder else ():
                remove = files.remove_tree if entry.is_directory else files.unlink
                remove(os.path.join(path, entry.name))
            if not keep_folder:
                files.remove_tree(path)
    finally:
        lock.release()


def _has_record(files: FileLayer, path: str) -> bool:
    """Whether a log file has a record; one that was only made, as on a full disk, reads as zeros."""
    with files.open(path) as file:
        return file.read(0, 8) != bytes(8)
