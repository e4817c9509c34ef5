"""`rebuild`: consume queues and index files from the commit log alone, byte for byte what live dispatch writes.

A plan of splits, a task for each that writes units straight to their slots and spills its keys, a merge that proves
that the splits and each queue's slots join, then a task for each index file and for groups of queues to be synced.

The units of batch consume queues have no slots: they are spilled, and written by a task for each queue.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from reput.config.dispatch_rules import DispatchRules
from reput.config.message_store import MessageStoreConfig
from reput.errors import CorruptRecordError, StoreError, StoreFormatError
from reput.files import DISK
from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE
from reput.formats.consume_queue_ext import DEFAULT_FILE_SIZE
from reput.formats.multi_dispatch import LMQ_PREFIX
from reput.formats.paths import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX
from reput.jobs.batch_builder import BatchQueueFinish, BatchUnitSpill, QueueKey, UnitChunk, merge_chunks
from reput.jobs.ext_builder import ExtChunk
from reput.jobs.index_builder import IndexFilePlan, KeyChunk, KeySpill, plan_index_files
from reput.jobs.runner import Progress, Runner
from reput.jobs.split_tasks import run_over_splits
from reput.jobs.unit_writer import FurtherUnits, QueueFinish, QueueRange, UnitWriter
from reput.kernels.record_scan import ScanLevel
from reput.log.directory import LogFile, QueueFiles, StoreDirectory
from reput.log.index_geometry import index_geometry
from reput.log.queue_extensions import queue_extensions
from reput.log.queue_types import QueueTypes, find_queue_types
from reput.log.scan import scan_split
from reput.log.splits import Split, SplitResult, SplitStop, plan_splits

if TYPE_CHECKING:
    from reput.kernels.consume_queue_ext import BitMaps

SPLIT_BYTES = 64 << 20
_QUEUES_OF_A_FINISH = 64
_UNFINISHED = ".unfinished"
_KEYS = "keys"
_EXT = "ext"
_BATCH_UNITS = "batch-units"


@dataclass(frozen=True, slots=True)
class RebuildResult:
    """What a rebuild read and wrote.

    Attributes:
        messages: records read; `log_bytes` in them.
        units: units written, fillers not counted; in `queues` queues.
        keys: keys in `index_files` index files.
        written_bytes: the parts of the files that are in use.
        in_order: whether the log had to be read a second time in one go, because queue offsets repeat or leave gaps.
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
    seconds: float
    phase_seconds: dict[str, float]


@dataclass(frozen=True, slots=True)
class _Target:
    """Where the tasks of the first phase write, and what."""

    folder: str
    queue_file_size: int
    index: bool
    rules: DispatchRules
    delays_ms: tuple[int, ...]
    further: FurtherUnits
    types: QueueTypes


@dataclass(frozen=True, slots=True)
class _ScanOutcome:
    """What one task tells the merge; `read` and `fault` as in `SplitOutcome`, of the last split that it read."""

    read: SplitResult
    messages: int
    log_bytes: int
    queues: tuple[QueueRange, ...]
    batch_chunks: dict[QueueKey, list[UnitChunk]]
    undeclared: frozenset[str]
    chunks: tuple[KeyChunk, ...]
    ext_chunks: dict[tuple[str, int], list[ExtChunk]]
    fault: CorruptRecordError | None


