"""Ctrl-C at any moment of a command on Spark: one line, status 130, and neither a JVM nor a Python worker left."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.interrupted import Ended, run_interrupted
from tests.support.large_store import write_large_store

pytestmark = pytest.mark.spark

MOMENTS = 20


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("interrupts") / "shop"
    write_large_store(path)
    return path


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where Python and Java have their temporary files; a JVM that starts fast."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    options = f"-XX:TieredStopAtLevel=1 -Djava.io.tmpdir={folder}"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f'--conf "spark.driver.extraJavaOptions={options}" pyspark-shell')
    return folder


def test_a_job_on_spark_ends_with_one_line_and_leaves_nothing_at_every_moment(shop: Path, temporary: Path) -> None:
    job = ("stats", shop, "--runner", "spark", "--master", "local[2]")
    seconds = run_interrupted(*job).seconds

    def interrupted(number: int) -> Ended:
        return run_interrupted(*job, seconds=seconds * number / MOMENTS, whole_group=number % 2 == 1)

    with ThreadPoolExecutor(2) as pool:
        all_ended = list(pool.map(interrupted, range(MOMENTS)))
    for ended in all_ended:
        ended.check()
    assert [ended.status for ended in all_ended].count(130) >= MOMENTS / 2
    assert list(temporary.iterdir()) == []
