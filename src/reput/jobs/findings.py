"""Findings of `audit`: a difference, its file, its class and what to do. The codes are stable names."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import pyarrow as pa


class FindingClass(StrEnum):
    """Severity of a finding, worst first."""

    #: Bytes were stored and cannot be read any more.
    LOST = "lost"
    #: A message is in the log, but a consumer, a query or a start does not reach it.
    HIDDEN = "hidden"
    #: What a kill, a recovery or a retention leaves by RocketMQ's own rules; no reader gets anything wrong.
    HARMLESS = "harmless"


@dataclass(frozen=True, slots=True)
class Commands:
    """Commands that the advice of findings names, for one store (`reput.jobs.audit.repair_commands`).

    Attributes:
        repair: mends what a repair mends. It is the command of a salvage if the log cannot be mended in place.
        salvage: makes a new store of all whole records.
    """

    repair: str = "reput repair STORE --apply"
    salvage: str = "reput repair STORE --salvage NEW_STORE --apply"


class FindingKind(NamedTuple):
    """Class, meaning and advice of a finding's code. `advice` has places for `Commands`: {repair}, {salvage}."""

    finding_class: FindingClass
    meaning: str
    advice: str

    def advice_with(self, commands: Commands) -> str:
        """The advice, with the commands for a store."""
        return self.advice.format(repair=f"`{commands.repair}`", salvage=f"`{commands.salvage}`")


#: Commands for a store without a name.
COMMANDS = Commands()

_LOST, _HIDDEN, _HARMLESS = FindingClass
_SALVAGE = "restore the log file from a copy, or take what is whole with {salvage}"
_REBUILD = "build queues and index again with {repair}"
#: If a record contradicts what was derived from it, either may be wrong: a body CRC does not cover its properties.
_COMPARE = (
    "the record may be wrong, too, as no CRC covers its properties: compare the store with a copy or a restored backup "
    "by reput diff first; then build queues and index again, as the log has it, with {repair}"
)

