"""Short errors for Spark, which shows whole tracebacks: our errors lose theirs, and a closed socket is no error."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import ParamSpec, TypeVar

from reput.errors import ReputError

P = ParamSpec("P")
R = TypeVar("R")
_OURS = f"{ReputError.__module__}."
#: The modules that pyspark runs as programs for what it asks a source outside of tasks.
_PLANNER = "pyspark.daemon"
_READER_OF_STREAM = "pyspark.sql.streaming.python_streaming_source_runner"


def without_traceback(method: Callable[P, R]) -> Callable[P, R]:
    """Decorate a method that Spark calls, so that our errors are raised without traceback: users need only the message.

    Calls `end_quietly` after the method. Within it, a broker that closes a connection is an error of that connection.
    """

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if _main_module() == _PLANNER:
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        try:
            return method(*args, **kwargs)
        except ReputError as error:
            raise error.with_traceback(None) from None
        finally:
            end_quietly()

    return call


def reason_of(error: Exception) -> str:
    """Reason in an error of Spark: the text of our error within it, if there is one, or else its first line."""
    lines = str(error).strip().split("\n")
    ours = next((line for line in lines if line.startswith(_OURS)), None)
    return lines[0] if ours is None else ours.removeprefix(_OURS).partition(": ")[2]


def end_quietly() -> None:
    """Let a process of Spark's planner, or of a stream's reader, end without a traceback when Spark closes its socket.

    Spark closes the socket after it has read the answer, often before the process has flushed its last, unused bytes:
    then a BrokenPipeError is printed, by pyspark's daemon in the planner's process, which only a signal prevents, and
    by Python in the reader's. Only tasks run in workers of `reput.spark.daemon`.
    """
    if _main_module() == _PLANNER:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    elif _main_module() == _READER_OF_STREAM:
        sys.excepthook = _print_unless_closed


def _main_module() -> str | None:
    """The name of the module that this process runs; none in some shells."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return None if spec is None else spec.name


def _print_unless_closed(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if not issubclass(kind, BrokenPipeError):
        sys.__excepthook__(kind, error, traceback)
