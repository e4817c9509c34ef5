"""Spark: the session, the `reput` format, and jobs on executors.

`session` is imported eagerly: its module has the same name, and would otherwise become the attribute of this package.
The other names are imported at their first use, as they import pyspark, which Spark's daemons must not load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reput.extras import require
from reput.spark.session import session

if TYPE_CHECKING:
    from reput.spark.findings import audit, diff
    from reput.spark.log_stream import bytes_behind_latest, read_log_stream
    from reput.spark.plan_report import explain
    from reput.spark.source import read_log, register
    from reput.spark.statistics_stream import statistics_stream

__all__ = [
    "audit",
    "bytes_behind_latest",
    "diff",
    "explain",
    "read_log",
    "read_log_stream",
    "register",
    "session",
    "statistics_stream",
]

_MODULES = {
    "audit": "findings",
    "bytes_behind_latest": "log_stream",
    "diff": "findings",
    "explain": "plan_report",
    "read_log": "source",
    "read_log_stream": "log_stream",
    "register": "source",
    "statistics_stream": "statistics_stream",
}


def __getattr__(name: str) -> Any:
    """Import a name at its first use (PEP 562): if there is no pyspark, an error says what to install."""
    if name not in _MODULES:
        raise AttributeError(f"module 'reput.spark' has no attribute {name!r}")
    require("pyspark", f"reput.spark.{name}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"reput.spark.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
