"""Short errors for Spark, which shows whole tracebacks: our errors lose theirs, and a closed socket is no error."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from reput.errors import ReputError

P = ParamSpec("P")
R = TypeVar("R")


def without_traceback(method: Callable[P, R]) -> Callable[P, R]:
    """Decorate a method that Spark calls, so that our errors are raised without traceback: users need only the message.

    Calls `end_quietly` after the method.
    """

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except ReputError as error:
            raise error.with_traceback(None) from None
        finally:
            end_quietly()

    return call


def end_quietly() -> None:
    """Let a process of Spark's planner end without a traceback when Spark closes its socket.

    Spark closes the socket after it has read the answer, often before the process has flushed its last, unused bytes:
    then pyspark's daemon prints a BrokenPipeError. Only tasks run in workers of `reput.spark.daemon`.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)  # none in some shells
    if spec is not None and spec.name == "pyspark.daemon":
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
