"""A driver program in a process of its own: it has one session, and runs the functions that a test hands in."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

R = TypeVar("R")

_TIMEOUT_S = 600
#: The driver's JVM shall look up no name of this host. This process has no conftest.py.
_ENVIRONMENT = {"SPARK_LOCAL_IP": "127.0.0.1"}
_spark: SparkSession | None = None


class Driver:
    """Runs functions of importable modules in the driver program; their first argument is the session."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def run(self, function: Callable[..., R], *arguments: Any) -> R:
        """The result of `function(session, *arguments)`, or its error."""
        return self._pool.submit(_call, function, arguments).result(_TIMEOUT_S)


@contextmanager
def driver(environment: dict[str, str], start: Callable[[], SparkSession]) -> Iterator[Driver]:
    """A driver program whose session `start` makes. Its workers do not see what these tests import."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _begin, (environment, start)) as pool:
        yield Driver(pool)
        with contextlib.suppress(BrokenProcessPool):  # a test has killed it
            pool.submit(_end).result(_TIMEOUT_S)


def _begin(environment: dict[str, str], start: Callable[[], SparkSession]) -> None:
    global _spark
    os.environ.pop("PYTHONPATH", None)
    os.environ.update(_ENVIRONMENT | environment)
    _spark = start()
    from pyspark import cloudpickle

    from tests.support.cluster import deaths

    cloudpickle.register_pickle_by_value(deaths)


def _call(function: Callable[..., R], arguments: tuple[Any, ...]) -> R:
    return function(_spark, *arguments)


def _end() -> None:
    assert _spark is not None
    _spark.stop()