def rebuild(
    store_path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    runner: Runner,
    commit_log_path: str | os.PathLike[str] | None = None,
    mapped_file_size_consume_queue: int | None = None,
    mapper_file_size_batch_consume_queue: int | None = None,
    max_hash_slot_num: int | None = None,
    max_index_num: int | None = None,
    enable_consume_queue_ext: bool | None = None,
    mapped_file_size_consume_queue_ext: int | None = None,
    bit_maps: BitMaps | None = None,
    enable_lmq: bool | None = None,
    message_delay_level: str | None = None,
    split_bytes: int = SPLIT_BYTES,
    index: bool = True,
    rules: DispatchRules = DispatchRules.V5_3_3,
    progress: Progress | None = None,
) -> RebuildResult:
    """Build `consumequeue/` and `index/` in the new directory `output`, synced. The store itself is not changed.

    Topics with batch consume queues get theirs in `batchconsumequeue/`: those that `config/topics.json` or a folder
    of the store names, and those with inner batches that neither knows.

    File sizes that are not given are those of the store's own files, else RocketMQ's defaults. Consume queue extensions
    (`consumequeue_ext/`, with what `bit_maps` gives for the columns of each scan) and light message queues are built
    where they are asked for, or, if nothing is said (None), where the store has them. Everything is built in
    `<output>.unfinished` and renamed at the end: a rebuild that was killed leaves no `output`, and the next one begins
    anew. Where queue offsets repeat, as after a crash, the first message wins, as in
    `ConsumeQueue.putMessagePositionInfo`; a gap is filled with filler units, so that each unit stands at its own queue
    offset (RocketMQ logs an error and puts it into the gap). The units of delayed messages hold the time of
    delivery, by `message_delay_level` where the broker had levels of its own. `rules` name the RocketMQ
    version whose files these are to be. The tasks need a file system that all share.

    Raises:
        StoreFormatError: no store, a foreign file, or index files whose geometry must be given; also where `output`
            exists and is not an empty folder.
        CorruptRecordError: damage in the log, a queue offset beyond what the log can hold, a topic that cannot
            name a folder.
        ConfigError: file sizes or delay levels that RocketMQ does not allow; an `output` inside the store.
        StoreFullError: no space.
    """
    started = time.perf_counter()
    directory = StoreDirectory(store_path, commit_log_path=commit_log_path)
    further = replace(
        _further_units(directory, enable_consume_queue_ext, mapped_file_size_consume_queue_ext, bit_maps, enable_lmq),
        any_topic=rules.multi_dispatches_any_topic,
    )
    sizes = _file_sizes(
        directory, mapped_file_size_consume_queue, mapper_file_size_batch_consume_queue, max_hash_slot_num,
        max_index_num, index,
    )  # fmt: skip
    if message_delay_level is not None:
        sizes = replace(sizes, message_delay_level=message_delay_level)
    output = os.path.abspath(output)
    if DISK.exists(output) and not (DISK.is_directory(output) and not DISK.list_directory(output)):
        raise StoreFormatError(f"{output}: exists already and is not an empty folder; give the name of a new one")
    directory.check_output(output)
    log_files = directory.log_files()
    unfinished = output + _UNFINISHED
    _remove(unfinished)
    folder = os.path.join(unfinished, uuid.uuid4().hex)
    try:
        build = _Build(folder, sizes, find_queue_types(directory), runner, index, rules, further, progress)
        result = build.run(log_files, split_bytes, started)
        DISK.rename(folder, output)
    finally:
        _remove(unfinished)
    return replace(result, seconds=time.perf_counter() - started)


def _remove(unfinished: str) -> None:
    """Remove what a rebuild has left, as far as none of its tasks still writes there, below a name of its own."""
    with contextlib.suppress(StoreError):
        DISK.remove_tree(unfinished)


