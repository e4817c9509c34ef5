"""Ctrl-C at any moment of a command: one line on stderr, exit status 130, and no process left.

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

STATUS = 130

_is_interrupted = False
#: Folders of jobs in which this process worked when it was interrupted.
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
def stopping(stop: Callable[[], None]) -> Iterator[None]:
    """Let the first SIGINT in the block call `stop`, which ends it soon; the command then ends as without SIGINT."""
    _stops.append(stop)
    try:
        yield
    finally:
        _stops.remove(stop)


def end() -> NoReturn:
    """End the JVM, if there is one, and this process, with a line on stderr that says what is left."""
    ignore()
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
    with suppress(Exception):
        print(text, file=stderr, flush=True)
    with suppress(Exception):
        sys.stdout.flush()
    os._exit(STATUS)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Handler of SIGINT."""
    global _is_interrupted
    if _stops and not _is_interrupted:
        _is_interrupted = True
        for stop in _stops:
            stop()
        return
    if not _is_interrupted and (job_folder := _imported("reput.jobs.job_folder")):
        _job_folders.extend(job_folder.held_paths())
    jvm = _imported("reput.spark.jvm")
    if _is_interrupted or (jvm and jvm.is_running()):
        end()
    _is_interrupted = True
    raise KeyboardInterrupt


def _imported(name: str) -> ModuleType | None:
    """The module, if all of it has run. SIGINT may come in the middle of an import: nobody has called it then."""
    module = sys.modules.get(name)
    is_partial = getattr(getattr(module, "__spec__", None), "_initializing", False)
    return None if is_partial else module


def _unfinished() -> list[str]:
    """Folders in which the same command continues."""
    if not _job_folders:
        return []
    from reput.jobs.job_folder import is_unfinished

    return [path for path in _job_folders if is_unfinished(path)]


def _unraisable(raised: sys.UnraisableHookArgs) -> None:
    """End the process where Python swallows the interrupt: in `__del__`, in a callback of the import system."""
    if not _is_interrupted:
        sys.__unraisablehook__(raised)
    elif issubclass(raised.exc_type, KeyboardInterrupt):
        end()
