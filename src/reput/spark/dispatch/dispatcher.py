"""BatchDispatcher of one store: each batch is dispatched by tasks if it is large, and otherwise by this process."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from reput.config.message_store import MessageStoreConfig
from reput.errors import StoreError
from reput.files import DISK
from reput.files.attempts import begin_attempts, end_attempts
from reput.formats.paths import CONSUME_QUEUE, CONSUME_QUEUE_EXT
from reput.jobs.dispatch.join import QueueUnits, join_batch
from reput.jobs.dispatch.plan import BatchPlan, plan_batch
from reput.jobs.dispatch.scan import scan_batch
from reput.jobs.dispatch.write_units import UnitsStep, UnitsTarget, groups_of
from reput.jobs.rebuild.index_builder import IndexFilePlan, KeyChunk, plan_index_files
from reput.jobs.rebuild.scan_task import ScanOutcome
from reput.jobs.runner import Runner
from reput.kernels.queues.index_file import IndexKeys
from reput.log.dispatch_marks import ATTEMPTS
from reput.log.queue_types import QueueTypes
from reput.log.resume_points import ResumePoint
from reput.log.tail import LogTail
from reput.progress import Progress
from reput.store.dispatch.log_dispatch import DispatchedBatch, LogDispatch
from reput.store.index.index_service import IndexService

T = TypeVar("T")
R = TypeVar("R")

_NEW_INDEX = "index"


@dataclass(frozen=True, slots=True)
class Target:
    """Folders that a dispatcher writes to.

    Attributes:
        path: parent of the queues, the index and `config/`.
        config: what is written.
        work: folder of what is removed again.
    """

    path: str
    config: MessageStoreConfig
    work: str


@dataclass(frozen=True, slots=True)
class _Scanned:
    """A batch that tasks have scanned, and the outcomes of its splits. Its scratch folder is there."""

    plan: BatchPlan
    outcomes: list[ScanOutcome]


class _Closed(Exception):
    """The dispatcher ends, and nobody waits for a scan."""


@dataclass(frozen=True, slots=True)
class _RunnerUntilClosed:
    """Runner whose tasks count only until a dispatcher ends: then no further task is started."""

    runner: Runner
    closing: threading.Event

    def run(
        self, task: Callable[[T], R], items: Sequence[T], *, description: str, progress: Progress | None = None
    ) -> list[R]:
        """As `Runner.run`. Raises _Closed once `closing` is set."""

        def report(done: int, total: int, description: str) -> None:
            if self.closing.is_set():
                raise _Closed
            if progress is not None:
                progress(done, total, description)

        return self.runner.run(task, items, description=description, progress=report)


class BatchDispatcher:
    """Dispatches the log of one store, batch by batch.

    The next large batch is scanned beside the end of a batch, in which one core puts keys and syncs. This needs nothing
    of the batch before but its end: where a record's units belong is only known in `run_once`, as is whether the log
    still has what was scanned.

    Args:
        log: its batches in one process, and its marks.
        tail: of the same log.
        target: where it writes.
        with_tasks: whether large batches are dispatched by tasks; bit maps are made by a function of this process.
        scans_ahead: whether a batch is scanned beside the one before it; two batches then have scratch folders.

    Attributes:
        log, target: as given.
    """

    def __init__(self, log: LogDispatch, tail: LogTail, target: Target, *, with_tasks: bool, scans_ahead: bool) -> None:
        self.log = log
        self._tail = tail
        self.target = target
        self._with_tasks = with_tasks
        self._scans_ahead = scans_ahead
        self._attempts = os.path.join(target.work, ATTEMPTS)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="reput-dispatch-scan")
        self._ahead: Future[_Scanned | None] | None = None
        self._closing = threading.Event()

    def run_once(self, runner: Runner) -> DispatchedBatch | None:
        """Dispatch and commit one batch; None if nothing is new. Raises as `LogDispatch.run_once`."""
        started = time.perf_counter()
        scanned = self._take_ahead() or self._scan_next(runner)
        if scanned is None:
            return self.log.run_once()
        plan = scanned.plan
        try:
            return self._by_tasks(scanned, runner, started) or self.log.run_once(plan.end - plan.begin.offset)
        finally:
            _remove_scratch(plan)

    def close(self) -> None:
        """End the scan of a batch that is not dispatched any more, and close the log's files."""
        self._closing.set()
        try:
            self._pool.shutdown()
            if self._ahead is not None and self._ahead.exception() is None and (left := self._ahead.result()):
                _remove_scratch(left.plan)
        finally:
            self.log.close()

    def _take_ahead(self) -> _Scanned | None:
        """The batch that was scanned beside the last one, if it is the next one."""
        if self._ahead is None:
            return None
        try:
            scanned = self._ahead.result()
        except Exception:  # done again, the scan of this batch meets it, too, and raises it
            scanned = None
        self._ahead = None
        if scanned is not None and scanned.plan.begin != self.log.point:
            _remove_scratch(scanned.plan)
            return None
        return scanned

    def _scan_next(self, runner: Runner) -> _Scanned | None:
        """Scan the batch after the last mark."""
        if (types := self._types()) is None:
            return None
        return self._scan(self.log.point, types, runner)

    def _types(self) -> QueueTypes | None:
        """Queue types of topics as of now; None if no tasks are to dispatch."""
        if not self._with_tasks:
            return None
        try:
            types = self.log.queue_types
        except StoreError:  # `LogDispatch` meets it, too, and raises it
            return None
        return None if types is None else QueueTypes(set(types.batch), types.simple)

    def _scan(self, begin: ResumePoint, types: QueueTypes, runner: Runner) -> _Scanned | None:
        """Scan a batch that begins at a point; None if it is not for tasks."""
        target = self.target
        try:
            plan = plan_batch(self._tail, begin, target.config, types, target.work)
        except StoreError:  # `LogDispatch` meets it, too, and goes back or raises it
            return None
        if plan is None:
            return None
        try:
            return _Scanned(plan, scan_batch(plan, runner))
        except BaseException as error:
            _remove_scratch(plan)
            if isinstance(error, StoreError) and not self._tail.has(begin):
                return None  # retention was faster: `LogDispatch` says so
            raise

    def _by_tasks(self, scanned: _Scanned, runner: Runner, started: float) -> DispatchedBatch | None:
        """Dispatch a batch by tasks; None if one process has to do it in its order: nothing was written."""
        plan, outcomes = scanned.plan, scanned.outcomes
        ends = [outcome.end for outcome in outcomes if outcome.end is not None]
        if not ends:  # the rest of a file, which its next record was too large for
            return None
        with self.log.locked_at(plan.begin, ends) as is_there:
            types = self._types()
            is_known = is_there and types == plan.target.types
            queues = join_batch(plan, outcomes, self.log.queue_end) if is_known else None
            if queues is None or types is None:
                return None
            end = replace(ends[-1], offset=plan.end)
            self.log.begin_writing()
            try:
                permit = begin_attempts(self._attempts, DISK)
                scan_ahead = partial(self._scan, end, types, _RunnerUntilClosed(runner, self._closing))
                new_files = self._write(plan, outcomes, queues, permit, runner, scan_ahead)
            finally:  # after an error, too: the next batch cuts what was written
                end_attempts(self._attempts, DISK)
            messages = sum(outcome.messages for outcome in outcomes)
            written = [queue.written for queue in queues]
            next_offsets = {(one.topic, one.queue_id): one.next_offset for one in written}
            return self.log.commit_tasks(end, messages, next_offsets, new_files, started)

    def _write(
        self,
        plan: BatchPlan,
        outcomes: Sequence[ScanOutcome],
        queues: Sequence[QueueUnits],
        permit: str,
        runner: Runner,
        scan_ahead: Callable[[], _Scanned | None],
    ) -> list[str]:
        """Write units and keys; returns the paths of new index files, built and synced, in their order.

        The last index file goes on here, as its slots are changed in place; each new file is a task's. Once no task
        writes any more, others scan the next batch.
        """
        config, path = self.target.config, self.target.path
        units = UnitsTarget(
            os.path.join(plan.target.folder, CONSUME_QUEUE),
            os.path.join(path, CONSUME_QUEUE),
            config.mapped_file_size_consume_queue,
            os.path.join(path, CONSUME_QUEUE_EXT),
            plan.target.further.ext_file_size,
            permit,
        )
        chunks = [chunk for outcome in outcomes for chunk in outcome.chunks]
        index = self.log.index
        room = _room(index) if index is not None else 0
        files = self._plan_index(plan, chunks, index, room) if index is not None else []
        steps: list[IndexFilePlan | UnitsStep] = [*files]  # index first: it takes longest
        steps += [UnitsStep(units, group) for group in groups_of(queues)]
        with ThreadPoolExecutor(1, thread_name_prefix="reput-dispatch-index") as pool:
            going_on = pool.submit(_put, index, chunks, room) if index is not None else None
            runner.run(_run_step, steps, description="write queues and index")
            if self._scans_ahead:
                self._ahead = self._pool.submit(scan_ahead)
            if going_on is not None:
                going_on.result()
        return [file.path for file in files]

    def _plan_index(
        self, plan: BatchPlan, chunks: Sequence[KeyChunk], index: IndexService, room: int
    ) -> list[IndexFilePlan]:
        folder = os.path.join(plan.scratch, _NEW_INDEX)
        DISK.add_directories(folder)
        config, last = self.target.config, index.index_files[-1] if index.index_files else None
        before = (last.name, last.end_timestamp, last.end_offset) if last is not None else ("", 0, 0)
        slots, capacity = config.max_hash_slot_num, config.max_index_num
        return plan_index_files(folder, chunks, slots, capacity, taken=room, last=before)


def _remove_scratch(plan: BatchPlan) -> None:
    if DISK.exists(plan.scratch):
        DISK.remove_tree(plan.scratch)


def _room(index: IndexService) -> int:
    """Number of keys that the last index file takes."""
    last = index.index_files[-1] if index.index_files else None
    return 0 if last is None else last.capacity - last.count


def _put(index: IndexService, chunks: Sequence[KeyChunk], room: int) -> None:
    """Put the first keys, as many as the last index file takes."""
    for chunk in chunks:
        if room > 0:
            keys = chunk.read()
            index.put(IndexKeys(keys.hashes[:room], keys.offsets[:room], keys.timestamps[:room]))
            room -= chunk.key_count


def _run_step(step: IndexFilePlan | UnitsStep) -> None:
    """Task of the second phase: run one step."""
    step.run()
