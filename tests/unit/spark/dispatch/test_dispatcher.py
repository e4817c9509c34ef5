"""Batches that tasks dispatch: the files of live dispatch, whatever the log has and wherever a dispatcher dies."""

from __future__ import annotations

import json
import random
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reput
import reput.spark.dispatch.dispatcher as dispatcher_module
from reput.config.message_store import MessageStoreConfig
from reput.errors import ConfigError, CorruptRecordError, DataLossError, StoreError, StoreFullError
from reput.files import DISK
from reput.files.attempts import end_attempts
from reput.formats.hosts import encode_host
from reput.formats.record_layout import SysFlag
from reput.jobs.dispatch import plan as plans
from reput.jobs.dispatch import write_units
from reput.jobs.dispatch.plan import BatchPlan
from reput.jobs.dispatch.scan import scan_batch
from reput.jobs.rebuild.scan_task import ScanOutcome
from reput.jobs.runner import LocalRunner, Runner
from reput.kernels.records.placeholders import PLACEHOLDER_HOST, PLACEHOLDER_TOPIC
from reput.log.directory import StoreDirectory
from reput.log.resume_points import ResumePoint
from reput.log.tail import LogTail
from reput.spark.dispatch import dispatch
from reput.spark.dispatch.dispatcher import BatchDispatcher, Target
from reput.store.dispatch.log_dispatch import LogDispatch
from tests.support import small_rebuild
from tests.support.damage import overwrite
from tests.support.dispatched import derived
from tests.support.further_units import BOTH
from tests.support.runners import CountingRunner, DyingRunner
from tests.support.small_rebuild import PUTS, Put, write_log

OPTIONS = {name: value for name, value in BOTH.items() if name != "bit_maps"}
CONFIG = MessageStoreConfig.from_mapping(OPTIONS)


