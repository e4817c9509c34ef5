"""Errors of a program's functions that no caller waits for: in a thread, and in a loop's background."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")
_M = TypeVar("_M")


def call_in_thread(function: Callable[[_M], _T], message: _M) -> _T:
    """Call a plain function of the program, whose result goes through a future.

    Raises RuntimeError for StopIteration, as Python does for coroutines: no future takes one, and who waits would wait
    for ever. All else as it is.
    """
    try:
        return function(message)
    except StopIteration as error:
        raise RuntimeError("the function raised StopIteration: give `next` a second argument") from error


def goes_on(error: BaseException) -> bool:
    """Whether an error that came out of a program's function is not the function's own, or ends the program.

    These are the cancellation of the task that runs it, a coroutine whose loop has gone, and Ctrl-C and `sys.exit` in
    the main thread, which end the loop there, as asyncio has it. The loop of `reput.client.sync` is in another thread:
    it would end alone, and who waits for it would wait for ever.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return threading.current_thread() is threading.main_thread()
    return isinstance(error, GeneratorExit)