class _Build:
    """One rebuild: the phases, and what they share."""

    def __init__(
        self,
        folder: str,
        sizes: MessageStoreConfig,
        types: QueueTypes,
        runner: Runner,
        index: bool,
        rules: DispatchRules,
        further: FurtherUnits,
        progress: Progress | None,
    ) -> None:
        self._folder = folder
        self._sizes = sizes
        self._types = types
        self._runner = runner
        self._index = index
        self._rules = rules
        self._further = further
        self._progress = progress

    def run(self, log_files: Sequence[LogFile], split_bytes: int, started: float) -> RebuildResult:
        """All phases; what is returned lies in the unfinished folder."""
        outcomes, in_order = self._scan(log_files, split_bytes)
        scanned = time.perf_counter()
        queues = _merge_queues(outcomes)
        batch_chunks = merge_chunks(outcome.batch_chunks for outcome in outcomes)
        batch_units = sum(chunk.size for chunks in batch_chunks.values() for chunk in chunks) // BATCH_UNIT_SIZE
        index_plans = self._plan_index([chunk for outcome in outcomes for chunk in outcome.chunks])
        written = self._finish(index_plans, queues, _merge_ext_chunks(outcomes), batch_chunks)
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
            seconds=finished - started,
            phase_seconds={"scan": scanned - started, "build and sync": finished - scanned},
        )

    def _scan(self, log_files: Sequence[LogFile], split_bytes: int) -> tuple[list[_ScanOutcome], bool]:
        """Write the units and spill the keys; all at once, or else in the order of the log, which is the truth."""
        self._make_folders()
        size = self._sizes.mapped_file_size_consume_queue
        delays_ms = self._sizes.delay_levels_ms if self._rules.redispatches_deliver_time else ()
        target = _Target(self._folder, size, self._index, self._rules, delays_ms, self._further, self._types)
        splits = plan_splits(log_files, split_bytes)
        outcomes, misled = run_over_splits(
            self._runner, partial(_scan_split, target), splits, description="read the log", progress=self._progress
        )
        undeclared = frozenset[str]().union(*(outcome.undeclared for outcome in outcomes))
        if undeclared:  # their units lie in consume queues
            self._types = replace(self._types, batch=self._types.batch | undeclared)
            DISK.remove_tree(self._folder)
            return self._scan(log_files, split_bytes)
        in_order = any(outcome.messages for outcome in misled) or not _queues_join(outcomes)
        if in_order:
            DISK.remove_tree(self._folder)
            self._make_folders()
            whole = tuple(Split(file, file.start_offset, file.end_offset, True) for file in log_files)
            outcomes = self._runner.run(
                partial(_scan_splits, target), [whole], description="read the log in order", progress=self._progress
            )
            for outcome in outcomes:
                if outcome.fault:
                    raise outcome.fault
        return outcomes, in_order

    def _make_folders(self) -> None:
        ext = () if self._further.ext_file_size is None else (CONSUME_QUEUE_EXT, _EXT)
        for name in (CONSUME_QUEUE, _KEYS, _BATCH_UNITS, *ext, *((INDEX,) if self._index else ())):
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
        for name in (_KEYS, _BATCH_UNITS, *(() if ext_file_size is None else (_EXT,))):
            DISK.remove_tree(os.path.join(self._folder, name))
        return written


def _scan_split(target: _Target, split: Split) -> _ScanOutcome:
    """The task of the first phase."""
    return _scan_splits(target, (split,))


def _scan_splits(target: _Target, splits: Sequence[Split]) -> _ScanOutcome:
    """Read splits up to the log's end, write their units, and spill their keys."""
    spill_name = f"{splits[0].begin}-{uuid.uuid4().hex}"  # an attempt of this task that counts as lost may live on
    ext_path = os.path.join(target.folder, _EXT, spill_name)
    units = UnitWriter(
        os.path.join(target.folder, CONSUME_QUEUE), target.queue_file_size, target.types.batch, target.further, ext_path
    )
    batch_units = BatchUnitSpill(os.path.join(target.folder, _BATCH_UNITS, spill_name), target.types)
    spill = KeySpill(os.path.join(target.folder, _KEYS, spill_name))
    level = ScanLevel.KEYS if target.index else ScanLevel.PROPERTIES
    messages = log_bytes = 0
    fault: CorruptRecordError | None = None
    try:
        for split in splits:
            scan = scan_split(split, level=level, delays_ms=target.delays_ms, index_tags=target.rules.indexes_tags)
            for columns in scan:
                messages += columns.rows
                log_bytes += columns.consumed
                batch_units.put(columns)
                units.put(columns, split.file.path)
                if target.index:
                    spill.put(columns)
            if scan.stop is SplitStop.LOG_END:
                break
    except CorruptRecordError as error:
        fault = error
    finally:
        units.close()
        batch_units.close()
        spill.close()
    ranges, chunks = tuple(units.ranges.values()), tuple(spill.chunks)
    return _ScanOutcome(
        scan.result, messages, log_bytes, ranges, batch_units.chunks, frozenset(batch_units.undeclared), chunks,
        units.ext.chunks, fault,
    )  # fmt: skip