@pytest.fixture(autouse=True, scope="module")
def small_batches() -> Iterator[None]:
    """Batches of a few log files, with some splits in each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plans, "LEAST_BYTES", 1500)
        patch.setattr(plans, "MOST_BYTES", 3 * 4096)
        patch.setattr(plans, "SPLIT_BYTES", 1000)
        yield


def put(store: Path, begin: int, end: int) -> None:
    """Messages of several queues, with keys; some have a light queue, some are large."""
    with reput.MessageStore.open(store, **OPTIONS) as opened:
        for number in range(begin, end):
            properties = {"INNER_MULTI_DISPATCH": "%LMQ%a"} if number % 5 == 0 else {}
            body = bytes([number % 256]) * (40 + number * 37 % 200)
            keys = [f"k{number}"]
            message = reput.Message(f"topic-{number % 2}", body, tags="t", keys=keys, properties=properties)
            opened.put_message(message, number % 3)


@contextmanager
def dispatcher(store: Path, output: Path) -> Iterator[BatchDispatcher]:
    """BatchDispatcher of a store into an output, as a start makes it."""
    directory, work = StoreDirectory(store), output / "work"
    end_attempts(str(work / "attempts"), DISK)
    shutil.rmtree(work, ignore_errors=True)
    log, target = LogDispatch(directory, str(output), CONFIG), Target(str(output), CONFIG, str(work))
    one = BatchDispatcher(log, LogTail(directory), target, with_tasks=True, scans_ahead=True)
    try:
        yield one
    finally:
        one.close()


def drain(store: Path, output: Path, runner: LocalRunner | None = None) -> int:
    """Dispatch what there is; returns the number of messages."""
    messages = 0
    with dispatcher(store, output) as one:
        while (batch := one.run_once(runner or LocalRunner(2))) is not None:
            messages += batch.messages
    return messages


@pytest.fixture
def store(tmp_path: Path) -> Path:
    put(tmp_path / "store", 0, 150)
    return tmp_path / "store"


def test_tasks_write_what_live_dispatch_writes(store: Path, tmp_path: Path) -> None:
    output, runner = tmp_path / "output", CountingRunner()
    assert drain(store, output, runner) == 150
    assert runner.ran["read the log"] > 20
    assert runner.ran["write queues and index"] > 5
    assert derived(output) == derived(store)
    assert not list((output / "work").iterdir())


def test_after_each_batch_the_queues_are_those_of_the_log_so_far(tmp_path: Path) -> None:
    store, output, begin = tmp_path / "store", tmp_path / "output", 0
    random.seed(7)
    while begin < 200:
        end = begin + random.choice([1, 3, 20, 45])
        put(store, begin, end)
        assert drain(store, output) == end - begin
        assert derived(output) == derived(store)
        begin = end


def test_a_batch_covers_whole_files_up_to_its_limit_and_the_result_says_what_it_was(
    store: Path, tmp_path: Path
) -> None:
    with dispatcher(store, tmp_path / "output") as one:
        first = one.run_once(LocalRunner())
        assert first is not None
        begin, messages = first.end_offset, first.messages
        while (batch := one.run_once(LocalRunner())) is not None:
            assert batch.store == str(store)
            assert batch.log_bytes == batch.end_offset - begin <= 3 * 4096
            begin, messages = batch.end_offset, messages + batch.messages
            last = batch
        assert messages == 150
        marked = one.log.point
        assert marked.last is not None
        assert (marked.offset, marked.last.store_timestamp) == (last.end_offset, last.last_store_timestamp)


def test_a_dispatcher_that_dies_at_any_task_leaves_each_record_dispatched_once(store: Path, tmp_path: Path) -> None:
    expected, healthy = derived(store), CountingRunner()
    drain(store, tmp_path / "healthy", healthy)
    for tasks in range(0, healthy.ran.total(), 3):
        output = tmp_path / f"{tasks}"
        with suppress(KeyboardInterrupt):
            drain(store, output, DyingRunner(tasks))
        assert drain(store, output) > 0
        assert derived(output) == expected, f"died after {tasks} tasks"
        shutil.rmtree(output)


def test_units_are_copied_in_parts(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One queue may have all units of a batch, half a gigabyte."""
    monkeypatch.setattr(write_units, "_COPIED_BYTES", 100)
    read, sizes = DISK.read_runs, []

    def noted(paths: Sequence[str], positions: npt.NDArray[np.int64], of_runs: npt.NDArray[np.int64]) -> Any:
        sizes.append(int(of_runs.sum()))
        return read(paths, positions, of_runs)

    with monkeypatch.context() as patch:
        patch.setattr(DISK, "read_runs", noted)
        drain(store, tmp_path / "output", LocalRunner(1))
    assert max(sizes) <= 100 + CONFIG.mapped_file_size_consume_queue
    assert derived(tmp_path / "output") == derived(store)


def test_no_output_is_made_if_another_one_lies_in_a_store(store: Path, tmp_path: Path) -> None:
    put(tmp_path / "other", 0, 3)
    with pytest.raises(ConfigError, match="lies inside the store"):
        dispatch([tmp_path / "other", store], store / "output", session=None, once=True)
    assert not (store / "output").exists()


@settings(max_examples=40)
@given(
    puts=st.lists(st.tuples(PUTS, st.sampled_from([0] * 60 + [-1, 1, 4])), min_size=20, max_size=90),
    first_offsets=st.fixed_dictionaries({}, optional={0: st.integers(0, 12), 1: st.integers(0, 12)}),
)
def test_one_process_and_tasks_write_the_same_for_any_log(
    puts: list[tuple[Put, int]], first_offsets: dict[int, int]
) -> None:
    """Repeats and gaps in queue offsets, as crashes leave them, transactions, and a log that begins late."""
    with TemporaryDirectory() as folder:
        store, by_tasks, alone = Path(folder, "store"), Path(folder, "tasks"), Path(folder, "alone")
        write_log(store, [replace(put, queue_step=step) for put, step in puts], first_offsets)
        drain(store, by_tasks)
        in_one_process(store, alone)
        assert derived(by_tasks) == derived(alone)


