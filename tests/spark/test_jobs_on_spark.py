"""Jobs write and count the same in Spark's executors as in threads, and a JVM's lock keeps our store out."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import reput
from reput.config.dispatch_rules import DispatchRules
from reput.errors import CorruptRecordError, ReputError, StoreLockedError
from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE
from reput.formats.consume_queue import UNIT_SIZE
from reput.formats.message import Message
from reput.formats.paths import LOCK
from reput.jobs.archive import archive, verify
from reput.jobs.audit.job import audit
from reput.jobs.backup.backup_job import backup
from reput.jobs.backup.restore_job import restore
from reput.jobs.diff.job import diff
from reput.jobs.findings import SCHEMA as SCHEMA_OF_FINDINGS
from reput.jobs.rebuild.job import rebuild
from reput.jobs.runner import LocalRunner
from reput.jobs.statistics.job import statistics
from reput.progress import Progress
from reput.spark import audit as spark_audit
from reput.spark import diff as spark_diff
from reput.spark.runner import SparkRunner
from tests.support.archives import store_with_sealed_files
from tests.support.damage import flip
from tests.support.golden import expected_files, origin, used_files
from tests.support.large_store import write_large_store
from tests.support.runners import CountingRunner
from tests.support.topic_statistics import check_topics
from tests.support.trees import tree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORPORA = Path(__file__).parents[1] / "golden" / "5.3.3"
MESSAGES = 50_000
GEOMETRY = {"max_hash_slot_num": 500, "max_index_num": 1500}


@pytest.fixture(scope="module")
def large_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """50 000 messages in 3 topics with 8 queues each, over several files of each kind."""
    path = tmp_path_factory.mktemp("jobs") / "store"
    write_large_store(path, MESSAGES)
    return path


class TestRebuild:
    @pytest.mark.parametrize("case", ["batch", "clean", "killed-undispatched", "retention", "transactions"])
    def test_files_are_the_same_on_what_apache_wrote(self, spark: SparkSession, case: str, tmp_path: Path) -> None:
        store = CORPORA / case / "store"
        rebuild(store, tmp_path / "local", runner=LocalRunner(2), split_bytes=20_000, **GEOMETRY)
        rebuild(store, tmp_path / "spark", runner=SparkRunner(spark), split_bytes=20_000, **GEOMETRY)
        assert tree(tmp_path / "spark") == tree(tmp_path / "local") != {}

    @pytest.mark.parametrize("case", ["5.3.3/bcq", "5.3.3/clean", "4.9.7/delay"])
    def test_files_are_those_of_a_rebuild_of_apache(self, spark: SparkSession, case: str, tmp_path: Path) -> None:
        options = origin(case)
        rebuild(
            CORPORA.parent / case / "store", tmp_path / "out", runner=SparkRunner(spark), split_bytes=20_000,
            mapped_file_size_consume_queue=options["consumeQueueEntries"] * UNIT_SIZE,
            mapper_file_size_batch_consume_queue=options["consumeQueueEntries"] * BATCH_UNIT_SIZE,
            max_hash_slot_num=options["hashSlots"], max_index_num=options["indexEntries"],
            rules=DispatchRules(case.split("/")[0]),
        )  # fmt: skip
        assert used_files(tmp_path / "out", options["hashSlots"]) == expected_files(case)

    def test_what_a_killed_job_has_done_is_not_done_again(
        self, spark: SparkSession, large_store: Path, tmp_path: Path
    ) -> None:
        rebuild(large_store, tmp_path / "local", runner=LocalRunner(2))
        with pytest.raises(KeyboardInterrupt):
            rebuild(large_store, tmp_path / "out", runner=InterruptedRunner(spark), split_bytes=1 << 20)
        runner = CountingRunner()
        result = rebuild(large_store, tmp_path / "out", runner=runner)
        assert (result.resumed, result.messages, runner.ran["read the log"]) == (True, MESSAGES, 0)
        assert tree(tmp_path / "out") == tree(tmp_path / "local")

    def test_files_are_the_same_on_a_store_of_ours_and_those_that_it_wrote_itself(
        self, spark: SparkSession, large_store: Path, tmp_path: Path
    ) -> None:
        geometry = {"max_hash_slot_num": 1000, "max_index_num": 10_000}
        rebuild(large_store, tmp_path / "local", runner=LocalRunner(2), **geometry)
        result = rebuild(large_store, tmp_path / "spark", runner=SparkRunner(spark), split_bytes=1 << 20, **geometry)
        assert (result.messages, result.queues, result.index_files) == (MESSAGES, 24, 3)
        rebuilt = tree(tmp_path / "spark")
        assert rebuilt == tree(tmp_path / "local")
        queues = {name: digest for name, digest in rebuilt.items() if name.startswith("consumequeue")}
        written = tree(large_store)
        assert queues == {name: written[name] for name in queues}

    def test_damage_found_in_an_executor_is_the_same_error(self, spark: SparkSession, tmp_path: Path) -> None:
        with reput.MessageStore.open(tmp_path / "store", mapped_file_size_commit_log=1 << 16) as store:
            offsets = [store.put_message(reput.Message("orders", b"x" * 100)).commit_log_offset for _ in range(200)]
        path = tmp_path / "store" / "commitlog" / "00000000000000000000"
        flip(path, offsets[100] + 88)
        with pytest.raises(CorruptRecordError, match="body CRC") as caught:
            rebuild(tmp_path / "store", tmp_path / "out", runner=SparkRunner(spark))
        assert (caught.value.path, caught.value.offset) == (str(path), offsets[100])
        assert not (tmp_path / "out").exists()

    def test_a_rebuild_whose_tasks_die_leaves_nothing_that_looks_whole(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        with pytest.raises(ReputError, match="read the log: Spark gave the job up"):
            rebuild(CORPORA / "clean" / "store", tmp_path / "out", runner=DyingRunner(spark), **GEOMETRY)
        assert not (tmp_path / "out").exists()


class TestAuditAndDiff:
    def test_findings_are_the_same_and_come_as_a_dataframe(self, spark: SparkSession, tmp_path: Path) -> None:
        store = Path(shutil.copytree(CORPORA / "retention" / "store", tmp_path / "store"))
        path = next(store.glob("consumequeue/topic-1/*/*"))
        flip(path, len(path.read_bytes().rstrip(b"\0")) - 1)
        local = audit(store, runner=LocalRunner(2), split_bytes=20_000)
        found = spark_audit(spark, store, split_bytes=30_000)
        assert found.toArrow().select(SCHEMA_OF_FINDINGS.names).to_pylist() == local.table.to_pylist()
        assert "unit-wrong" in {row["code"] for row in found.collect()}

    def test_differences_are_the_same(self, spark: SparkSession) -> None:
        left, right = CORPORA / "clean" / "store", CORPORA / "ipv6" / "store"
        local = diff(left, right, runner=LocalRunner(2), by="queue", split_bytes=20_000)
        found = spark_diff(spark, left, right, by="queue", split_bytes=30_000)
        assert found.toArrow().to_pylist() == local.table.to_pylist() != []


class InterruptedRunner(SparkRunner):
    """Runs the first phase."""

    def run(self, *arguments: Any, description: str, **options: Any) -> list[Any]:
        if description != "read the log":
            raise KeyboardInterrupt
        return super().run(*arguments, description=description, **options)


class DyingRunner(SparkRunner):
    """Runs a job whose tasks write what they have to, and die."""

    def run(
        self,
        task: Callable[[Any], Any],
        items: Sequence[Any],
        *,
        description: str,
        progress: Progress | None = None,
    ) -> list[Any]:
        def dying(item: Any) -> None:
            import os
            import signal

            task(item)
            os.kill(os.getpid(), signal.SIGKILL)

        return super().run(dying, items, description=description, progress=progress)


class TestStatistics:
    @pytest.mark.parametrize("case", ["batch", "clean", "retention"])
    def test_tables_are_the_same_on_what_apache_wrote(self, spark: SparkSession, case: str) -> None:
        store = CORPORA / case / "store"
        local = statistics(store, runner=LocalRunner(2), bucket="1s", split_bytes=20_000)
        assert statistics(store, runner=SparkRunner(spark), bucket="1s", split_bytes=20_000).table == local.table
        assert local.messages > 0

    def test_tables_are_the_same_on_a_store_of_ours(self, spark: SparkSession, large_store: Path) -> None:
        asked: Any = {"by": ("topic", "tag", "key", "host"), "bucket": "1m", "latency": True, "check_crc": True}
        local = statistics(large_store, runner=LocalRunner(2), **asked)
        on_spark = statistics(large_store, runner=SparkRunner(spark), split_bytes=1 << 20, **asked)
        assert on_spark.table == local.table
        assert on_spark.largest == local.largest
        assert on_spark.disk == local.disk
        assert on_spark.messages == MESSAGES

    @pytest.mark.parametrize("case", ["batch", "clean", "retention"])
    def test_those_of_topics_are_those_of_a_full_run(self, spark: SparkSession, case: str) -> None:
        store = CORPORA / case / "store"
        for topic in statistics(store, runner=LocalRunner(2)).disk.topics["topic"].to_pylist()[:2]:
            assert check_topics(store, [topic], runner=SparkRunner(spark), split_bytes=20_000).messages > 0

    def test_a_rare_topic_is_read_alone(self, spark: SparkSession, tmp_path: Path) -> None:
        read: list[Any] = []

        class Watched(SparkRunner):
            def run(self, task: Any, items: Any, *, description: str, progress: Any = None) -> list[Any]:
                read.extend(items if description == "read the log" else [])
                return super().run(task, items, description=description, progress=progress)

        with reput.MessageStore.open(tmp_path / "store") as store:
            store.put_messages([Message("rare" if n % 50 == 7 else "often", b"." * 20_000) for n in range(200)])
        assert check_topics(tmp_path / "store", ["rare"], runner=Watched(spark), split_bytes=30_000).messages == 4
        assert [len(group.parts) for group in read] == [1] * 4


class TestLock:
    def test_a_jvm_that_holds_the_lock_keeps_our_store_out(self, spark: SparkSession, tmp_path: Path) -> None:
        channel = java_channel(spark, tmp_path / LOCK)
        try:
            assert channel.tryLock(0, 1, False) is not None
            with pytest.raises(StoreLockedError, match="has the store open"):
                reput.MessageStore.open(tmp_path)
        finally:
            channel.close()
        reput.MessageStore.open(tmp_path).close()

    def test_our_open_store_keeps_a_jvm_out(self, spark: SparkSession, tmp_path: Path) -> None:
        with reput.MessageStore.open(tmp_path):
            channel = java_channel(spark, tmp_path / LOCK)
            try:
                assert channel.tryLock(0, 1, False) is None
            finally:
                channel.close()
        channel = java_channel(spark, tmp_path / LOCK)
        try:
            assert channel.tryLock(0, 1, False) is not None
        finally:
            channel.close()


def java_channel(spark: SparkSession, path: Path):  # type: ignore[no-untyped-def]
    """The FileChannel on which RocketMQ's `DefaultMessageStore` takes its lock, opened as it does."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    return jvm.java.io.RandomAccessFile(str(path), "rw").getChannel()


