"""Spark's words, our bytes: the session, the `reput` format, and jobs on executors.

`session` is imported here and now: it bears the name of its module, which would take its place as an attribute of this
package otherwise. The others come with their first use, as they bring pyspark, which Spark's daemons must not pay for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reput.spark.session import session

if TYPE_CHECKING:
    from reput.spark.source import explain, read_log, register

__all__ = ["explain", "read_log", "register", "session"]


def __getattr__(name: str) -> Any:
    """Import the others on their first use (PEP 562)."""
    if name not in ("explain", "read_log", "register"):
        raise AttributeError(f"module 'reput.spark' has no attribute {name!r}")
    from reput.spark import source

    value = globals()[name] = getattr(source, name)
    return value
