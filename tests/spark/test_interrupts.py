"""Ctrl-C at any moment of a command on Spark: one line, status 130, and neither a JVM nor a Python worker left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.interrupted import Ended, run_interrupted
from tests.support.large_store import write_large_store

pytestmark = pytest.mark.spark

#: Builds a class archive, and interrupts itself when a program runs that has the archive among its arguments.
INTERRUPTED_TRAINING = """
import os, signal, sys, threading
from reput.spark import class_archive

archive, program = sys.argv[1:]

def running():
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                line = file.read().decode()
        except OSError:
            continue
        if archive in line and int(name) != os.getpid():
            yield line

def interrupt():
    while not any(line.partition("\\0")[0].endswith(program) for line in running()):
        pass
    os.kill(os.getpid(), signal.SIGINT)

class_archive.class_archive = lambda *_: archive
threading.Thread(target=interrupt, daemon=True).start()
try:
    class_archive.build()
except KeyboardInterrupt:
    print(list(running()))
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("interrupts") / "shop"
    write_large_store(path)
    return path


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where Python and Java have their temporary files, with a name as short as that of a socket."""
    with TemporaryDirectory() as folder:
        monkeypatch.setenv("TMPDIR", folder)
        options = f"-Djava.io.tmpdir={folder}"
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f'--conf "spark.driver.extraJavaOptions={options}" pyspark-shell')
        yield Path(folder)


@pytest.mark.parametrize("moments", [8, pytest.param(40, marks=pytest.mark.campaign)])
def test_a_job_on_spark_ends_with_one_line_and_leaves_nothing_at_every_moment(
    shop: Path, temporary: Path, moments: int
) -> None:
    job = ("stats", shop, "--runner", "spark", "--master", "local[2]")
    with ThreadPoolExecutor(2) as pool:
        whole = list(pool.map(lambda _: run_interrupted(*job), range(2)))
        assert [one.status for one in whole] == [0, 0], whole[0].err + whole[1].err
        seconds = min(one.seconds for one in whole)  # one may have come to a standstill

        def interrupted(number: int) -> Ended:
            return run_interrupted(*job, seconds=seconds * number / moments, whole_group=number % 2 == 1)

        all_ended = list(pool.map(interrupted, range(moments)))
    for ended in all_ended:
        ended.check()
    assert [ended.status for ended in all_ended].count(130) >= moments / 2
    left = [path.name for path in temporary.iterdir()]
    assert [name for name in left if name.startswith("reput-")] == []  # a JVM that has no time for it leaves its own


@pytest.mark.parametrize("runner", ["local", "spark"])
def test_a_dispatcher_ends_after_its_batch_and_with_its_report(
    shop: Path, temporary: Path, tmp_path: Path, runner: str
) -> None:
    """An interrupt is how a dispatcher ends, so its status is 0."""
    command = ["dispatch", shop, "--output", tmp_path / "replica", "--runner", runner, "--report", tmp_path / "it.html"]
    with subprocess.Popen(
        [sys.executable, "-m", "reput", *map(str, command)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        assert any("dispatched_to" in line for line in lines)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate()
    told = [line for line in err.splitlines() if "dispatched_to" not in line]  # the batch that ran may say so, too
    assert (process.returncode, told) == (0, []), err
    assert "Dispatch of" in out
    assert (tmp_path / "it.html").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_statistics_that_follow_end_with_status_0(
    shop: Path, temporary: Path, tmp_path: Path, number: signal.Signals
) -> None:
    command = ["stats", shop, "--follow", "--bucket", "1h", "--work-dir", tmp_path / "work", "--master", "local[1]"]
    with subprocess.Popen(
        [sys.executable, "-m", "reput", *map(str, command)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        first = process.stdout.readline()
        os.killpg(process.pid, number)
        _, err = process.communicate()
    told = [line for line in err.splitlines() if not line.startswith("spark: WARN")]
    assert first.startswith("topic=")
    assert (process.returncode, told) == (0, []), err


@pytest.mark.parametrize("program", [sys.executable, "java"])
def test_a_class_archive_that_is_interrupted_leaves_nothing(temporary: Path, tmp_path: Path, program: str) -> None:
    """Interrupted when Python's process for the training session is there, or its JVM."""
    command = [sys.executable, "-c", INTERRUPTED_TRAINING, str(tmp_path / "archive"), program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")
    assert list(tmp_path.iterdir()) == []
