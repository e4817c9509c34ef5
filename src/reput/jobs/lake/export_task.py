"""Tasks of an export: write one split of the log to staged files by topic and day; merge small ones, or make them text.

The files of a task depend on its split alone, not on the runner.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from reput.errors import CorruptRecordError
from reput.jobs.lake.files import LakeFile, Partition, by_partition, by_topic
from reput.jobs.lake.rows import LakeRows
from reput.jobs.lake.staging import StagedFileWriter, StagedTextWriter, Staging
from reput.jobs.lake.topic_schemas import TopicSamples
from reput.jobs.text_rows import TextKind
from reput.log.damages import Damages, joined
from reput.log.plans.plan_parts import Part, part_range
from reput.log.point_reads import Points
from reput.log.reads.batches import read_points, record_batches
from reput.log.scan import SplitScan, scan_split
from reput.log.splits import Split, SplitResult, SplitStop

#: Bytes of rows that a task holds before it writes them: this bounds a file, and a worker's memory.
_CHUNK_BYTES = 96 << 20
#: Columns that a task needs to look at bodies.
SAMPLE_COLUMNS = ("commit_log_offset", "topic", "body")


@dataclass(frozen=True, slots=True)
class StagedSplit:
    """Outcome of the task for one split, a `SplitOutcome`.

    Attributes:
        damages: the ranges that were passed over.
        samples: of topics whose schemas are to be inferred; no row of them is written.
    """

    read: SplitResult
    fault: CorruptRecordError | None
    lake_files: tuple[LakeFile, ...]
    damages: Damages
    samples: TopicSamples


def stage_split(rows: LakeRows, staging: Staging, split: Split) -> StagedSplit:
    """Task: write one split to staged files, synced, in log order for each kind, topic and day."""
    scans: list[SplitScan] = []
    fault, lake_files, samples = _stage(rows, staging, [split], scans)
    return StagedSplit(scans[0].result, fault, lake_files, scans[0].damages, samples)


def stage_parts(rows: LakeRows, staging: Staging, parts: Sequence[Part]) -> StagedSplit:
    """Task: write the wanted records of parts that lie behind one another, as `stage_split`."""
    scans: list[SplitScan] = []
    fault, lake_files, samples = _stage(rows, staging, parts, scans)
    begin, end = part_range(parts[0])[0], part_range(parts[-1])[1]
    cut = [scan.result for scan in scans if scan.result.stop is SplitStop.LOG_END]
    read = SplitResult(Split(parts[0].file, begin, end, True), begin, end, SplitStop.SPLIT_END)
    return StagedSplit(cut[0] if cut else read, fault, lake_files, joined(scan.damages for scan in scans), samples)


def _stage(
    rows: LakeRows, staging: Staging, parts: Sequence[Part], scans: list[SplitScan]
) -> tuple[CorruptRecordError | None, tuple[LakeFile, ...], TopicSamples]:
    """Write parts; adds their scans to `scans`. Returns the damage that ended it, the files, and samples of bodies."""
    chunk, staged = _Chunk(rows, staging), list[LakeFile]()
    fault: CorruptRecordError | None = None
    try:
        for part in parts:
            for batch in _batches(rows, staging, part, scans):
                if chunk.bytes >= _CHUNK_BYTES and not chunk.ends_inside(batch):
                    staged += chunk.write()
                chunk.add(batch)
        staged += chunk.write()
    except CorruptRecordError as error:
        fault = error
    return fault, tuple(staged), chunk.samples


def _batches(rows: LakeRows, staging: Staging, part: Part, scans: list[SplitScan]) -> Iterator[pa.RecordBatch]:
    """The wanted rows of a part; adds the scan of a split to `scans`."""
    selection = rows.selection
    if isinstance(part, Points):
        yield from read_points(part, selection, files=staging.files)
        return
    scan = scan_split(part, level=selection.level, on_damage=selection.on_damage, files=staging.files)
    scans.append(scan)
    for columns in scan:
        yield from record_batches(selection.select(columns), selection)


def finish_files(rows: LakeRows, staging: Staging, text: TextKind | None, group: Sequence[LakeFile]) -> LakeFile:
    """Task: make one file of small files of one kind, topic and day, in log order: of Parquet, or as text."""
    schema = rows.file_schema(group[0].kind, group[0].topic)
    with StagedFileWriter(schema, staging) if text is None else StagedTextWriter(text, schema, staging) as writer:
        for one in group:
            writer.write(staging.open(one.name).read())
        name, size = writer.finish()
    staging.sync([name])
    finished = replace(group[0], name=name, size=size, rows=sum(one.rows for one in group), ending=writer.ending)
    return replace(finished, last_offset=group[-1].last_offset)


class _Chunk:
    """Rows of a task in memory, by partition, until they are written.

    Attributes:
        bytes: of the rows in memory.
        samples: of topics whose schemas are to be inferred.
    """

    def __init__(self, rows: LakeRows, staging: Staging) -> None:
        self._rows, self._staging = rows, staging
        self._batches: dict[Partition, list[pa.RecordBatch]] = {}
        self._last_offset = -1
        self.bytes = 0
        self.samples = TopicSamples()

    def ends_inside(self, batch: pa.RecordBatch) -> bool:
        """Whether a batch begins within the last record in memory. Files are named by their first records."""
        return bool(batch.num_rows) and batch["commit_log_offset"][0].as_py() == self._last_offset

    def add(self, batch: pa.RecordBatch) -> None:
        """Decode the bodies, and add each row to its partition; of topics without a schema, look at the bodies."""
        decoders = self._rows.decoders
        if batch.num_rows:
            self._last_offset = batch["commit_log_offset"][-1].as_py()
        if decoders.is_same_for_all:
            self._add_decoded("", batch)
            return
        for topic, rows in by_topic(batch, without=self.samples.full):
            if decoders.of(topic) is not None:
                self._add_decoded(topic, rows)
            else:
                self.samples.add(topic, rows["body"])

    def _add_decoded(self, topic: str, batch: pa.RecordBatch) -> None:
        for kind, rows, shown in self._rows.decode(topic, batch):
            self.bytes += shown.nbytes
            for partition, some in by_partition(kind, rows, shown):
                self._batches.setdefault(partition, []).append(some)

    def write(self) -> list[LakeFile]:
        """Write all rows to staged files, a file for each partition, and sync these."""
        staged = []
        for partition, batches in self._batches.items():
            kind, topic, _ = partition
            with StagedFileWriter(self._rows.file_schema(kind, topic), self._staging) as writer:
                writer.write(pa.Table.from_batches(batches))
                name, size = writer.finish()
            first, last = batches[0]["commit_log_offset"][0].as_py(), batches[-1]["commit_log_offset"][-1].as_py()
            count = sum(batch.num_rows for batch in batches)
            table = self._rows.table(kind, topic)
            staged.append(LakeFile(name, kind, topic, partition.date, first, last, count, size, table))
        self._staging.sync([one.name for one in staged])
        self._batches, self.bytes = {}, 0
        return staged