def in_one_process(store: Path, output: Path) -> None:
    """Dispatch what there is in one process."""
    log = LogDispatch(StoreDirectory(store), str(output), CONFIG)
    try:
        while log.run_once() is not None:
            pass
    finally:
        log.close()


@pytest.mark.parametrize("place", [0.4, 0.7, 0.95])
def test_what_comes_before_damage_is_dispatched_by_tasks_as_by_one_process(
    store: Path, tmp_path: Path, place: float
) -> None:
    """Wherever it is: in a file that ends before the batch, or in the last one."""
    by_tasks, alone = tmp_path / "tasks", tmp_path / "alone"
    damaged = LogTail(StoreDirectory(store)).splits(0, int(LogTail(StoreDirectory(store)).latest().offset * place), 1)
    offset = damaged[-1].begin
    overwrite(store / "commitlog" / f"{offset // 4096 * 4096:020d}", offset % 4096 + 20, b"\xff" * 20)
    with pytest.raises(CorruptRecordError, match=f"damaged at offset {offset}"):
        drain(store, by_tasks)
    with pytest.raises(CorruptRecordError, match=f"damaged at offset {offset}"):
        in_one_process(store, alone)
    assert derived(by_tasks) == derived(alone)
    assert derived(by_tasks)


def test_a_copy_of_a_record_in_a_body_is_no_end_of_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says that it lies where it does, as records do at which the search for the log's end begins."""
    store, output, alone = tmp_path / "store", tmp_path / "output", tmp_path / "alone"
    around = orders(0, 30)
    large = Put(body=bytes(range(256)) * 8, timestamp=1_700_000_000_100)
    at = write_log(store, [*around, large])[-1].offset
    file = store / "commitlog" / f"{at // 4096 * 4096:020d}"
    begin = file.read_bytes().index(large.body) + at // 4096 * 4096 + 700
    copy = small_rebuild.encode(orders(0, 1)[0], 0, begin)
    forged = replace(large, body=large.body[:700] + copy + large.body[700 + len(copy) :])
    write_log(store, [*around, forged])
    monkeypatch.setattr(LogTail, "near_end", lambda tail, offset, step_bytes: begin)
    assert LogTail(StoreDirectory(store)).advance(ResumePoint(begin)).offset == begin + len(copy)
    assert drain(store, output) == 31
    in_one_process(store, alone)
    assert derived(output) == derived(alone)


def test_a_batch_of_a_file_s_blank_rest_is_no_work_for_tasks(tmp_path: Path) -> None:
    store, output, alone = tmp_path / "store", tmp_path / "output", tmp_path / "alone"
    around, large = orders(0, 22), Put(body=b"x" * 3000, timestamp=1_700_000_000_100)
    write_log(store, around)
    drain(store, output)
    write_log(store, [*around, large])
    assert drain(store, output) == 1
    in_one_process(store, alone)
    assert derived(output) == derived(alone)


def orders(begin: int, end: int, **fields: Any) -> list[Put]:
    return [Put(body=b"x" * 150, timestamp=1_700_000_000_000 + number, **fields) for number in range(begin, end)]