def test_a_backup_by_spark_has_the_objects_of_one_by_threads_and_comes_back(
    spark: SparkSession, large_store: Path, tmp_path: Path
) -> None:
    for name, runner in (("local", LocalRunner(2)), ("spark", SparkRunner(spark))):
        backup(large_store, str(tmp_path / name), runner=runner, split_bytes=4 << 20)
    assert tree(tmp_path / "spark/log") == tree(tmp_path / "local/log") != {}
    restored = restore(str(tmp_path / "spark"), tmp_path / "restored", runner=SparkRunner(spark))
    assert (restored.messages, restored.findings) == (MESSAGES, ())


def test_an_archive_by_spark_has_the_files_of_one_by_threads_and_comes_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = store_with_sealed_files(tmp_path / "store")
    for name, runner in (("local", LocalRunner(2)), ("spark", SparkRunner(spark))):
        taken = archive(store, tmp_path / name, runner=runner)
        assert taken.new_files > 1
    local = {name: digest for name, digest in tree(tmp_path / "local").items() if name[:20].isdigit()}
    assert tree(tmp_path / "spark").items() >= local.items()
    assert verify(tmp_path / "spark", runner=SparkRunner(spark)).findings == ()
    restored = restore(tmp_path / "spark", tmp_path / "restored", runner=SparkRunner(spark))
    assert (restored.messages, restored.findings) == (taken.new_messages, ())


def test_a_job_that_nobody_waits_for_any_more_is_cancelled(spark: SparkSession, tmp_path: Path) -> None:
    begun, gate, ended = tmp_path / "begun", tmp_path / "gate", threading.Event()
    os.mkfifo(gate)

    def held(number: int) -> str:
        begun.touch()
        return gate.read_text()  # waits until somebody opens it to write

    def interrupt(done: int, total: int, description: str) -> None:
        if begun.exists():
            raise KeyboardInterrupt

    def open_late() -> bool:
        """Whether the job had to be let go."""
        if ended.wait(60):
            return False
        with suppress(OSError):
            os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
        return True

    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(open_late)
        with pytest.raises(KeyboardInterrupt):
            SparkRunner(spark).run(held, [1], description="hold", progress=interrupt)
        ended.set()
        assert not late.result()
