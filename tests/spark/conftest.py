"""One Spark session for all tests of this folder: starting one takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from reput.spark.session import session
from tests.support.spark_secrets import SECRETS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.hookimpl(tryfirst=True)  # before markers are looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever uses the session is marked so."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from pyspark import SparkContext

    # A command that a test ran may have started one, with other settings than ours; no session of it need be active in
    # this thread.
    if left := SparkContext._active_spark_context:
        left.stop()
    running = session("local[2]", "reput tests", **{"spark.sql.shuffle.partitions": "3"}, **SECRETS)
    yield running
    running.stop()