def test_a_log_that_was_cut_and_has_grown_again_since_the_scan_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other records lie at the same offsets: only their headers differ."""
    store, output = tmp_path / "store", tmp_path / "output"
    write_log(store, orders(0, 120))
    runs = [0]

    def then_cut(plan: BatchPlan, runner: Runner) -> list[ScanOutcome]:
        outcomes = scan_batch(plan, runner)
        runs[0] += 1
        if runs[0] == 2:
            write_log(store, [*orders(0, 70), *orders(70_000, 70_050, queue_id=1)])
        return outcomes

    monkeypatch.setattr(dispatcher_module, "scan_batch", then_cut)
    drain(store, output)
    assert runs[0] >= 2
    in_one_process(store, tmp_path / "alone")
    assert derived(output) == derived(tmp_path / "alone")
    drain(store, output)
    assert derived(output) == derived(tmp_path / "alone")


def test_a_batch_of_placeholders_has_no_message(tmp_path: Path) -> None:
    """Records that a salvage puts in place of lost bytes make a batch, too."""
    store, output = tmp_path / "store", tmp_path / "output"
    lost = orders(0, 60, topic=PLACEHOLDER_TOPIC, sys_flag=SysFlag.TRANSACTION_ROLLBACK)
    with pytest.MonkeyPatch.context() as patch:
        host = encode_host(PLACEHOLDER_HOST)
        patch.setattr(small_rebuild, "HOST", host)
        write_log(store, lost)
    runner = CountingRunner()
    assert drain(store, output, runner) == 0
    assert runner.ran["read the log"]
    log = LogDispatch(StoreDirectory(store), str(tmp_path / "alone"), CONFIG)
    messages, point = 0, log.point
    while (batch := log.run_once()) is not None:
        messages, point = messages + batch.messages, log.point
    log.close()
    assert messages == 0
    with dispatcher(store, output) as one:
        assert one.log.point == point


def declare_batch_queues(store: Path) -> Path:
    """Say that the topic orders has batch consume queues; returns the path of the file that says it."""
    topics = store / "config" / "topics.json"
    topics.parent.mkdir(parents=True)
    topic = {"topicName": "orders", "attributes": {"queue.type": "BatchCQ"}}
    topics.write_text(json.dumps({"topicConfigTable": {"orders": topic}}))
    return topics


def test_queues_that_are_there_decide_their_type_if_the_store_says_nothing_any_more(tmp_path: Path) -> None:
    store, output = tmp_path / "store", tmp_path / "output"
    topics = declare_batch_queues(store)
    write_log(store, orders(0, 5))
    drain(store, output)
    topics.unlink()
    write_log(store, orders(0, 80))
    assert drain(store, output) == 75
    assert len(list((output / "batchconsumequeue/orders/0").iterdir())) > 1
    assert not (output / "consumequeue/orders").exists()


@pytest.mark.parametrize("queues", ["consumequeue", "batchconsumequeue"])
def test_a_wrong_queue_offset_before_a_batch_of_tasks_is_taken_back_after_it(tmp_path: Path, queues: str) -> None:
    """Nothing proves a queue offset but the queue's next records, and these come after the batch."""
    store, output, puts, runner = tmp_path / "store", tmp_path / "output", list[Put](), CountingRunner()
    wrong, goes_on = orders(3, 4, queue_step=7), [replace(orders(60, 61)[0], queue_step=step) for step in (-8, -7, -6)]
    if queues == "batchconsumequeue":
        declare_batch_queues(store)
    write_log(store, orders(0, 3))
    log = LogDispatch(StoreDirectory(store), str(tmp_path / "alone"), CONFIG)
    with dispatcher(store, output) as one:
        others = orders(0, 60, topic="pay", queue_id=1)
        for more in (orders(0, 3), [*others[:5], *wrong], others[5:], goes_on):
            puts += more
            write_log(store, puts)
            while one.run_once(runner) is not None:
                pass
            while log.run_once() is not None:
                pass
    log.close()
    assert runner.ran["write queues and index"]
    assert derived(output) == derived(tmp_path / "alone")
    found, expected = (
        b"".join(path.read_bytes() for path in sorted((folder / queues / "orders/0").iterdir()))
        for folder in (output, tmp_path / "alone")
    )
    assert found == expected
    assert any(found)


