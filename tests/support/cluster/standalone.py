"""A standalone cluster of Spark on this machine: a master and two workers, each a JVM of its own."""

from __future__ import annotations

import re
import subprocess
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from reput.spark.java import find_java
from tests.support.cluster.wheel import without_source_tree
from tests.support.spark_jvm import FAST_START

SPARK_HOME = Path(pyspark.__file__).parent
#: A cluster that nobody watches: no pages, and no port that another one may have.
_OPTIONS = f"{FAST_START} -Dspark.ui.enabled=false -Dspark.master.rest.enabled=false"


@contextmanager
def standalone_cluster(folder: Path, workers: int = 2) -> Iterator[str]:
    """The URL of a master that has its workers; each of them has two cores and 2 GiB to give away."""
    with ExitStack() as running:
        master = running.enter_context(_daemon("master.Master", "--port", "0", "--webui-port", "0"))
        url = find_line(master, r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            resources = ("--cores", "2", "--memory", "2g", "--webui-port", "0")
            worker = _daemon("worker.Worker", url, *resources, "--work-dir", str(folder / f"worker-{number}"))
            running.enter_context(worker)
        for _ in range(workers):
            find_line(master, r"(Registering worker)")
        with drained(master):
            yield url


@contextmanager
def drained(process: subprocess.Popen[str]) -> Iterator[None]:
    """Read what a process logs, else it blocks some day; the process is ended with the block."""
    drain = threading.Thread(target=deque[str](maxlen=0).extend, args=(process.stderr,))
    drain.start()
    try:
        yield
    finally:
        process.terminate()
        drain.join()


@contextmanager
def _daemon(name: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A class of Spark's in a JVM of its own until the block ends; what it logs is its standard error."""
    environment = without_source_tree() | {
        "JAVA_HOME": find_java().home,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_JAVA_OPTS": _OPTIONS,
    }
    command = [SPARK_HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", *arguments]
    stderr = subprocess.PIPE if name == "master.Master" else subprocess.DEVNULL
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=stderr, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def find_line(process: subprocess.Popen[str], pattern: str) -> str:
    """The first group of the next line of a process's log that has the pattern."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if match := re.search(pattern, line):
            return match[1]
    raise AssertionError(f"the process ended without a line {pattern!r}:\n{''.join(lines)}")
