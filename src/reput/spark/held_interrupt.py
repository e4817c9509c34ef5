"""Signals that wait while a process is started: an interrupt inside of `Popen` loses a process that already runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def held_interrupt() -> Iterator[None]:
    """Let SIGINT or SIGTERM that comes within the block act at its end; for blocks that end soon.

    Only if a handler of Python's would act: what Python does not take loses nothing, as it ends the process.
    """
    taken = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handlers = {number: handler for number, handler in taken.items() if callable(handler)}
    if threading.current_thread() is not threading.main_thread():  # no handler acts here
        handlers = {}
    came: list[int] = []

    def hold(number: int, frame: FrameType | None) -> None:
        came.append(number)

    for number in handlers:
        signal.signal(number, hold)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for first in came[:1]:  # a second one would end the process before it has cleaned up
            signal.raise_signal(first)
