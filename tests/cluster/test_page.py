"""The standalone cluster of docs/spark-cluster.md, by the commands of the page, with a million messages."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reput.jobs.rebuild.job import rebuild
from reput.jobs.runner import LocalRunner
from reput.spark.java import find_java
from tests.support.cluster.page import command_of_page
from tests.support.cluster.standalone import drained, find_line
from tests.support.cluster.wheel import ROOT, make_environment, without_source_tree
from tests.support.large_store import write_large_store
from tests.support.sockets import free_ports
from tests.support.trees import tree

pytestmark = pytest.mark.spark

MESSAGES = 1_000_000


@contextmanager
def running(command: str, folder: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A command of the page until the block ends."""
    with subprocess.Popen(
        shlex.split(command), cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


@pytest.mark.campaign
def test_a_million_messages_go_through_the_cluster_of_the_page(wheel: Path, tmp_path: Path) -> None:
    """`pytest -s` prints how long the job took, which the page speaks of."""
    store, output = tmp_path / "store", tmp_path / "output"
    write_large_store(store, MESSAGES)
    shutil.copy(wheel, tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    environment = without_source_tree() | {
        "JAVA_HOME": find_java().home,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYSPARK_PYTHON": str(make_environment(tmp_path / "env")),
        "SPARK_LOCAL_IP": "127.0.0.1",  # whose network is no part of the test
    }
    host = {"HOST": "127.0.0.1", "_7077": free_ports(1)[0]}
    begin_master, begin_worker = (
        command_of_page(f"deploy.{name}", **host) for name in ("master.Master", "worker.Worker")
    )
    submit = command_of_page("--py-files reput.zip", STORE=store, OUTPUT=output, host="127.0.0.1", _7077=host["_7077"])
    with (
        running(begin_master, tmp_path, environment) as master,
        running(begin_worker, tmp_path, environment) as worker,
    ):
        find_line(master, r"(Registering worker)")
        with drained(master), drained(worker):
            subprocess.run(command_of_page("cp reput-"), shell=True, cwd=tmp_path, check=True)
            begin = time.monotonic()
            done = subprocess.run(
                shlex.split(submit), cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
            )
            seconds = time.monotonic() - begin
    assert done.returncode == 0, done.stderr
    counts = ["topic-0: 333334", "topic-1: 333333", "topic-2: 333333"]
    assert done.stdout.splitlines() == [*counts, "1000000 messages rebuilt"]
    rebuild(store, tmp_path / "local", runner=LocalRunner(2))
    assert tree(output) == tree(tmp_path / "local")
    log_bytes = sum(path.stat().st_size for path in (store / "commitlog").iterdir())
    print(f"{submit}\n{MESSAGES} messages, {log_bytes / 1e6:.0f} MB of log: {seconds:.0f} s")
