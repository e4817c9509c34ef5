"""A sync has failed: `config/reputFailedSync` says so to the next start (docs/design/durability.md).

Linux keeps the pages that it could not write, and counts them as written. Whoever reads them sees what the disk does
not have, no later sync writes them, and the error is told once. So the next start in the same running machine must know
of it. A power cut takes these pages, and may take the mark with them: it is never synced, and that it cannot be written
is no error.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from reput.errors import ReputError, StoreError, StorePoisonedError, StoreSyncError
from reput.files import FileLayer
from reput.formats.paths import CONFIG

FAILED_SYNC_FILE = "reputFailedSync"

logger = logging.getLogger("reput.log")


def failed_sync_path(root: str) -> str:
    """Where the mark of a store is."""
    return os.path.join(root, CONFIG, FAILED_SYNC_FILE)


def leave_mark(root: str, files: FileLayer, error: ReputError) -> None:
    """Leave the mark, if the error is that of a sync; its text is for those who look."""
    if not isinstance(error, StoreSyncError | StorePoisonedError):
        return
    path = failed_sync_path(root)
    try:
        files.add_directories(os.path.dirname(path))
        with files.open(path, writable=True, create=True) as file:
            file.write(0, f"{error}\n".encode())
    except StoreError as second:
        logger.warning("%s; restart the machine before the store is opened again, for no mark could be left", second)


def remove_mark(root: str, files: FileLayer) -> None:
    """Remove the mark, durably: what is read of the store is on the disk."""
    if files.exists(failed_sync_path(root)):
        files.unlink(failed_sync_path(root))


@contextmanager
def watched(root: str, files: FileLayer) -> Iterator[None]:
    """A time in which a sync that fails leaves the mark."""
    try:
        yield
    except StoreSyncError as error:
        leave_mark(root, files, error)
        raise
