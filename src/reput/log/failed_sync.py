"""Mark of a failed sync, `config/reputFailedSync`, for the next start (docs/design/durability.md).

Linux keeps the pages that it could not write, and counts them as written. Reads show these pages although the disk does
not have them, no later sync writes them, and the error is reported once. So the next start must know of the failed
sync, as long as the machine has not been restarted. A power cut removes these pages, and may remove the mark with them:
the mark is never synced, and an error while it is written is only logged.
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
    """Path of a store's mark."""
    return os.path.join(root, CONFIG, FAILED_SYNC_FILE)


def leave_mark(root: str, files: FileLayer, error: ReputError) -> None:
    """Leave the mark if the error comes from a sync; the error's text goes into the mark for a human reader."""
    if not isinstance(error, StoreSyncError | StorePoisonedError):
        return
    path = failed_sync_path(root)
    try:
        files.add_directories(os.path.dirname(path))
        with files.open(path, writable=True, create=True) as file:
            file.write(0, f"{error}\n".encode())
    except StoreError as second:
        logger.warning("%s; no mark could be left: restart the machine before the store is opened again", second)


def remove_mark(root: str, files: FileLayer) -> None:
    """Remove the mark, durably: all that can be read of the store is on the disk."""
    if files.exists(failed_sync_path(root)):
        files.unlink(failed_sync_path(root))


@contextmanager
def watched(root: str, files: FileLayer) -> Iterator[None]:
    """Context in which a failed sync leaves the mark."""
    try:
        yield
    except StoreSyncError as error:
        leave_mark(root, files, error)
        raise
