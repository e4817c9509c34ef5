"""Tests that are coroutine functions, and the loop in which a test runs a coroutine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from inspect import iscoroutinefunction, signature
from typing import Any, TypeVar

import pytest

_T = TypeVar("_T")
_MOST_S = 60.0

#: Makes the loop of `run`; tests of what holds for every loop set it.
new_event_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """The result of a coroutine in a loop of its own. One that hangs is an error, and so is a task that it leaves."""

    async def checked() -> _T:
        async with asyncio.timeout(_MOST_S):
            result = await work
        await asyncio.sleep(0)  # a task that has just been cancelled ends
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks are left: {left}"
        return result

    with asyncio.Runner(loop_factory=lambda: new_event_loop()) as runner:
        return runner.run(checked())


@pytest.hookimpl
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function."""
    if not iscoroutinefunction(pyfuncitem.obj):
        return None
    run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in signature(pyfuncitem.obj).parameters}))
    return True
