"""Main task of an audit: scan one split of the log, and compare derived files with its records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np

from reput.errors import CorruptRecordError
from reput.jobs.audit.ascending_runs import Int64s
from reput.jobs.audit.batch_consume_queues import BatchCheck, BatchQueueRuns
from reput.jobs.audit.compression import wrong_compressions
from reput.jobs.audit.consume_queues import VERIFIED, SlotRanges, UnitCheck, UnitTarget
from reput.jobs.audit.index_entries import KeyAudit, KeyCheck, KeyTarget
from reput.jobs.audit.property_crcs import PropertyCrcs, find_property_crcs, joined
from reput.jobs.audit.range_tables import NO_RANGES
from reput.jobs.audit.store_times import StoreTimes
from reput.jobs.record_faults import faulty_records, has_units, record_damage
from reput.kernels.records.columns import RecordColumns
from reput.kernels.records.placeholders import message_count
from reput.kernels.records.record_scan import ScanLevel
from reput.log.damages import NO_DAMAGES, Damage, Damages
from reput.log.queue_types import QueueTypes
from reput.log.scan import OnDamage, scan_split
from reput.log.splits import Split, SplitResult


@dataclass(frozen=True, slots=True)
class AuditTarget:
    """Files that records are compared with. `units` or `keys` is None if queues or index are left out.

    `database_units`: None without a database that is read.
    """

    units: UnitTarget | None
    database_units: UnitTarget | None
    batches: tuple[BatchQueueRuns, ...]
    batch_topics: frozenset[str]
    simple_topics: frozenset[str]
    keys: KeyTarget | None
    delays_ms: tuple[int, ...]

    @property
    def has_queues(self) -> bool:
        """Whether any units are compared."""
        return self.units is not None or self.database_units is not None

    def with_batch_topics(self, topics: frozenset[str]) -> AuditTarget:
        """Target whose records of some topics have units in batch queues."""
        units, database_units = (
            None if one is None else replace(one, batch_topics=topics) for one in (self.units, self.database_units)
        )
        return replace(self, batch_topics=topics, units=units, database_units=database_units)


@dataclass(frozen=True, slots=True)
class SplitAudit:
    """Outcome of one task, a `SplitOutcome`.

    Attributes:
        newest_ms: the greatest store timestamp.
        damages: damage and faulty records. Damage is passed over, so there is no `fault`.
        lost: int64[n, 2], begin and end of all of these.
        misnumbered: inner batches with two different queue offsets.
        found_units: whether there is a unit at the slot of any record, right or wrong.
        times: store times, with those that contradict their neighbours'.
        compressions: records whose flags and bodies disagree on a compression.
        undeclared: topics of inner batches that are not known to have batch queues.
    """

    read: SplitResult
    messages: int
    log_bytes: int
    newest_ms: int
    damages: Damages
    lost: Int64s
    misnumbered: Damages
    compressions: Damages
    crcs: PropertyCrcs
    found_units: bool
    undeclared: frozenset[str]
    units: SlotRanges | None
    batches: SlotRanges
    keys: KeyAudit | None
    times: StoreTimes
    database_units: SlotRanges | None = None
    fault: CorruptRecordError | None = None

    @property
    def of_queues(self) -> list[SlotRanges]:
        """Ranges of all queues that were compared."""
        kinds = (self.units, self.batches, self.database_units)
        return [ranges for ranges in kinds if ranges is not None]


def audit_split(target: AuditTarget, split: Split) -> SplitAudit:
    """Scan a split, check all CRCs, and compare queues and index with its records."""
    units = None if target.units is None else UnitCheck(target.units)
    database_units = None if target.database_units is None else UnitCheck(target.database_units)
    batches = BatchCheck(target.batches, target.batch_topics)
    keys = None if target.keys is None else KeyCheck(target.keys)
    types = QueueTypes(set(target.batch_topics), target.simple_topics)
    undeclared: set[str] = set()
    damages = misnumbered = compressions = NO_DAMAGES
    lost = [NO_RANGES]
    crcs: list[PropertyCrcs] = []
    times = StoreTimes()
    messages = log_bytes = newest_ms = 0
    level = ScanLevel.KEYS if keys else ScanLevel.PROPERTIES
    scan = scan_split(split, level=level, delays_ms=target.delays_ms, on_damage=OnDamage.SKIP)
    for columns in scan:
        messages += message_count(columns)
        log_bytes += columns.record_bytes
        times = times.followed_by(columns)
        newest_ms = max(newest_ms, int(columns["store_timestamp"].max()))
        undeclared |= types.undeclared(columns)
        faulty = [*faulty_records(split.file.path, columns), *_misplaced(split.file.path, columns)]
        found = sorted([*scan.passed, *faulty], key=attrgetter("begin"))
        damages = damages.followed_by(found)
        lost.append(_ranges(found))
        compressions = compressions.followed_by(wrong_compressions(split.file.path, columns))
        crcs.append(find_property_crcs(columns))
        if units is not None:
            units.put(columns)
            rows = batches.put(columns)
            misnumbered = misnumbered.followed_by([_misnumbered(split.file.path, columns, row) for row in rows])
        if database_units is not None:
            database_units.put(columns)
        if keys is not None:
            keys.put(columns)
    ranges, database_ranges = (None if one is None else one.close() for one in (units, database_units))
    found_units = any(one is not None and one.found_any for one in (units, database_units))
    return SplitAudit(
        scan.result, messages, log_bytes, newest_ms, damages.followed_by(scan.passed),
        np.concatenate([*lost, _ranges(scan.passed)]), misnumbered, compressions, joined(crcs), found_units,
        frozenset(undeclared), ranges, batches.close(), None if keys is None else keys.close(),
        times, database_ranges,
    )  # fmt: skip


def _ranges(damages: Sequence[Damage]) -> Int64s:
    """int64[n, 2], begin and end of each damage."""
    return np.array([(damage.begin, damage.end) for damage in damages], np.int64).reshape(-1, 2)


def _misplaced(path: str, columns: RecordColumns) -> list[Damage]:
    """Prepared or rolled back messages with a queue offset, as damage: no queue has them (`CommitLog`)."""
    rows = np.flatnonzero(~has_units(columns) & (columns["queue_offset"] != 0)).tolist()
    reason = "a prepared or rolled back message is in no queue, and its queue offset is not 0"
    return [record_damage(path, columns, row, reason) for row in rows]


def _misnumbered(path: str, columns: RecordColumns, row: int) -> Damage:
    """Inner batch with two different queue offsets, as damage."""
    return record_damage(path, columns, row, f"the record says {columns['queue_offset'][row]}, and its INNER_BASE not")


def dispatched_end(outcomes: Sequence[SplitAudit]) -> int:
    """End offset of the last record whose unit is right; -1 if no unit is right."""
    results = [ranges for outcome in outcomes for ranges in outcome.of_queues]
    return max((int(ranges.ends[ranges.states == VERIFIED].max(initial=-1)) for ranges in results), default=-1)


def lacks_units(ranges: SlotRanges, end: int) -> bool:
    """Whether a record before commit log offset `end` has no right unit."""
    return bool(((ranges.states != VERIFIED) & (ranges.offsets < end)).any())