def _finish(step: IndexFilePlan | QueueFinish | BatchQueueFinish) -> int:
    """The task of the second phase."""
    return step.run()


def _queues_join(outcomes: Sequence[_ScanOutcome]) -> bool:
    """Whether each queue's slots, from task to task in log order, neither repeat nor leave a gap."""
    next_offsets: dict[tuple[str, int], int] = {}
    for outcome in outcomes:
        for queue in outcome.queues:
            key = queue.topic, queue.queue_id
            if next_offsets.get(key, queue.first_offset) != queue.first_offset:
                return False
            next_offsets[key] = queue.next_offset
    return True


def _merge_queues(outcomes: Iterable[_ScanOutcome]) -> list[QueueRange]:
    """Each queue's slots over all tasks, in the order of first sight."""
    merged: dict[tuple[str, int], QueueRange] = {}
    for outcome in outcomes:
        for queue in outcome.queues:
            before = merged.setdefault((queue.topic, queue.queue_id), replace(queue, units=0))
            before.next_offset = queue.next_offset
            before.units += queue.units
    return list(merged.values())


def _merge_ext_chunks(outcomes: Iterable[_ScanOutcome]) -> dict[tuple[str, int], list[ExtChunk]]:
    """The ext units of each queue, in log order."""
    merged: dict[tuple[str, int], list[ExtChunk]] = {}
    for outcome in outcomes:
        for key, chunks in outcome.ext_chunks.items():
            merged.setdefault(key, []).extend(chunks)
    return merged


def _further_units(
    directory: StoreDirectory, ext: bool | None, ext_file_size: int | None, bit_maps: BitMaps | None, lmq: bool | None
) -> FurtherUnits:
    """What was asked for, else what the store has."""
    found = queue_extensions(directory.path) if ext is not False else []
    if ext is None:
        ext = bool(found)
    if ext_file_size is None:
        ext_file_size = found[0].file_size if found else DEFAULT_FILE_SIZE
    if lmq is None:
        lmq = any(queue.topic.startswith(LMQ_PREFIX) for queue in directory.queues())
    return FurtherUnits(ext_file_size if ext else None, bit_maps, multi_dispatch=lmq, enable_lmq=lmq)


def _one_size(queues: list[QueueFiles], directory: StoreDirectory, key: str) -> int | None:
    """The size of a store's queue files of one kind; None where it has none."""
    found = {queue.file_size for queue in queues}
    if len(found) > 1:
        raise StoreFormatError(f"{directory.path}: queue files of {sorted(found)} bytes; give {key}")
    return found.pop() if found else None


def _file_sizes(
    directory: StoreDirectory,
    queue_file_size: int | None,
    batch_file_size: int | None,
    slots: int | None,
    entries: int | None,
    index: bool,
) -> MessageStoreConfig:
    """The sizes that were given, else those of the store's files, else RocketMQ's; the rest of the result is unused."""
    if queue_file_size is None:
        queue_file_size = _one_size(directory.queues(), directory, "mapped_file_size_consume_queue")
    if batch_file_size is None:
        batch_file_size = _one_size(directory.batch_queues(), directory, "mapper_file_size_batch_consume_queue")
    given = {
        "mapped_file_size_consume_queue": queue_file_size,
        "mapper_file_size_batch_consume_queue": batch_file_size,
        "max_hash_slot_num": slots,
        "max_index_num": entries,
    }
    sizes = MessageStoreConfig.from_mapping({name: value for name, value in given.items() if value is not None})
    if index and slots is None and entries is None:
        slots, entries = index_geometry(directory.index_files(), sizes.max_hash_slot_num, sizes.max_index_num)
        sizes = replace(sizes, max_hash_slot_num=slots, max_index_num=entries)
    return sizes
