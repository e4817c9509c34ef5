"""`local-cluster`: Spark's own small cluster, a driver that starts two executors, each a JVM of its own."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path

import pytest

import reput
import reput.spark
from reput.jobs.rebuild.job import rebuild
from reput.jobs.runner import LocalRunner
from reput.kernels.record_batch import SCHEMA
from tests.support.cluster.deaths import DRIVER, EXECUTOR
from tests.support.cluster.driver import Driver, driver
from tests.support.cluster.dying_jobs import FINISH, SCAN, read_with_a_death, rebuild_with_a_death
from tests.support.cluster.standalone import SPARK_HOME
from tests.support.trees import tree

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def program(executor_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A driver program with two executors; what they log goes into its home, which is one of links."""
    home = tmp_path_factory.mktemp("home")
    for folder in ("bin", "jars", "sbin"):
        (home / folder).symlink_to(SPARK_HOME / folder)
    settings = {"spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
    start = partial(reput.spark.session, "local-cluster[2,1,1024]", "local-cluster tests", **settings)
    with driver({"PYSPARK_PYTHON": str(executor_python), "SPARK_HOME": str(home)}, start) as program:
        yield program


def test_a_read_is_whole_although_an_executor_dies(program: Driver, store: Path, tmp_path: Path) -> None:
    table = program.run(read_with_a_death, str(store), str(tmp_path / "dead"), EXECUTOR)
    assert (tmp_path / "dead").exists()
    assert table.cast(SCHEMA) == reput.read_log(store).read_all()


def test_a_rebuild_is_exact_although_an_executor_dies(program: Driver, store: Path, tmp_path: Path) -> None:
    rebuild(store, tmp_path / "local", runner=LocalRunner(2))
    death = SCAN, "reput.jobs.rebuild.unit_writer._write_runs", str(tmp_path / "dead"), EXECUTOR
    program.run(rebuild_with_a_death, str(store), str(tmp_path / "rebuilt"), death)
    assert (tmp_path / "dead").exists()
    assert tree(tmp_path / "rebuilt") == tree(tmp_path / "local")


def test_a_driver_program_that_dies_leaves_nothing_that_looks_whole(
    program: Driver, store: Path, tmp_path: Path
) -> None:
    death = FINISH, "reput.jobs.rebuild.index_builder.encode_header", str(tmp_path / "dead"), DRIVER
    with pytest.raises(BrokenProcessPool):
        program.run(rebuild_with_a_death, str(store), str(tmp_path / "rebuilt"), death)
    assert not (tmp_path / "rebuilt").exists()
    rebuild(store, tmp_path / "rebuilt", runner=LocalRunner(2))  # though executors may still be at the one that died
    rebuild(store, tmp_path / "local", runner=LocalRunner(2))
    assert tree(tmp_path / "rebuilt") == tree(tmp_path / "local")
