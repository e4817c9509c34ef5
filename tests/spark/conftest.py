"""One Spark session for all tests of this folder: starting one takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from reput.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: C1 alone halves the start; it would make long jobs slower, which tests do not have.
FAST_START = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}


@pytest.hookimpl(tryfirst=True)  # before markers are looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever uses the session is marked so."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    if left := SparkSession.getActiveSession():
        left.stop()  # a command that a test of another folder ran has started it, with other settings than ours
    running = session("local[2]", "reput tests", **FAST_START, **{"spark.sql.shuffle.partitions": "3"})
    yield running
    running.stop()
