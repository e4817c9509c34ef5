"""Read access to store directories: no lock, no thread, no byte changed. For live, killed and read-only stores.

`reput.log.directory` needs the standard library alone; `read_log` imports NumPy, Numba and Arrow at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reput.log.directory import IndexFilePath, LogFile, QueueFiles, StoreDirectory

if TYPE_CHECKING:
    from reput.log.reader import read_log

__all__ = ["IndexFilePath", "LogFile", "QueueFiles", "StoreDirectory", "read_log"]


def __getattr__(name: str) -> Any:
    """Import `read_log` at its first use (PEP 562): the import takes half a second."""
    if name != "read_log":
        raise AttributeError(f"module 'reput.log' has no attribute {name!r}")
    from reput.log.reader import read_log

    globals()[name] = read_log
    return read_log
