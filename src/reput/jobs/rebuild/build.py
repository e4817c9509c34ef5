"""Phases of a rebuild, in a private folder. The runner may know tasks that an earlier start has finished."""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from reput.files import DISK
from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE
from reput.formats.index_file import HEADER_SIZE, decode_header
from reput.formats.paths import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX
from reput.jobs.log_bounds import bounded_splits
from reput.jobs.rebuild.batch_builder import BatchQueueFinish, FinishedBatchQueue, QueueKey, UnitChunk
from reput.jobs.rebuild.ext_builder import ExtChunk
from reput.jobs.rebuild.index_builder import IndexFilePlan, KeyChunk, plan_index_files
from reput.jobs.rebuild.plan import BuildPlan
from reput.jobs.rebuild.scan_task import (
    BATCH_UNITS,
    EXT,
    KEYS,
    ScanOutcome,
    ScanTarget,
    merge_chunks,
    merge_queues,
    queues_join,
    scan_one,
    scan_splits,
)
from reput.jobs.rebuild.unit_writer import QueueFinish, WrittenRange
from reput.jobs.record_faults import misnumbered_fault
from reput.jobs.runner import Runner
from reput.jobs.split_tasks import run_over_splits
from reput.log.damages import NO_DAMAGES, Damage, Damages, joined
from reput.log.queue_types import QueueTypes
from reput.progress import Progress

_QUEUES_OF_A_FINISH = 64


@dataclass(frozen=True, slots=True)
class RebuildResult:
    """Result of a rebuild.

    Attributes:
        messages: count of records that were read.
        log_bytes: bytes of these records.
        units: count of units that were written, without fillers.
        queues: count of queues.
        keys: count of keys in the index.
        index_files: count of index files.
        written_bytes: bytes in use of all files.
        in_order: whether the log was read a second time by one task, because queue offsets repeat or leave gaps.
        damages: ranges of the log that were passed over, in its order.
        findings: texts of the damages, and of the store's derived files that cannot be right.
        seconds: time of the whole job; after a kill, of the last start.
        phase_seconds: time of each phase.
        last_timestamp: store time (ms) of the log's last message; 0 without messages.
        index_timestamp: end time (ms) of the last full index file; 0 without full files.
        kept_queues: in place: queues ("topic/queue id") without messages in the log, which stay as they are.
        resumed: whether the job continued a killed rebuild.
        kept_folders: in place with `keep_old`: paths of the old folders.
    """

    messages: int
    log_bytes: int
    units: int
    queues: int
    keys: int
    index_files: int
    written_bytes: int
    in_order: bool
    damages: Damages
    findings: tuple[str, ...]
    seconds: float
    phase_seconds: dict[str, float]
    last_timestamp: int
    index_timestamp: int
    kept_queues: tuple[str, ...] = ()
    resumed: bool = False
    kept_folders: tuple[str, ...] = ()


class Built(NamedTuple):
    """Result of a build, and the path of the folder that was built."""

    result: RebuildResult
    path: str


