"""reput's errors for what the operating system refused: the file, the reason, and what to do."""

from __future__ import annotations

import errno
import os

from reput.errors import StoreError, StoreFullError, StoreSyncError

_FULL = {
    errno.ENOSPC: "no space left on the disk; free some and try again",
    errno.EDQUOT: "the disk quota is used up; free some space or raise the quota, and try again",
    errno.EFBIG: "the file would grow past the largest size allowed; raise the limit (ulimit -f), or use smaller files",
}
_REFUSED = {
    errno.EACCES: "permission denied; check owner and mode of it and of its folder",
    errno.EPERM: "operation not permitted; check its owner, and whether it was made immutable",
    errno.EEXIST: "a file lies where a folder is expected; move it away",
    errno.ENOTDIR: "a file lies where a folder is expected; move it away",
    errno.EISDIR: "a folder lies where a file is expected; move it away",
    errno.ELOOP: "symbolic links lead to each other; put the file itself there",
    errno.EROFS: "the file system is mounted read-only; mount it writable, or give a path on another one",
}


def failure(error: OSError, path: str, action: str) -> StoreError:
    """StoreError for an OSError; `action` is a verb: what reput tried to do with `path`."""
    reason = _REFUSED.get(error.errno or 0) or error.strerror or str(error)
    return StoreError(f"{path}: cannot {action}: {reason}")


def sync_failure(error: OSError, path: str) -> StoreSyncError:
    """StoreSyncError for a failed sync of a file. Never StoreFullError, which invites to a retry."""
    return StoreSyncError(str(failure(error, path, "sync")))


def write_failure(error: OSError, path: str, action: str, needed_bytes: int) -> StoreError:
    """Error for an action that takes disk space: StoreFullError if there is none left, else as `failure`."""
    reason = _FULL.get(error.errno or 0)
    if reason is None:
        return failure(error, path, action)
    return StoreFullError(f"{path}: cannot {action}: {needed_bytes} bytes needed, {_free_bytes(path)} free: {reason}")


def _free_bytes(path: str) -> int:
    """Free bytes on the disk where `path` is or would be."""
    while path and not os.path.exists(path):
        path = os.path.dirname(path)
    status = os.statvfs(path or ".")
    return status.f_bavail * status.f_frsize
