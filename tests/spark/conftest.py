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


@pytest.fixture(scope="session", autouse=True)  # before a command makes one of its own
def spark() -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    if left := SparkSession.getActiveSession():
        left.stop()  # a command that a test of another folder ran has started it, with other settings than ours
    running = session("local[2]", "reput tests", **FAST_START, **{"spark.sql.shuffle.partitions": "3"})
    yield running
    running.stop()
