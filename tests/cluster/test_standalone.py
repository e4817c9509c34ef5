"""Two workers of a standalone cluster, with reput through the wheel alone. They die amid jobs, and so do drivers."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import reput
import reput.spark
from reput.jobs.rebuild.job import rebuild
from reput.jobs.runner import LocalRunner
from reput.jobs.statistics.job import statistics
from reput.kernels.records.record_batch import SCHEMA
from reput.spark.dispatch import dispatch
from reput.spark.runner import SparkRunner
from reput.spark.session import spark_home
from tests.support.cluster.deaths import DRIVER, EXECUTOR, SIBLINGS, WORKER
from tests.support.cluster.driver import Driver, driver
from tests.support.cluster.dying_jobs import (
    COPIED,
    FINISH,
    SCAN,
    WRITE,
    copy_with_a_death,
    copy_with_a_dying_commit,
    dispatch_with_a_death,
    read_with_a_death,
    rebuild_with_a_death,
    statistics_with_a_death,
    stream_with_a_death,
    stream_with_a_dying_commit,
)
from tests.support.cluster.standalone import SPARK_HOME, standalone_cluster
from tests.support.cluster.wheel import ROOT, make_environment, site_packages, without_source_tree
from tests.support.dispatched import derived
from tests.support.large_store import MESSAGES
from tests.support.spark_jvm import FAST_START
from tests.support.trees import tree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SETTINGS = {
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.extraJavaOptions": FAST_START,
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
}


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the cluster."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as url:
        yield url


@pytest.fixture(scope="module")
def program(master: str, executor_python: Path) -> Iterator[Driver]:
    """A driver program on the cluster, with a core of each worker."""
    with driver_on(master, executor_python) as program:
        yield program


@pytest.fixture(scope="module")
def last_program(master: str, executor_python: Path) -> Iterator[Driver]:
    """Another one, for what comes when the others have died."""
    with driver_on(master, executor_python) as program:
        yield program


def driver_on(master: str, executor_python: Path) -> AbstractContextManager[Driver]:
    start = partial(reput.spark.session, master, "cluster tests", **SETTINGS)
    # Of this SPARK_HOME Python imports with bytecode: planners and streams start a Python again and again.
    return driver({"PYSPARK_PYTHON": str(executor_python), "SPARK_HOME": spark_home()}, start)


def places(spark: SparkSession) -> list[tuple[str, str, str, int]]:
    """Where tasks find reput, the discovery module and themselves, and the daemons that they come from."""

    def look(_: int) -> tuple[str, str, str, int]:
        import os
        import sys

        import pyspark_reput
        import reput

        return sys.executable, reput.__file__, pyspark_reput.__file__, os.getppid()

    return SparkRunner(spark).run(look, range(8), description="look")


def test_executors_have_reput_through_the_wheel_alone(program: Driver, executor_python: Path) -> None:
    pythons, *modules, daemons = (set(found) for found in zip(*program.run(places), strict=True))
    site = site_packages(executor_python)
    assert pythons == {str(executor_python)}
    assert modules == [{str(site / "reput" / "__init__.py")}, {str(site / "pyspark_reput" / "__init__.py")}]
    assert len(daemons) == 2


@pytest.mark.parametrize("victim", [SIBLINGS, EXECUTOR])
def test_a_read_is_whole_although_a_process_dies(program: Driver, store: Path, tmp_path: Path, victim: str) -> None:
    table = program.run(read_with_a_death, str(store), str(tmp_path / "dead"), victim)
    assert (tmp_path / "dead").exists()
    assert table.cast(SCHEMA) == reput.read_log(store).read_all()


@pytest.mark.parametrize(
    ("phase", "point", "victim"),
    [
        (SCAN, "reput.jobs.rebuild.unit_writer._write_runs", EXECUTOR),
        (FINISH, "reput.jobs.rebuild.index_builder.encode_header", WORKER),
    ],
)
def test_a_rebuild_is_exact_although_a_process_dies(
    program: Driver, store: Path, rebuilt_here: dict[str, str], tmp_path: Path, phase: str, point: str, victim: str
) -> None:
    death = phase, point, str(tmp_path / "dead"), victim
    result = program.run(rebuild_with_a_death, str(store), str(tmp_path / "rebuilt"), death)
    assert (tmp_path / "dead").exists()
    assert result.messages == MESSAGES
    assert tree(tmp_path / "rebuilt") == rebuilt_here
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dead", "rebuilt"]


def test_statistics_are_exact_although_an_executor_dies(program: Driver, store: Path, tmp_path: Path) -> None:
    death = SCAN, "reput.jobs.statistics.job.count", str(tmp_path / "dead"), EXECUTOR
    counted = program.run(statistics_with_a_death, str(store), death)
    assert (tmp_path / "dead").exists()
    assert counted.table == statistics(store, runner=LocalRunner(2)).table


def test_dispatch_goes_on_where_a_driver_died_and_is_exact_although_an_executor_dies(
    program: Driver, master: str, executor_python: Path, store: Path, tmp_path: Path
) -> None:
    """Both while tasks write queues; those of the driver that died may still write when the next one begins."""
    dispatch(store, tmp_path / "alone", session=None, once=True)
    expected, output = derived(tmp_path / "alone"), tmp_path / "output"
    point = "reput.jobs.dispatch.write_units._copy"
    with driver_on(master, executor_python) as first, pytest.raises(BrokenProcessPool):
        first.run(dispatch_with_a_death, str(store), str(output), (WRITE, point, str(tmp_path / "dead"), DRIVER))
    assert (tmp_path / "dead").exists()
    assert any("consumequeue" in name for name in derived(output))
    assert derived(output) != expected
    death = WRITE, point, str(tmp_path / "too"), EXECUTOR
    result = program.run(dispatch_with_a_death, str(store), str(output), death)
    assert 0 < result.messages < MESSAGES, "the first driver has committed a batch"
    assert (tmp_path / "too").exists()
    assert derived(output) == expected


@pytest.mark.parametrize(("copy", "victim"), [(copy_with_a_death, SIBLINGS), (stream_with_a_death, EXECUTOR)])
def test_what_is_written_is_there_once_although_a_process_dies(
    program: Driver, store: Path, tmp_path: Path, copy: Callable[..., None], victim: str
) -> None:
    program.run(copy, str(store), str(tmp_path / "copy"), str(tmp_path / "dead"), victim)
    assert (tmp_path / "dead").exists()
    assert reput.read_log(tmp_path / "copy", COPIED).read_all() == reput.read_log(store, COPIED).read_all()


def test_a_driver_that_dies_in_a_commit_and_writes_again_has_written_once(
    program: Driver, master: str, executor_python: Path, request: pytest.FixtureRequest, store: Path, tmp_path: Path
) -> None:
    """The last test of this driver program: it dies with some of a batch's records in the log; the next one dies too,
    when all records of a stream's second batch are on the disk, and nothing says yet that they are committed.
    """
    expected = reput.read_log(store, COPIED).read_all()
    copy = (
        str(store),
        str(tmp_path / "copy"),
        str(tmp_path / "dead"),
        "reput.store.log.commit_log.CommitLog.append_rows",
    )
    with pytest.raises(BrokenProcessPool):
        program.run(copy_with_a_dying_commit, *copy)
    assert any((tmp_path / "copy" / "commitlog" / "00000000000000000000").read_bytes()[:100])
    assert reput.read_log(tmp_path / "copy").read_all().num_rows == 0
    stream = str(store), str(tmp_path / "stream"), str(tmp_path / "too"), "reput.store.sinks.commit._PutStaged._append"
    with driver_on(master, executor_python) as second:
        second.run(copy_with_a_dying_commit, *copy)
        second.run(copy_with_a_dying_commit, *copy)
        assert reput.read_log(tmp_path / "copy", COPIED).read_all() == expected
        with pytest.raises(BrokenProcessPool):
            second.run(stream_with_a_dying_commit, *stream)
    rows = reput.read_log(tmp_path / "stream").read_all().num_rows
    assert 0 < rows < MESSAGES / 2
    third: Driver = request.getfixturevalue("last_program")  # it starts now, with the cores of those that have died
    third.run(stream_with_a_dying_commit, *stream)
    assert reput.read_log(tmp_path / "stream", COPIED).read_all() == expected


def test_a_driver_program_that_dies_leaves_nothing_that_looks_whole(
    last_program: Driver, store: Path, rebuilt_here: dict[str, str], tmp_path: Path
) -> None:
    death = FINISH, "reput.jobs.rebuild.index_builder.encode_header", str(tmp_path / "dead"), DRIVER
    with pytest.raises(BrokenProcessPool):
        last_program.run(rebuild_with_a_death, str(store), str(tmp_path / "rebuilt"), death)
    assert not (tmp_path / "rebuilt").exists()
    rebuild(store, tmp_path / "rebuilt", runner=LocalRunner(2))  # though executors may still be at the one that died
    assert tree(tmp_path / "rebuilt") == rebuilt_here


def test_spark_submit_brings_the_wheel_to_a_cluster_that_has_none(
    master: str, wheel: Path, store: Path, rebuilt_here: dict[str, str], tmp_path: Path
) -> None:
    python = make_environment(tmp_path / "env")
    package = shutil.copy(wheel, tmp_path / "reput.zip")  # Spark takes no .whl
    settings = [f"{key}={value}" for key, value in SETTINGS.items()]
    command = [SPARK_HOME / "bin" / "spark-submit", "--master", master, "--py-files", package]
    for setting in settings:
        command += ["--conf", setting]
    done = subprocess.run(
        [*command, ROOT / "examples" / "spark_submit.py", store, tmp_path / "rebuilt"],
        env=without_source_tree() | {"PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["topic-0: 20000", "topic-1: 20000", "topic-2: 20000", "60000 messages rebuilt"]
    assert tree(tmp_path / "rebuilt") == rebuilt_here
