"""`local-cluster`: Spark's own small cluster, a driver that starts two executors, each a JVM of its own.

The deaths are those of test_standalone.py, which is how people run executors: so these come with `make campaign`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import reput
import reput.spark
from reput.kernels.records.record_batch import SCHEMA
from tests.support.cluster.deaths import EXECUTOR
from tests.support.cluster.driver import Driver, driver
from tests.support.cluster.dying_jobs import SCAN, read_with_a_death, rebuild_with_a_death
from tests.support.cluster.standalone import SPARK_HOME
from tests.support.spark_jvm import FAST_START
from tests.support.trees import tree

pytestmark = [pytest.mark.spark, pytest.mark.campaign]


@pytest.fixture(scope="module")
def program(executor_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A driver program with two executors; what they log goes into its home, which is one of links."""
    home = tmp_path_factory.mktemp("home")
    for folder in ("bin", "jars", "sbin"):
        (home / folder).symlink_to(SPARK_HOME / folder)
    settings = {"spark.executor.extraJavaOptions": FAST_START}
    start = partial(reput.spark.session, "local-cluster[2,1,1024]", "local-cluster tests", **settings)
    with driver({"PYSPARK_PYTHON": str(executor_python), "SPARK_HOME": str(home)}, start) as program:
        yield program


def test_a_read_is_whole_although_an_executor_dies(program: Driver, store: Path, tmp_path: Path) -> None:
    table = program.run(read_with_a_death, str(store), str(tmp_path / "dead"), EXECUTOR)
    assert (tmp_path / "dead").exists()
    assert table.cast(SCHEMA) == reput.read_log(store).read_all()


def test_a_rebuild_is_exact_although_an_executor_dies(
    program: Driver, store: Path, rebuilt_here: dict[str, str], tmp_path: Path
) -> None:
    death = SCAN, "reput.jobs.rebuild.unit_writer._write_runs", str(tmp_path / "dead"), EXECUTOR
    program.run(rebuild_with_a_death, str(store), str(tmp_path / "rebuilt"), death)
    assert (tmp_path / "dead").exists()
    assert tree(tmp_path / "rebuilt") == rebuilt_here
