"""Errors on their way to the user, of which Spark shows the whole trace: ours get short, and one is none."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from reput.errors import ReputError

P = ParamSpec("P")
R = TypeVar("R")


def told_shortly(method: Callable[P, R]) -> Callable[P, R]:
    """Raise errors of ours without the lines they came through: the message is what the user needs.

    For what Spark calls, and so with `end_quietly`.
    """

    @wraps(method)
    def told(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except ReputError as error:
            raise error.with_traceback(None) from None
        finally:
            end_quietly()

    return told


def end_quietly() -> None:
    """In a process that Spark's planner has asked: let it end without a traceback when Spark closes its socket.

    Spark does so when it has read the answer, and often before the process has flushed its last bytes, which nobody
    wants: pyspark's daemon prints a BrokenPipeError then. Only tasks have workers of `reput.spark.daemon`.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)  # none in some shells
    if spec is not None and spec.name == "pyspark.daemon":
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