@pytest.mark.parametrize("queues", ["consumequeue", "batchconsumequeue"])
@pytest.mark.parametrize("step", [7, 700])
def test_a_wrong_queue_offset_is_taken_back_after_a_restart_too(tmp_path: Path, queues: str, step: int) -> None:
    """It is its queue's last one when the dispatcher ends; without the next records it counts."""
    store, outputs = tmp_path / "store", [tmp_path / "alone", tmp_path / "again"]
    goes_on = [replace(orders(60, 61)[0], queue_step=-step - 1 + number) for number in range(3)]
    if queues == "batchconsumequeue":
        declare_batch_queues(store)
    others, wrong = orders(0, 300, topic="pay", queue_id=1), orders(3, 4, queue_step=step)
    write_log(store, [*orders(0, 3), *others, *wrong])
    logs = [LogDispatch(StoreDirectory(store), str(output), CONFIG) for output in outputs]
    goes_on += [replace(orders(70, 71)[0], queue_step=number - step - 1) for number in range(3, 6)]
    for end in (0, 3, 6):
        write_log(store, [*orders(0, 3), *others, *wrong, *goes_on[:end]])
        for log in logs:
            while log.run_once() is not None:
                pass
        logs[1].close()
        logs[1] = LogDispatch(StoreDirectory(store), str(outputs[1]), CONFIG)
        assert derived(outputs[0]) == derived(outputs[1])
        found, expected = (
            b"".join(path.read_bytes() for path in sorted((output / queues / "orders/0").iterdir()))
            for output in outputs
        )
        assert found == expected
        assert any(found)
    for log in logs:
        log.close()


def test_files_of_a_wrong_queue_offset_that_is_taken_back_before_their_sync_are_not_synced(tmp_path: Path) -> None:
    """The record is the last one of a scan, the queue's next records are in the next scan, and both in one batch."""
    store, output = tmp_path / "store", tmp_path / "output"
    others = orders(0, 90, queue_id=1)
    goes_on = [replace(orders(60, 61)[0], queue_step=step) for step in (-16, -15, -14)]
    write_log(
        store, [*others[:30], *orders(0, 3), *others[30:50], *orders(3, 4, queue_step=15), *others[50:], *goes_on]
    )
    in_one_process(store, output)
    assert [path.name for path in (output / "consumequeue/orders/0").iterdir()] == ["0" * 20]


def test_the_same_dispatcher_goes_on_after_an_error_in_a_task(store: Path, tmp_path: Path) -> None:
    output = tmp_path / "output"
    with dispatcher(store, output) as one:
        assert one.run_once(LocalRunner(1)) is not None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DISK, "sync_files", full_disk)
            with pytest.raises(StoreFullError):
                one.run_once(LocalRunner(1))
        assert not (output / "work" / "attempts").exists(), "nothing writes any more"
        while one.run_once(LocalRunner(1)) is not None:
            pass
    assert derived(output) == derived(store)


def full_disk(paths: list[str]) -> None:
    raise StoreFullError(f"{paths[:1]}: no space")


def test_a_batch_of_tasks_looks_at_the_queues_that_it_changes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica may have 100,000 queues, and a batch of tasks comes each second."""
    store, output, runner = tmp_path / "store", tmp_path / "output", CountingRunner()
    many = [Put(topic=f"t{number}", queue_id=number) for number in range(30)]
    write_log(store, many)
    with dispatcher(store, output) as one:
        while one.run_once(runner) is not None:
            pass
        asked, read, listed = list[str](), DISK.read_runs, DISK.list_directory

        def read_noted(paths: Sequence[str], *arguments: Any) -> Any:
            asked.extend(paths)
            return read(paths, *arguments)

        def list_noted(path: str) -> Any:
            asked.append(path)
            return listed(path)

        monkeypatch.setattr(DISK, "read_runs", read_noted)
        monkeypatch.setattr(DISK, "list_directory", list_noted)
        write_log(store, [*many, *orders(0, 60, queue_id=40)])
        runner.ran.clear()
        while one.run_once(runner) is not None:
            pass
    assert runner.ran["write queues and index"]
    assert [path for path in asked if "orders/40" in path]
    queues = str(output / "consumequeue" / "t")
    assert not [path for path in asked if path.startswith(queues) or path == str(output / "consumequeue")]


def test_units_that_this_process_does_not_see_are_told_and_written_again(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system that shows the files of other machines late would have made a gap in each queue."""
    output = tmp_path / "output"
    with dispatcher(store, output) as one:
        assert one.run_once(LocalRunner(1)) is not None
        with monkeypatch.context() as patch:
            patch.setattr(write_units, "_copy", lambda target, queues: None)
            with pytest.raises(StoreError, match="this process sees them up to"):
                one.run_once(LocalRunner(1))
        while one.run_once(LocalRunner(1)) is not None:
            pass
    assert derived(output) == derived(store)


