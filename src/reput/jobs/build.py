"""The phases of a rebuild, in a folder that nobody else knows yet."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from reput.config.dispatch_rules import DispatchRules
from reput.files import DISK
from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE
from reput.formats.paths import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX
from reput.jobs.batch_builder import BatchQueueFinish, QueueKey, UnitChunk, merge_chunks
from reput.jobs.ext_builder import ExtChunk
from reput.jobs.geometry import Geometry
from reput.jobs.index_builder import IndexFilePlan, KeyChunk, plan_index_files
from reput.jobs.runner import Progress, Runner
from reput.jobs.scan_task import (
    BATCH_UNITS,
    EXT,
    KEYS,
    ScanOutcome,
    ScanTarget,
    merge_ext_chunks,
    merge_queues,
    queues_join,
    scan_one,
    scan_splits,
)
from reput.jobs.split_tasks import run_over_splits
from reput.jobs.unit_writer import QueueFinish, QueueRange
from reput.log.directory import LogFile
from reput.log.scan import Damage
from reput.log.splits import Split, plan_splits

_QUEUES_OF_A_FINISH = 64


@dataclass(frozen=True, slots=True)
class RebuildResult:
    """What a rebuild read and wrote.

    Attributes:
        messages: records read; `log_bytes` in them.
        units: units written, fillers not counted; in `queues` queues.
        keys: keys in `index_files` index files.
        written_bytes: the parts of the files that are in use.
        in_order: whether the log had to be read a second time in one go, because queue offsets repeat or leave gaps.
        damages: what of the log was passed over, in its order.
        findings: the same in words, and what of the store's derived files cannot be right.
        seconds: of the whole job, and of each phase.
    """

    messages: int
    log_bytes: int
    units: int
    queues: int
    keys: int
    index_files: int
    written_bytes: int
    in_order: bool
    damages: tuple[Damage, ...]
    findings: tuple[str, ...]
    seconds: float
    phase_seconds: dict[str, float]


class Build:
    """One rebuild: the phases, and what they share."""

    def __init__(
        self,
        folder: str,
        geometry: Geometry,
        runner: Runner,
        index: bool,
        rules: DispatchRules,
        skip_damage: bool,
        progress: Progress | None,
    ) -> None:
        self._folder = folder
        self._sizes = geometry.config
        self._types = geometry.types
        self._findings = geometry.findings
        self._runner = runner
        self._index = index
        self._rules = rules
        self._skip_damage = skip_damage
        self._further = geometry.further
        self._progress = progress

    def run(self, log_files: Sequence[LogFile], split_bytes: int, started: float) -> RebuildResult:
        """All phases; what is returned lies in the unfinished folder."""
        outcomes, in_order = self._scan(log_files, split_bytes)
        scanned = time.perf_counter()
        queues = merge_queues(outcomes)
        batch_chunks = merge_chunks(outcome.batch_chunks for outcome in outcomes)
        batch_units = sum(chunk.size for chunks in batch_chunks.values() for chunk in chunks) // BATCH_UNIT_SIZE
        index_plans = self._plan_index([chunk for outcome in outcomes for chunk in outcome.chunks])
        damages = tuple(damage for outcome in outcomes for damage in outcome.damages)
        written = self._finish(index_plans, queues, merge_ext_chunks(outcomes), batch_chunks)
        finished = time.perf_counter()
        return RebuildResult(
            messages=sum(outcome.messages for outcome in outcomes),
            log_bytes=sum(outcome.log_bytes for outcome in outcomes),
            units=sum(queue.units for queue in queues) + batch_units,
            queues=len(queues) + len(batch_chunks),
            keys=sum(plan.key_count for plan in index_plans),
            index_files=len(index_plans),
            written_bytes=written,
            in_order=in_order,
            damages=damages,
            findings=(*map(_finding, damages), *self._findings),
            seconds=finished - started,
            phase_seconds={"scan": scanned - started, "build and sync": finished - scanned},
        )

    def _scan(self, log_files: Sequence[LogFile], split_bytes: int) -> tuple[list[ScanOutcome], bool]:
        """Write the units and spill the keys; all at once, or else in the order of the log, which is the truth."""
        self._make_folders()
        size = self._sizes.mapped_file_size_consume_queue
        delays_ms = self._sizes.delay_levels_ms if self._rules.redispatches_deliver_time else ()
        target = ScanTarget(
            self._folder, size, self._index, self._rules, delays_ms, self._further, self._types, self._skip_damage
        )
        splits = plan_splits(log_files, split_bytes)
        outcomes, misled = run_over_splits(
            self._runner, partial(scan_one, target), splits, description="read the log", progress=self._progress
        )
        undeclared = frozenset[str]().union(*(outcome.undeclared for outcome in outcomes))
        if undeclared:  # their units lie in consume queues
            self._types = replace(self._types, batch=self._types.batch | undeclared)
            DISK.remove_tree(self._folder)
            return self._scan(log_files, split_bytes)
        in_order = any(outcome.messages for outcome in misled) or not queues_join(outcomes)
        if in_order:
            DISK.remove_tree(self._folder)
            self._make_folders()
            whole = tuple(Split(file, file.start_offset, file.end_offset, True) for file in log_files)
            outcomes = self._runner.run(
                partial(scan_splits, target), [whole], description="read the log in order", progress=self._progress
            )
            for outcome in outcomes:
                if outcome.fault:
                    raise outcome.fault
        return outcomes, in_order

    def _make_folders(self) -> None:
        ext = () if self._further.ext_file_size is None else (CONSUME_QUEUE_EXT, EXT)
        for name in (CONSUME_QUEUE, KEYS, BATCH_UNITS, *ext, *((INDEX,) if self._index else ())):
            DISK.make_directories(os.path.join(self._folder, name))

    def _plan_index(self, chunks: Sequence[KeyChunk]) -> list[IndexFilePlan]:
        folder = os.path.join(self._folder, INDEX)
        return plan_index_files(folder, chunks, self._sizes.max_hash_slot_num, self._sizes.max_index_num)

    def _finish(
        self,
        index_plans: list[IndexFilePlan],
        queues: list[QueueRange],
        ext_chunks: dict[tuple[str, int], list[ExtChunk]],
        batch_chunks: dict[QueueKey, tuple[UnitChunk, ...]],
    ) -> int:
        """Build the index files, finish the queues, sync all; returns the bytes in use."""
        folder = os.path.join(self._folder, CONSUME_QUEUE)
        size = self._sizes.mapped_file_size_consume_queue
        ext_folder, ext_file_size = os.path.join(self._folder, CONSUME_QUEUE_EXT), self._further.ext_file_size
        steps: list[IndexFilePlan | QueueFinish | BatchQueueFinish] = [*index_plans]  # first, since they take longest
        for (topic, queue_id), chunks in batch_chunks.items():
            batch_folder = os.path.join(self._folder, BATCH_CONSUME_QUEUE, topic, str(queue_id))
            steps.append(BatchQueueFinish(batch_folder, self._sizes.mapper_file_size_batch_consume_queue, chunks))
        for i in range(0, len(queues), _QUEUES_OF_A_FINISH):
            some = tuple(queues[i : i + _QUEUES_OF_A_FINISH])
            of_some = tuple(tuple(ext_chunks.get((queue.topic, queue.queue_id), ())) for queue in some)
            steps.append(QueueFinish(folder, size, some, ext_folder, ext_file_size, of_some))
        description = "build the index, sync" if self._index else "sync"
        written = sum(self._runner.run(_finish, steps, description=description, progress=self._progress))
        if self._index:
            DISK.sync_directory(os.path.join(self._folder, INDEX))
        for name in (KEYS, BATCH_UNITS, *(() if ext_file_size is None else (EXT,))):
            DISK.remove_tree(os.path.join(self._folder, name))
        return written


def _finding(damage: Damage) -> str:
    return (
        f"{damage.path}: passed over {damage.end - damage.begin} bytes from offset {damage.begin} on: {damage.reason}"
    )


def _finish(step: IndexFilePlan | QueueFinish | BatchQueueFinish) -> int:
    """The task of the second phase."""
    return step.run()
