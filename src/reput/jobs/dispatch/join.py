"""Join the outcomes of a batch's tasks: proof that each record has its unit right after the one before it.

Anything else is for one process that reads the batch in its order: repeats and gaps in queue offsets, damage, batches
of messages in one record. That way is the rule, and this one is its shortcut for logs as brokers write them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reput.jobs.dispatch.plan import BatchPlan
from reput.jobs.rebuild.ext_builder import ExtChunk
from reput.jobs.rebuild.scan_task import ScanOutcome, merge_chunks, merge_queues, queues_join
from reput.jobs.rebuild.unit_writer import WrittenRange
from reput.log.queue_end import QueueEnd
from reput.log.splits import check_stitches


@dataclass(frozen=True, slots=True)
class QueueUnits:
    """Units of one queue that a batch has.

    Attributes:
        written: their slots, in the files that the scan has built.
        last_file: first byte of the queue's last file; -1 without files.
        ext_end: offset after the queue's last ext unit.
        ext_chunks: ext units of these units, in log order.
    """

    written: WrittenRange
    last_file: int
    ext_end: int
    ext_chunks: tuple[ExtChunk, ...]


def join_batch(
    plan: BatchPlan, outcomes: Sequence[ScanOutcome], end_of: Callable[[str, int], QueueEnd | None]
) -> list[QueueUnits] | None:
    """The units of each queue, if they follow the queue's units without a gap or a repeat; None if any does not.

    Args:
        plan: of the batch.
        outcomes: of its splits, in log order.
        end_of: end of the queue of a topic and a queue id; None without such a queue.
    """
    ends = [outcome.read.end_offset for outcome in outcomes if outcome.read.end_offset is not None]
    if check_stitches([outcome.read for outcome in outcomes]) or ends[-1:] != [plan.end] or not _are_plain(outcomes):
        return None
    ext_chunks = merge_chunks(outcome.ext_chunks for outcome in outcomes)
    units = []
    for written in merge_queues(outcomes):
        end = end_of(written.topic, written.queue_id)
        if written.units != written.next_offset - written.first_offset or not _goes_on(written, end):
            return None
        last_file, ext_end = (-1, 0) if end is None else (end.last_file, end.ext_end)
        chunks = ext_chunks.get((written.topic, written.queue_id), ())
        units.append(QueueUnits(written, last_file, ext_end, tuple(chunks)))
    return units


def _are_plain(outcomes: Sequence[ScanOutcome]) -> bool:
    """Whether no task has met anything that the order of the whole log decides."""
    odd = any(
        outcome.fault or outcome.damages or outcome.misnumbered or outcome.undeclared or outcome.batch_chunks
        for outcome in outcomes
    )
    return not odd and queues_join(outcomes)


def _goes_on(written: WrittenRange, end: QueueEnd | None) -> bool:
    """Whether units are the next ones of their queue; two that follow each other tell where a new queue begins."""
    if end is not None and (end.last_file >= 0 or end.max_offset):
        return end.is_judged and written.first_offset == end.max_offset
    return written.first_offset == 0 or written.units > 1