@pytest.fixture
def scanning(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the threads that have scanned batches."""
    threads: list[str] = []

    def noted(plan: BatchPlan, runner: Runner) -> list[ScanOutcome]:
        threads.append(threading.current_thread().name)
        return scan_batch(plan, runner)

    monkeypatch.setattr(dispatcher_module, "scan_batch", noted)
    return threads


def test_the_next_batch_is_scanned_beside_the_end_of_a_batch(store: Path, tmp_path: Path, scanning: list[str]) -> None:
    output = tmp_path / "output"
    drain(store, output)
    ahead = [name for name in scanning if name.startswith("reput-dispatch-scan")]
    assert len(scanning) - len(ahead) == 1, "the first batch of tasks"
    assert len(ahead) > 2
    assert derived(output) == derived(store)
    assert not list((output / "work").iterdir())


def test_a_batch_that_was_scanned_ahead_does_not_count_if_the_one_before_it_failed(
    store: Path, tmp_path: Path, scanning: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "output"
    with dispatcher(store, output) as one:
        assert one.run_once(LocalRunner(1)) is not None
        with monkeypatch.context() as patch:
            patch.setattr(LogDispatch, "commit_tasks", lambda *_: full_disk([]))
            with pytest.raises(StoreFullError):
                one.run_once(LocalRunner(1))
        while one.run_once(LocalRunner(1)) is not None:
            pass
    assert any(name.startswith("reput-dispatch-scan") for name in scanning)
    assert not list((output / "work").iterdir())
    assert derived(output) == derived(store)


def test_a_dispatcher_that_ends_leaves_nothing_of_a_batch_that_was_scanned_ahead(
    store: Path, tmp_path: Path, scanning: list[str]
) -> None:
    output = tmp_path / "output"
    with dispatcher(store, output) as one:
        for _ in range(2):
            assert one.run_once(LocalRunner(1)) is not None
    assert len(scanning) == 2
    assert not list((output / "work").iterdir())
    assert drain(store, output) > 0
    assert derived(output) == derived(store)


class RunnerOfAScanAhead(LocalRunner):
    """Runner with a thread that holds a scan ahead until its dispatcher ends, and notes its tasks."""

    def __init__(self) -> None:
        super().__init__(1)
        self.has_begun, self.has_stopped = threading.Event(), threading.Event()
        self.closing: threading.Event | None = None
        self.items: list[Any] = []
        self.begun: list[Any] = []

    def run(self, task: Any, items: Any, *, description: str, progress: Any = None) -> Any:
        if not threading.current_thread().name.startswith("reput-dispatch-scan"):
            return super().run(task, items, description=description, progress=progress)
        self.items += items

        def held(item: Any) -> Any:
            self.begun.append(item)
            self.has_begun.set()
            assert self.closing is not None
            assert (self.closing if len(self.begun) == 1 else self.has_stopped).wait(60)
            return task(item)

        def report(done: int, total: int, description: str) -> None:
            try:
                progress(done, total, description)
            except BaseException:
                self.has_stopped.set()
                raise

        return super().run(held, items, description=description, progress=report)


def test_a_dispatcher_that_ends_starts_no_further_task_of_a_scan_ahead(store: Path, tmp_path: Path) -> None:
    output, runner = tmp_path / "output", RunnerOfAScanAhead()
    with dispatcher(store, output) as one:
        runner.closing = one._closing
        for _ in range(2):
            assert one.run_once(runner) is not None
        assert runner.has_begun.wait(60)
    assert runner.has_stopped.is_set()
    assert len(runner.begun) <= 2 < len(runner.items)
    assert not list((output / "work").iterdir())
    assert drain(store, output) > 0
    assert derived(output) == derived(store)


def test_a_topic_that_gets_its_type_after_its_records_were_scanned_has_queues_of_this_type(
    tmp_path: Path, scanning: list[str]
) -> None:
    store, output = tmp_path / "store", tmp_path / "output"
    write_log(store, [*orders(0, 80, topic="pay", queue_id=1), *orders(0, 80)])
    with dispatcher(store, output) as one:
        for _ in range(2):
            assert one.run_once(LocalRunner(1)) is not None
        assert one._ahead is not None
        one._ahead.result()
        assert len(scanning) == 2
        declare_batch_queues(store)
        while one.run_once(LocalRunner(1)) is not None:
            pass
    assert (output / "batchconsumequeue/orders/0").exists()
    assert not (output / "consumequeue/orders").exists()


def test_retention_that_is_faster_than_a_scan_is_told_as_in_one_process(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def then_deleted(plan: BatchPlan, runner: Runner) -> list[ScanOutcome]:
        for path in sorted((store / "commitlog").iterdir())[:4]:
            path.unlink()
        return scan_batch(plan, runner)

    with dispatcher(store, tmp_path / "output") as one:
        assert one.run_once(LocalRunner(1)) is not None
        monkeypatch.setattr(dispatcher_module, "scan_batch", then_deleted)
        with pytest.raises(DataLossError, match="there is no such file"):
            one.run_once(LocalRunner(1))


@settings(max_examples=30)
@given(
    puts=st.lists(
        st.tuples(PUTS, st.sampled_from([0] * 90 + [-1, 1, 4, 30]), st.booleans()), min_size=60, max_size=200
    ),
    batches=st.lists(st.tuples(st.sampled_from([1, 2, 5, 20, 50, 90]), st.booleans()), min_size=2, max_size=6),
    first_offsets=st.fixed_dictionaries({}, optional={0: st.integers(0, 12), 4: st.integers(0, 12)}),
)
def test_one_process_and_tasks_write_the_same_after_each_batch_of_any_size_and_after_restarts(
    puts: list[tuple[Put, int, bool]], batches: list[tuple[int, bool]], first_offsets: dict[int, int]
) -> None:
    """Small batches and large ones of one dispatcher, several topics, and light queues."""
    light, all_puts = 0, []
    for number, (one, step, is_light) in enumerate(puts):
        queue_id = one.queue_id + number % 2 * 3  # so each queue has one topic
        topic = ("orders", "%RETRY%g", "pay")[queue_id % 3]
        light_queue = ("%LMQ%a", light) if is_light and one.has_unit else None
        light += light_queue is not None
        all_puts.append(replace(one, queue_id=queue_id, topic=topic, queue_step=step, light_queue=light_queue))
    with TemporaryDirectory() as folder, ExitStack() as held:
        store, outputs = Path(folder, "store"), (Path(folder, "tasks"), Path(folder, "alone"))
        end, pair = 0, list[BatchDispatcher]()
        for size, restarts in batches:
            end += size
            write_log(store, all_puts[:end], first_offsets)
            if restarts or not pair:
                held.close()
                pair = [held.enter_context(dispatcher(store, output)) for output in outputs]
            while pair[0].run_once(LocalRunner(1)) is not None:
                pass
            while pair[1].log.run_once() is not None:
                pass
            assert derived(outputs[0]) == derived(outputs[1])
