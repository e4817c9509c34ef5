"""First phase of a rebuild: tasks that write the units of their splits and spill their keys, and the merge.

The merge proves that the slots of each queue join, and collects the chunks of each queue and index file.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from reput.config.dispatch_rules import DispatchRules
from reput.errors import CorruptRecordError
from reput.formats.paths import CONSUME_QUEUE
from reput.jobs.rebuild.batch_builder import BatchUnitSpill, QueueKey, UnitChunk
from reput.jobs.rebuild.ext_builder import ExtChunk
from reput.jobs.rebuild.index_builder import KeyChunk, KeySpill
from reput.jobs.rebuild.unit_writer import FurtherUnits, UnitWriter, WrittenRange
from reput.kernels.records.placeholders import message_count
from reput.kernels.records.record_scan import ScanLevel
from reput.log.damages import NO_DAMAGES, Damages
from reput.log.queue_types import QueueTypes
from reput.log.resume_points import ResumePoint, last_record_of
from reput.log.scan import OnDamage, scan_split
from reput.log.splits import Split, SplitResult, SplitStop

T = TypeVar("T")

#: Larger than where a reader waits for its first rows: each scan writes to each of its queues, and with 128 queues that
#: takes a third less time than scans of 4 MiB; larger ones leave the processor's caches.
_MAX_ROWS, _WINDOW_BYTES = 65_500, 16 << 20

#: Folders of spill files, which are removed with the job.
KEYS = "keys"
EXT = "ext"
BATCH_UNITS = "batch-units"


@dataclass(frozen=True, slots=True)
class ScanTarget:
    """Folders and options of the tasks of the first phase. `scratch` is for files that are removed with the job.

    `misnumbered` are the commit log offsets of records that an earlier pass found to have a wrong queue offset.
    """

    folder: str
    scratch: str
    queue_file_size: int
    index: bool
    rules: DispatchRules
    delays_ms: tuple[int, ...]
    further: FurtherUnits
    types: QueueTypes
    on_damage: OnDamage
    misnumbered: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class ScanOutcome:
    """Outcome of one task, a `SplitOutcome`. `read` and `fault` are of the last split that the task has read.

    `last_timestamp` is the store time (ms) of the last message, 0 without messages. `end` is the position after the
    last record, with the record as it was scanned; None without a record. `damages` are the ranges that were passed
    over, including whole records that cannot have a unit. `misnumbered` as in `UnitWriter`.
    """

    read: SplitResult
    messages: int
    log_bytes: int
    last_timestamp: int
    end: ResumePoint | None
    queues: tuple[WrittenRange, ...]
    batch_chunks: dict[QueueKey, list[UnitChunk]]
    undeclared: frozenset[str]
    chunks: tuple[KeyChunk, ...]
    ext_chunks: dict[tuple[str, int], list[ExtChunk]]
    damages: Damages
    misnumbered: frozenset[int]
    fault: CorruptRecordError | None


def scan_one(target: ScanTarget, split: Split) -> ScanOutcome:
    """Task of the first phase: read one split, write its units, and spill its keys."""
    return scan_splits(target, (split,))


def scan_splits(target: ScanTarget, splits: Sequence[Split]) -> ScanOutcome:
    """Read splits up to the log's end, write their units, and spill their keys."""
    spill_name = f"{splits[0].begin}-{uuid.uuid4().hex}"  # a task attempt that counts as lost may still run
    ext_path = os.path.join(target.scratch, EXT, spill_name)
    units = UnitWriter(
        os.path.join(target.folder, CONSUME_QUEUE), target.queue_file_size, target.types.batch, target.further,
        ext_path, on_damage=target.on_damage, misnumbered=target.misnumbered,
    )  # fmt: skip
    batch_path = os.path.join(target.scratch, BATCH_UNITS, spill_name)
    batch_units = BatchUnitSpill(batch_path, target.types, on_damage=target.on_damage)
    spill = KeySpill(os.path.join(target.scratch, KEYS, spill_name))
    level = ScanLevel.KEYS if target.index else ScanLevel.PROPERTIES
    messages = log_bytes = last_timestamp = 0
    end: ResumePoint | None = None
    damages = NO_DAMAGES
    fault: CorruptRecordError | None = None
    try:
        for split in splits:
            scan = scan_split(
                split, level=level, delays_ms=target.delays_ms, index_tags=target.rules.indexes_tags,
                on_damage=target.on_damage, max_rows=_MAX_ROWS, window_bytes=_WINDOW_BYTES,
            )  # fmt: skip
            for columns in scan:
                messages += message_count(columns)
                log_bytes += columns.record_bytes
                last_timestamp = int(columns["store_timestamp"][-1])
                end = ResumePoint(columns.next_offset, last_record_of(columns))
                batch_units.put(columns, split.file.path)
                units.put(columns, split.file.path)
                if target.index:
                    spill.put(columns)
            damages = damages.merged_with(scan.damages)
            if scan.stop is SplitStop.LOG_END:
                break
    except CorruptRecordError as error:
        fault = error
    finally:
        units.close()
        batch_units.close()
        spill.close()
    ranges, chunks = tuple(units.ranges.values()), tuple(spill.chunks)
    return ScanOutcome(
        scan.result, messages, log_bytes, last_timestamp, end, ranges, batch_units.chunks,
        frozenset(batch_units.undeclared), chunks, units.ext.chunks,
        damages.merged_with(units.damages).merged_with(batch_units.damages),
        frozenset(units.misnumbered), fault,
    )  # fmt: skip


def queues_join(outcomes: Sequence[ScanOutcome]) -> bool:
    """Whether the slots of each queue, from task to task in log order, neither repeat nor leave a gap."""
    next_offsets: dict[tuple[str, int], int] = {}
    for outcome in outcomes:
        for queue in outcome.queues:
            key = queue.topic, queue.queue_id
            if next_offsets.get(key, queue.first_offset) != queue.first_offset:
                return False
            next_offsets[key] = queue.next_offset
    return True


def merge_queues(outcomes: Iterable[ScanOutcome]) -> list[WrittenRange]:
    """Ranges of slots of each queue over all tasks. Queues are in the order of their first record."""
    merged: dict[tuple[str, int], WrittenRange] = {}
    for outcome in outcomes:
        for queue in outcome.queues:
            before = merged.setdefault((queue.topic, queue.queue_id), replace(queue, units=0))
            before.next_offset = queue.next_offset
            before.units += queue.units
    return list(merged.values())


def merge_chunks(outcomes: Iterable[Mapping[QueueKey, list[T]]]) -> dict[QueueKey, list[T]]:
    """Chunks of each queue over all tasks. Outcomes are given, and chunks returned, in log order."""
    merged: dict[QueueKey, list[T]] = {}
    for chunks in outcomes:
        for key, of_queue in chunks.items():
            merged.setdefault(key, []).extend(of_queue)
    return merged
