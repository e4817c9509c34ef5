"""Plan of a batch that tasks dispatch: whole splits of the log after the last mark.

Only a batch of some size is worth tasks. Its end is the begin of a log file, if there is one, which needs no scan, or
else the end of the log, which needs a scan of the last records.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass

from reput.config.message_store import MessageStoreConfig
from reput.jobs.log_bounds import bounded_splits
from reput.jobs.rebuild.scan_task import ScanTarget
from reput.jobs.rebuild.unit_writer import FurtherUnits
from reput.log.queue_types import QueueTypes
from reput.log.resume_points import ResumePoint
from reput.log.scan import OnDamage
from reput.log.splits import Split
from reput.log.tail import PROBE_BYTES, LogTail

#: Log bytes: fewer are dispatched by one process before tasks have begun.
LEAST_BYTES = 64 << 20
#: Log bytes of a batch, at the most, but for a log file that is larger. A batch that a kill interrupts is done again.
MOST_BYTES = 2 << 30
#: Log bytes of a task.
SPLIT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """Plan of a batch.

    Attributes:
        begin: point of its first record, where the last mark is.
        end: commit log offset after its last record.
        splits: together [begin, end).
        scratch: folder for what tasks build; removed with the batch.
        target: what `scan_one` builds there.
    """

    begin: ResumePoint
    end: int
    splits: tuple[Split, ...]
    scratch: str
    target: ScanTarget


def plan_batch(
    tail: LogTail, begin: ResumePoint, config: MessageStoreConfig, types: QueueTypes, work: str
) -> BatchPlan | None:
    """Plan the batch that begins at a mark; None if `LEAST_BYTES` do not follow, or nothing was dispatched yet.

    Nothing is written. The first mark of a log is near its begin, as it tells this log from others.

    Args:
        tail: of the log; its errors are raised.
        begin: the mark's point.
        config: what is dispatched.
        types: queue types of topics.
        work: folder of the dispatcher for what is removed again.
    """
    directory = tail.directory
    border = tail.file_border(begin.offset, MOST_BYTES) or begin.offset
    is_large = border - begin.offset >= LEAST_BYTES or tail.is_written(begin.offset + LEAST_BYTES, PROBE_BYTES)
    if begin.last is None or not is_large:
        return None
    end = border
    if border - begin.offset < LEAST_BYTES:
        end = tail.advance(ResumePoint(tail.near_end(begin.offset, SPLIT_BYTES))).offset
    if end - begin.offset < LEAST_BYTES:  # other bytes than records, or an end in a file before
        return None
    files = [file for file in directory.log_files() if begin.offset < file.end_offset and file.start_offset < end]
    splits = [split for split in bounded_splits(files, SPLIT_BYTES, end) if split.end > begin.offset]
    splits[0] = Split(splits[0].file, begin.offset, splits[0].end, is_record_start=True)
    scratch = os.path.join(work, f"{begin.offset}-{uuid.uuid4().hex}")
    return BatchPlan(begin, end, tuple(splits), scratch, _target(config, types, scratch))


def _target(config: MessageStoreConfig, types: QueueTypes, scratch: str) -> ScanTarget:
    rules = config.dispatch_rules
    further = FurtherUnits(
        config.mapped_file_size_consume_queue_ext if config.enable_consume_queue_ext else None,
        None,
        multi_dispatch=config.enable_multi_dispatch,
        enable_lmq=config.enable_lmq,
        any_topic=rules.multi_dispatches_any_topic,
    )
    return ScanTarget(
        os.path.join(scratch, "built"), scratch, config.mapped_file_size_consume_queue, config.message_index_enable,
        rules, config.delay_levels_ms, further, types, OnDamage.RAISE,
    )  # fmt: skip
