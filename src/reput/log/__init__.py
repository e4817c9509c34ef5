"""Read access to store directories: no lock, no thread, no byte changed. For live, killed and read-only stores.

`reput.log.directory` needs the standard library alone; `read_log` and `log_dataset` import NumPy, Numba and Arrow at
their first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from reput.log.directory import IndexFilePath, LogFile, QueueFiles, StoreDirectory

if TYPE_CHECKING:
    from reput.log.datasets.dataset import log_dataset
    from reput.log.datasets.read_log import read_log

__all__ = ["IndexFilePath", "LogFile", "QueueFiles", "StoreDirectory", "log_dataset", "read_log"]

_MODULE_OF = {"log_dataset": "reput.log.datasets.dataset", "read_log": "reput.log.datasets.read_log"}


def __getattr__(name: str) -> Any:
    """Import a function at its first use (PEP 562): the import takes half a second."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'reput.log' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
