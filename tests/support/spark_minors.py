"""Tests of what not every minor of Spark can do: with an older one they have to end with the refusal that names it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest

from reput.spark.compat import AVAILABLE_NOW_IS_ONE_BATCH, MINOR

#: Runs by the trigger `availableNow` until all is read. Where a run is one batch, it is the one that a killed run has
#: planned.
RUNS_AVAILABLE_NOW = 2 if AVAILABLE_NOW_IS_ONE_BATCH else 1


def needs(minor: tuple[int, int]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator of a test: with an older Spark it has to fail, with the text of `require_minor` in the error."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        if minor <= MINOR:
            return test

        @wraps(test)
        def refused(*arguments: Any, **fixtures: Any) -> None:
            with pytest.raises(Exception, match=rf"needs Spark {minor[0]}\.{minor[1]} or newer, and this is Spark"):
                test(*arguments, **fixtures)

        return pytest.mark.refused(refused)

    return decorate