class Build:
    """Phases of one rebuild, with the arguments that they share.

    If the log turns out to need another pass (batch topics, repeated queue offsets), the pass builds in a folder of
    its own: so the files and outcomes of finished tasks stay valid for a start after a kill.

    Attributes:
        folder: path of what is built, once `run` has returned.
        types: types of its queues.
    """

    def __init__(self, path: str, plan: BuildPlan, runner: Runner, progress: Progress | None) -> None:
        self._path = path
        self._plan = plan
        self._sizes = plan.geometry.config
        self._further = plan.geometry.further
        self._runner = runner
        self._progress = progress
        self.folder = self._scratch = ""
        self.types = plan.geometry.types

    def run(self) -> RebuildResult:
        """Run all phases."""
        started = time.perf_counter()
        outcomes, in_order = self._scan()
        scanned = time.perf_counter()
        queues = merge_queues(outcomes)
        batch_chunks = merge_chunks(outcome.batch_chunks for outcome in outcomes)
        index_plans = self._plan_index([chunk for outcome in outcomes for chunk in outcome.chunks])
        damages = joined(outcome.damages for outcome in outcomes)
        ext_chunks = merge_chunks(outcome.ext_chunks for outcome in outcomes)
        batch_queues = self._finish_batch_queues(batch_chunks)
        damages = damages.merged_with(NO_DAMAGES.followed_by(self._misnumbered(batch_queues)))
        batch_bytes = sum(queue.written for queue in batch_queues)
        written = batch_bytes + self._finish(index_plans, queues, ext_chunks)
        finished = time.perf_counter()
        return RebuildResult(
            messages=sum(outcome.messages for outcome in outcomes),
            log_bytes=sum(outcome.log_bytes for outcome in outcomes),
            units=sum(queue.units for queue in queues) + batch_bytes // BATCH_UNIT_SIZE,
            queues=len(queues) + sum(queue.written > 0 for queue in batch_queues),
            keys=sum(plan.key_count for plan in index_plans),
            index_files=len(index_plans),
            written_bytes=written,
            in_order=in_order,
            damages=damages,
            findings=(*damages.texts(), *self._plan.geometry.findings),
            seconds=finished - started,
            phase_seconds={"scan": scanned - started, "build and sync": finished - scanned},
            last_timestamp=next((outcome.last_timestamp for outcome in reversed(outcomes) if outcome.messages), 0),
            index_timestamp=_end_of_last_full(index_plans),
        )

    def _scan(self) -> tuple[list[ScanOutcome], bool]:
        """Write the units and spill the keys: in parallel, or by one task in log order if slots do not join."""
        plan, types, description = self._plan, self._plan.geometry.types, "read the log"
        splits = bounded_splits(plan.log_files, plan.split_bytes, plan.log_end)
        target = self._begin("at-once", types)
        outcomes, misled = run_over_splits(
            self._runner, partial(scan_one, target), splits, description=description, progress=self._progress
        )
        undeclared = frozenset[str]().union(*(outcome.undeclared for outcome in outcomes))
        if undeclared:  # their units were written to consume queues
            types = replace(types, batch=types.batch | undeclared)
            target = self._begin("with-batch-queues", types)
            outcomes, misled = run_over_splits(
                self._runner, partial(scan_one, target), splits,
                description=f"{description} with batch consume queues", progress=self._progress,
            )  # fmt: skip
        in_order = any(outcome.messages for outcome in misled) or not queues_join(outcomes)
        in_order = in_order or any(outcome.misnumbered for outcome in outcomes)
        misnumbered: frozenset[int] = frozenset()
        while in_order:
            target = self._begin(f"in-order-{len(misnumbered)}", types, misnumbered)
            whole = tuple(bounded_splits(plan.log_files, max(file.size for file in plan.log_files), plan.log_end))
            # Each pass has a description of its own: by that a resumed job tells what it has done.
            in_order_pass = f"{description} in order" + f", without {len(misnumbered)}" * bool(misnumbered)
            outcomes = self._runner.run(
                partial(scan_splits, target), [whole], description=in_order_pass, progress=self._progress
            )
            for outcome in outcomes:
                if outcome.fault:
                    raise outcome.fault
            if outcomes[0].misnumbered <= misnumbered:
                break
            misnumbered |= outcomes[0].misnumbered  # they are known only now, and their units are written
        return outcomes, in_order

    def _begin(self, name: str, types: QueueTypes, misnumbered: frozenset[int] = frozenset()) -> ScanTarget:
        """Make the folders of a pass over the log, and remove the folders of the pass before it."""
        if self.folder:
            DISK.remove_tree(os.path.dirname(self.folder))
        self.folder, self.types = os.path.join(self._path, name, "built"), types
        self._scratch = os.path.join(self._path, name, "scratch")
        has_ext = self._further.ext_file_size is not None
        for folder in (
            CONSUME_QUEUE,
            *((CONSUME_QUEUE_EXT,) if has_ext else ()),
            *((INDEX,) if self._plan.index else ()),
        ):
            DISK.make_directories(os.path.join(self.folder, folder))
        for folder in (KEYS, BATCH_UNITS, EXT):
            DISK.add_directories(os.path.join(self._scratch, folder))
        rules, size = self._plan.rules, self._sizes.mapped_file_size_consume_queue
        delays_ms = self._sizes.delay_levels_ms if rules.redispatches_deliver_time else ()
        return ScanTarget(
            self.folder, self._scratch, size, self._plan.index, rules, delays_ms, self._further, types,
            self._plan.on_damage, misnumbered,
        )  # fmt: skip

    def _plan_index(self, chunks: Sequence[KeyChunk]) -> list[IndexFilePlan]:
        folder = os.path.join(self.folder, INDEX)
        return plan_index_files(folder, chunks, self._sizes.max_hash_slot_num, self._sizes.max_index_num)

    def _finish_batch_queues(self, chunks: dict[QueueKey, list[UnitChunk]]) -> list[FinishedBatchQueue]:
        """Write and sync the batch consume queues."""
        if not chunks:
            return []
        steps = [
            BatchQueueFinish(
                os.path.join(self.folder, BATCH_CONSUME_QUEUE, topic, str(queue_id)),
                self._sizes.mapper_file_size_batch_consume_queue,
                tuple(of_queue),
            )
            for (topic, queue_id), of_queue in chunks.items()
        ]
        description = "build the batch consume queues"
        return self._runner.run(_finish_batch_queue, steps, description=description, progress=self._progress)

    def _misnumbered(self, queues: Sequence[FinishedBatchQueue]) -> list[Damage]:
        """Records that got no unit in batch consume queues, as damage, in the order of the log."""
        files = self._plan.log_files
        starts = [file.start_offset for file in files]
        return [
            Damage(files[bisect_right(starts, begin) - 1].path, begin, end, misnumbered_fault(says))
            for begin, end, says in sorted(wrong for queue in queues for wrong in queue.misnumbered)
        ]

    def _finish(
        self,
        index_plans: list[IndexFilePlan],
        queues: list[WrittenRange],
        ext_chunks: dict[tuple[str, int], list[ExtChunk]],
    ) -> int:
        """Build the index files, finish the queues, sync all files; returns the bytes in use."""
        folder = os.path.join(self.folder, CONSUME_QUEUE)
        size = self._sizes.mapped_file_size_consume_queue
        ext_folder, ext_file_size = os.path.join(self.folder, CONSUME_QUEUE_EXT), self._further.ext_file_size
        steps: list[IndexFilePlan | QueueFinish] = [*index_plans]  # index first: it takes longest
        for i in range(0, len(queues), _QUEUES_OF_A_FINISH):
            some = tuple(queues[i : i + _QUEUES_OF_A_FINISH])
            of_some = tuple(tuple(ext_chunks.get((queue.topic, queue.queue_id), ())) for queue in some)
            steps.append(QueueFinish(folder, size, some, ext_folder, ext_file_size, of_some))
        description = "build the index, sync" if self._plan.index else "sync"
        written = sum(self._runner.run(_finish, steps, description=description, progress=self._progress))
        if self._plan.index:
            DISK.sync_directory(os.path.join(self.folder, INDEX))
        return written


def _end_of_last_full(plans: Sequence[IndexFilePlan]) -> int:
    full = [plan.path for plan in plans if plan.key_count == plan.max_index_num - 1]
    if not full:
        return 0
    with DISK.open(full[-1]) as file:
        return decode_header(file.read(0, HEADER_SIZE)).end_timestamp


def _finish(step: IndexFilePlan | QueueFinish) -> int:
    """Task of the last phase: run one step."""
    return step.run()


def _finish_batch_queue(step: BatchQueueFinish) -> FinishedBatchQueue:
    """Task of the second phase: write one batch consume queue."""
    return step.run()