#: Kinds of findings by code; docs/jobs/audit.md shows the same table.
KINDS: dict[str, FindingKind] = {
    "log-file-missing": FindingKind(_LOST, "a log file between two others is missing", _SALVAGE),
    "log-missing": FindingKind(
        _LOST,
        "no log file is there, but queues or a checkpoint are",
        "mount the disk of the log, give its folder as --commit-log-path, or restore a backup",
    ),
    "record-damaged": FindingKind(
        _LOST,
        "bytes of the log that no record proves",
        "restore the log file from a copy, or go on with what is whole with {repair}",
    ),
    "log-begins-late": FindingKind(
        _LOST,
        "the log begins after messages that are younger than fileReservedTime: the files before it are gone",
        "restore the log files from a copy, or let queues and index begin where the log does with {repair}; none, if "
        "retention deleted them on a full disk, or by a shorter time: give --set fileReservedTime=HOURS",
    ),
    "log-ends-early": FindingKind(
        _LOST,
        "the store was closed, and its log ends before the end that the clean exit recorded, or that queues lead to",
        "look for the end of the log in a copy or on a replica, or go on without it with {repair}",
    ),
    "checkpoint-ahead": FindingKind(
        _LOST,
        "the checkpoint says that later records were on the disk than the log has",
        "look for the end of the log in a copy or on a replica, or go on without it with {repair}",
    ),
    "config-damaged": FindingKind(
        _LOST,
        "a JSON file below config/ cannot be read, nor its backup",
        "correct it, put back a copy, or go on without it with {repair}",
    ),
    "checkpoint-wrong": FindingKind(
        _HIDDEN,
        "the checkpoint speaks of later units or index entries than the log has records: a start may read too little",
        "let the next start read the whole log with {repair}",
    ),
    "file-size": FindingKind(
        _HIDDEN,
        "a file has another size than the files beside it: RocketMQ does not start",
        "restore it from a copy, or mend the store with {repair}",
    ),
    "foreign-file": FindingKind(
        _HIDDEN,
        "a name that RocketMQ does not know: it does not start, or ignores the file",
        "move it away with {repair}, which leaves a file with records of its own",
    ),
    "property-crc-missing": FindingKind(
        _HIDDEN,
        "a record without a property CRC between records that have one: its bytes outside the body may be wrong",
        "restore the log file from a copy; none, if the broker ran without enabledAppendPropCRC for a while",
    ),
    "config-changed": FindingKind(
        _HIDDEN,
        "topics.json has other settings than reput recorded for its dataVersion: changed by hand, or by the disk",
        "put back what was recorded with {repair}; to keep what is there, raise counter in its dataVersion",
    ),
    "consumer-offset-ahead": FindingKind(
        _HIDDEN,
        "a group's offset is after the end of its queue: the group misses as many of the next messages",
        "lower the offset with {repair}, or let the broker reset it",
    ),
    "queue-offset-lost": FindingKind(
        _HIDDEN,
        "no unit of an emptied queue has its next offset, which reput or a group has recorded: offsets would be used "
        "twice",
        "put it back with {repair}; so does a start of a reput store",
    ),
    "queue-file-missing": FindingKind(_HIDDEN, "a queue file between two others is missing", _REBUILD),
    "queue-type": FindingKind(
        _HIDDEN, "a topic has queues of another kind than topics.json says: RocketMQ does not start", _REBUILD
    ),
    "queue-offset-repeated": FindingKind(
        _HIDDEN,
        "a record with the queue offset of an earlier record, which wins: consumers never get this record",
        "put the message again, if it is wanted",
    ),
    "queue-offset-wrong": FindingKind(
        _HIDDEN,
        "a record with another queue offset than its unit and the records around it say, or than its INNER_BASE",
        "restore the log file from a copy; none, for consumers",
    ),
    "store-time-wrong": FindingKind(
        _HIDDEN,
        "a record with an earlier or later store time than the records around it: a wrong bit, or the clock was set "
        "back; what asks by time misses it",
        "restore the log file from a copy; none, if the clock was set back, and for consumers",
    ),
    "compression-wrong": FindingKind(
        _HIDDEN,
        "a record whose flags name a compression that its body does not have, or none for one that it has: consumers "
        "cannot read the body",
        "restore the log file from a copy; none, for consumers",
    ),
    "unit-missing": FindingKind(_HIDDEN, "a record has no unit in its queue: consumers do not get it", _REBUILD),
    "unit-wrong": FindingKind(_HIDDEN, "a unit differs from the record of its queue offset", _COMPARE),
    "ext-unit-wrong": FindingKind(_HIDDEN, "a unit leads to an ext unit that is not its record's", _REBUILD),
    "index-entry-missing": FindingKind(
        _HIDDEN, "a key of a record has no index entry: queries do not find it", _COMPARE
    ),
    "index-entry-wrong": FindingKind(_HIDDEN, "an index entry leads to no record that has its key", _COMPARE),
    "index-chain-broken": FindingKind(
        _HIDDEN, "a slot or an entry does not lead to the newest entry before it", _REBUILD
    ),
    "index-header-wrong": FindingKind(_HIDDEN, "the header of an index file is not what its entries make", _REBUILD),
    "index-order": FindingKind(
        _HIDDEN,
        "index files whose names have another order than their entries: queries in RocketMQ miss messages",
        _REBUILD,
    ),
    "index-geometry": FindingKind(
        _HIDDEN,
        "the index files do not have their count of slots, so they were not compared",
        "give --set maxHashSlotNum=... and --set maxIndexNum=...",
    ),
    "torn-tail": FindingKind(
        _HARMLESS,
        "bytes after the log's end that no record proves, of a store that was not closed",
        "none: a start cuts them",
    ),
    "not-dispatched": FindingKind(
        _HARMLESS,
        "the log's last records have no units or entries yet",
        "none: a start, the running store, or `reput dispatch` dispatches them",
    ),
    "unit-behind-end": FindingKind(
        _HARMLESS,
        "units of messages that the log lost: a recovery cut them off, or a power cut took them before a flush",
        "none: they are written over; a replica or a backup may have the messages",
    ),
    "unit-expired": FindingKind(
        _HARMLESS, "units of records that retention has deleted", "none: they go with their file"
    ),
    "index-entry-repeated": FindingKind(
        _HARMLESS, "a record was indexed twice, by a dispatch after a crash", "none: queries show it once or twice"
    ),
    "index-entry-behind-end": FindingKind(
        _HARMLESS, "index entries of messages that the log lost, as `unit-behind-end`", "none: they lead nowhere"
    ),
    "index-entry-expired": FindingKind(
        _HARMLESS, "index entries of records that retention has deleted", "none: they go with their file"
    ),
    "consumer-offset-unused": FindingKind(
        _HARMLESS,
        "a group's offset of a queue that has never had a message",
        "none, if the topic was deleted; else lower it before the first message: the group would miss as many",
    ),
    "config-backup": FindingKind(
        _HARMLESS, "a JSON file below config/ cannot be read, but its backup can", "none: the backup is read"
    ),
    "checkpoint-short": FindingKind(
        _HARMLESS,
        "the checkpoint is missing or short: a start after a kill reads more",
        "none: the next flush writes it",
    ),
    "foreign-part": FindingKind(_HARMLESS, "a part of the store that reput does not read", "see the text"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding, or `count` adjacent ones of the same kind.

    Attributes:
        code: a key of `KINDS`.
        path: the file.
        text: what was expected and what was found.
        position: of the first byte in the file; None for a finding about the whole file.
        commit_log_offset: of the (first) record, if the finding is about records.
        topic, queue_id, queue_offset: of the (first) message.
        count: of units, entries, records or bytes, as the code says.
    """

    code: str
    path: str
    text: str
    position: int | None = None
    commit_log_offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    count: int = 1

    @property
    def kind(self) -> FindingKind:
        """Class, meaning and advice of this finding's code."""
        return KINDS[self.code]

    def __str__(self) -> str:
        where = self.path if self.position is None else f"{self.path} at {self.position}"
        return f"{self.code} ({self.kind.finding_class}): {where}: {self.text}"


#: Findings about names and sizes, of the log or of derived files.
FILE_CODES = frozenset({"file-size", "foreign-file"})
#: Findings about the log itself.
LOG_CODES = frozenset({"record-damaged", "torn-tail", "log-file-missing", "log-missing"})


def is_of_log(finding: Finding, folders: Sequence[str]) -> bool:
    """Whether a finding is about the log, whose folders are given, and not about derived files."""
    in_log = os.path.dirname(finding.path) in folders
    return finding.code in LOG_CODES or (finding.code in FILE_CODES and in_log)


#: Findings of one code that are kept, with their texts: a damaged store has millions. All are counted.
MOST_OF_A_CODE = 1000
#: Findings that are as many as files and settings, at most: a repair needs each of them.
_ALL_KEPT = FILE_CODES | {
    "log-file-missing", "config-damaged", "config-backup", "config-changed", "consumer-offset-ahead",
}  # fmt: skip


@dataclass(init=False)
class Findings:
    """Findings of a task, or of a whole audit: all are counted, the first `MOST_OF_A_CODE` of each code are kept.

    Attributes:
        kept: the findings.
        counts: how many there are, by code.
        sizes: sums of their `count`, by code.
    """

    kept: list[Finding]
    counts: Counter[str]
    sizes: Counter[str]

    def __init__(self, findings: Iterable[Finding] = ()) -> None:
        self.kept, self.counts, self.sizes = [], Counter(), Counter()
        self.add(findings)

    def add(self, findings: Iterable[Finding]) -> None:
        """Add findings."""
        for finding in findings:
            self.add_many(finding.code, 1, finding.count, [finding].__getitem__)

    def add_many(self, code: str, count: int, size: int, finding: Callable[[int], Finding]) -> None:
        """Add `count` findings of a code, of `size` units or records in all; those that are kept are made by number."""
        room = count if code in _ALL_KEPT else max(MOST_OF_A_CODE - self.counts[code], 0)
        self.kept += map(finding, range(min(count, room)))
        if count:
            self.counts[code] += count
            self.sizes[code] += size

    def merge(self, others: Findings) -> None:
        """Add the findings of another task."""
        counts, sizes = self.counts + others.counts, self.sizes + others.sizes
        self.add(others.kept)
        self.counts, self.sizes = counts, sizes

    def without(self, codes: Sequence[str]) -> Findings:
        """The findings of other codes."""
        rest = Findings(finding for finding in self.kept if finding.code not in codes)
        for code in self.counts:
            if code not in codes:
                rest.counts[code], rest.sizes[code] = self.counts[code], self.sizes[code]
        return rest


SCHEMA = pa.schema(
    [
        pa.field("code", pa.string(), nullable=False),
        pa.field("class", pa.string(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        ("position", pa.int64()),
        ("commit_log_offset", pa.int64()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        pa.field("count", pa.int64(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("meaning", pa.string(), nullable=False),
        pa.field("advice", pa.string(), nullable=False),
    ]
)


def sorted_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Findings without duplicates, the worst first, missing log files before all, then by file and position."""
    classes = list(FindingClass)
    return sorted(
        set(findings),
        key=lambda finding: (
            classes.index(finding.kind.finding_class),
            finding.code != "log-file-missing",
            finding.path,
            finding.position or 0,
            finding.text,
        ),
    )


def findings_table(findings: Iterable[Finding], commands: Commands = COMMANDS) -> pa.Table:
    """Findings as a table with `SCHEMA`, one row a finding, whose advice names these commands."""
    rows = []
    for finding in findings:
        row = {name: getattr(finding, name, None) for name in SCHEMA.names}
        kind = finding.kind
        rows.append(row | {"class": kind.finding_class.value, "meaning": kind.meaning})
        rows[-1]["advice"] = kind.advice_with(commands)
    return pa.Table.from_pylist(rows, SCHEMA)
