"""Ctrl-C at any moment of a command: one line on stderr, exit status 130, and no process left.

So ends a command that would have ended by itself. One that runs until it is stopped (`until_stopped`) has done its work
then: its status is 0, without a line, and SIGTERM ends it, too (docs/commands.md).

The first SIGINT raises KeyboardInterrupt, so that a command closes what it has open. Not when a JVM of Spark's runs:
there the exception would pass through py4j, in the middle of a call, and both print it at length. So the handler itself
ends the JVM and then the process, which is a kill, and jobs may be killed at any moment. A second SIGINT does the same.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, ModuleType
from typing import NoReturn

from reput.errors import ReputError

STATUS = 130
_URL = "://"

_is_interrupted = False
#: Whether the command runs until it is stopped, so that an interrupt is its end.
_runs_until_stopped = False
#: Where the command goes on if it is given again.
_resumable: list[str] = []
#: These, and folders of jobs in which this process worked, when it was interrupted.
_left: list[str] = []
_job_folders: list[str] = []
#: What the first SIGINT calls instead of ending the command.
_stops: list[Callable[[], None]] = []
#: What restores the terminal if the handler ends the process.
_restores: list[Callable[[], None]] = []


def take() -> None:
    """Take SIGINT from now on, unless the process was started with SIGINT ignored (`reput ... &` in a script)."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _interrupt)
        sys.unraisablehook = _unraisable


def ignore() -> None:
    """Ignore SIGINT from now on: the command has ended, and Python would print an interrupt of its own end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def is_interrupted() -> bool:
    """Whether SIGINT has come. Whatever is raised then, is raised for this reason."""
    return _is_interrupted


@contextmanager
def restoring(restore: Callable[[], None]) -> Iterator[None]:
    """Call `restore` before the handler ends the process within the block."""
    _restores.append(restore)
    try:
        yield
    finally:
        _restores.remove(restore)


@contextmanager
def until_stopped(stop: Callable[[], None] | None = None, *, unless: bool = False) -> Iterator[None]:
    """Let the first SIGINT or SIGTERM end the block, and the command go on after it as one that is done.

    Args:
        stop: Called by the first signal, and ends the block soon; what the block raises then is an error. None: the
            signal raises KeyboardInterrupt in it.
        unless: The block ends by itself. It is a job then: SIGTERM kills it, and a SIGINT that has ended it is raised.
    """
    global _is_interrupted, _runs_until_stopped
    takes_term = not unless and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    try:
        _runs_until_stopped = not unless
        if stop is not None:
            _stops.append(stop)
        if takes_term:
            signal.signal(signal.SIGTERM, _interrupt)
        yield
    except BaseException as error:  # whatever a library has made of KeyboardInterrupt; an error of ours is told
        if unless or stop is not None or not _is_interrupted or isinstance(error, ReputError):
            raise
    else:
        if unless and stop is not None and _is_interrupted:
            raise KeyboardInterrupt
    finally:
        _runs_until_stopped = False
        _stops.clear()
        if takes_term:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if not unless:
            _is_interrupted = False


@contextmanager
def resumable(path: str | None) -> Iterator[None]:
    """Tell of an interrupt in the block that what is done is kept at `path`, where the same command goes on.

    None: nothing is done there. A `JobFolder` tells by itself.
    """
    paths = [] if path is None else [path if _URL in path else os.path.abspath(path)]
    _resumable.extend(paths)
    try:
        yield
    finally:
        del _resumable[len(_resumable) - len(paths) :]


def end(status: int = STATUS) -> NoReturn:
    """End the JVM, if there is one, and this process; with a line on stderr that says what is left, unless it is 0."""
    ignore()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for restore in _restores:
        with suppress(Exception):
            restore()
    stderr, sys.stderr = sys.stderr, io.StringIO()  # other threads fail now, as the JVM ends
    if jvm := _imported("reput.spark.jvm"):
        jvm.kill()
    text = "reput: interrupted"
    for path in _unfinished():
        shown = path if path.isprintable() else ascii(path)
        text += f"; what is done is kept in {shown}, and the same command goes on there"
    signal.signal(signal.SIGINT, lambda *_: os._exit(STATUS))  # the reader of a full pipe may never read on
    if status:
        with suppress(Exception):
            print(text, file=stderr, flush=True)
    with suppress(Exception):
        sys.stdout.flush()
    os._exit(status)


def end_unread() -> NoReturn:
    """End the command as its first signal does, and leave what is written to stdout, as nobody reads it."""
    sys.stdout = None
    end(_status())


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Handler of SIGINT, and of SIGTERM if a command runs until it is stopped."""
    global _is_interrupted
    if _is_interrupted:
        end()
    _left.extend(_resumable)
    if job_folder := _imported("reput.jobs.job_folder"):
        _job_folders.extend(job_folder.held_paths())
    if _stops:
        _is_interrupted = True
        for stop in _stops:
            stop()
        return
    jvm = _imported("reput.spark.jvm")
    if jvm and jvm.is_running():
        end(_status())
    _is_interrupted = True
    raise KeyboardInterrupt


def _status() -> int:
    """Exit status of a command that the first signal ends."""
    return 0 if _runs_until_stopped else STATUS


def _imported(name: str) -> ModuleType | None:
    """The module, if all of it has run. SIGINT may come in the middle of an import: nobody has called it then."""
    module = sys.modules.get(name)
    is_partial = getattr(getattr(module, "__spec__", None), "_initializing", False)
    return None if is_partial else module


def _unfinished() -> list[str]:
    """Files and folders from which the same command continues."""
    left = [path for path in _left if _URL in path or os.path.exists(path)]
    if _job_folders:
        from reput.jobs.job_folder import is_unfinished

        left += [path for path in _job_folders if is_unfinished(path)]
    return list(dict.fromkeys(left))


def _unraisable(raised: sys.UnraisableHookArgs) -> None:
    """End the process if Python swallows the interrupt: in `__del__`, in a callback of the import system."""
    if not _is_interrupted:
        sys.__unraisablehook__(raised)
    elif issubclass(raised.exc_type, KeyboardInterrupt):
        end(_status())
