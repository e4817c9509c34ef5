"""Write rows of a log to Parquet files by topic and day, in log order, staged under names that readers ignore.

A task reads one split and writes a file for each topic and day of its rows. The files of a task depend on its split
alone, not on the runner.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import lru_cache
from itertools import groupby, pairwise
from typing import Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from reput.errors import CorruptRecordError, StoreFormatError
from reput.files import File, FileLayer
from reput.jobs.decoding import BodyDecoder, RawDecoder
from reput.jobs.lake.body_decoders import BodyDecoders
from reput.jobs.sampled_fields import SampledFields
from reput.kernels.record_batch import SCHEMA
from reput.log.reader import record_batches
from reput.log.scan import Damage, scan_split
from reput.log.selection import Selection
from reput.log.splits import Split, SplitResult

Kind = Literal["messages", "rejects"]

#: Name of the partition of a null in Hive, Spark and Delta.
NO_DATE = "__HIVE_DEFAULT_PARTITION__"
#: Bytes of rows that a task holds before it writes them: this bounds a file, and a worker's memory.
_CHUNK_BYTES = 96 << 20
_ROW_GROUP_BYTES = 32 << 20
#: Bytes of one write to a file: a buffer for a whole file would be new memory, which the system clears first.
_WRITE_BYTES = 1 << 20
_DAY_US = 86_400_000_000
_EPOCH = date(1970, 1, 1)
_MAX_NAME_BYTES = 255
_PLAIN = frozenset("-_.")
#: Bodies of a topic whose fields a task looks at, where its schema is to be inferred.
_SAMPLE_ROWS = 4000
#: Columns that a task needs to look at bodies.
SAMPLE_COLUMNS = ("commit_log_offset", "topic", "body")
#: Columns with few different values: for them a dictionary saves space; for other columns it only costs time.
_FEW_VALUES = ("store", "queue_id", "born_host", "store_host", "tags", "status", "reason")


@dataclass(frozen=True, slots=True)
class LakeFile:
    """Parquet file of one topic and day.

    Attributes:
        name: of the staged file.
        kind: whether the file holds messages, or rows whose bodies were rejected: they could not be decoded.
        topic: as text.
        date: ISO 8601, of the store timestamps in UTC; None where they are outside the years 1 to 9999.
        first_offset, last_offset: commit log offsets of the first and the last row.
        rows: count of rows.
        size: bytes of the file.
        table: folder of the table that the file belongs to, below the output: `messages`, `messages/orders`, `rejects`.
    """

    name: str
    kind: Kind
    topic: str
    date: str | None
    first_offset: int
    last_offset: int
    rows: int
    size: int
    table: str = "messages"

    @property
    def partition(self) -> tuple[Kind, str, str | None]:
        """Kind, topic and date of all rows of the file."""
        return self.kind, self.topic, self.date

    @property
    def path(self) -> str:
        """Final path below the output: `messages/topic=orders/date=2026-11-21/<first offset>.parquet`."""
        return os.path.join(
            self.table,
            f"topic={escaped(self.topic)}",
            f"date={self.date or NO_DATE}",
            f"{self.first_offset:020d}.parquet",
        )


@dataclass(frozen=True, slots=True)
class LakeRows:
    """Columns and decoders of the files. Picklable; the same for all tasks of a commit.

    Attributes:
        selection: the columns that are read: columns of the files, and columns for the partition and the decoder.
        columns: of the files, in order; `body` is decoded.
        decoders: of the bodies.
    """

    selection: Selection
    columns: tuple[str, ...]
    decoders: BodyDecoders

    def table(self, kind: Kind, topic: str) -> str:
        """Folder of the table of a kind and a topic: JSON bodies of each topic have fields of their own."""
        return os.path.join(kind, table_name(topic)) if kind == "messages" and self.decoders.decode == "json" else kind

    def schema(self, kind: Kind, topic: str) -> pa.Schema:
        """Schema of the files of a kind and a topic."""
        if kind == "rejects":
            columns = [name for name in self.columns if name != "body"]
            return pa.schema([*map(SCHEMA.field, columns), ("reason", pa.string()), SCHEMA.field("body")])
        decoder = self.decoders.of(topic)
        assert decoder is not None, "no row of a topic is written before its schema is known"
        fields = map(SCHEMA.field, self.columns)
        return pa.schema([field.with_type(decoder.type) if field.name == "body" else field for field in fields])


@dataclass(frozen=True, slots=True)
class Staging:
    """Folder for the files of tasks, which all tasks must see."""

    folder: str
    files: FileLayer


@dataclass(frozen=True, slots=True)
class StagedSplit:
    """Outcome of the task for one split, a `SplitOutcome`.

    Attributes:
        damages: the ranges that were passed over.
        samples: fields of the first bodies of topics whose schema is to be inferred; no row of them is written.
    """

    read: SplitResult
    fault: CorruptRecordError | None
    lake_files: tuple[LakeFile, ...]
    damages: tuple[Damage, ...]
    samples: Mapping[str, SampledFields]


def escaped(topic: str) -> str:
    """Escape a topic for a path as Hive, Spark and Delta do: `%RETRY%g` becomes `%25RETRY%25g`.

    Raises StoreFormatError for a topic that is too long for the name of a folder.
    """
    if not topic:
        return NO_DATE
    text = "".join(c if c.isalnum() or c in _PLAIN else "".join(f"%{b:02X}" for b in c.encode()) for c in topic)
    _check_length(topic, f"topic={text}")
    return text


def table_name(topic: str) -> str:
    """Name of the folder of a topic's table: `%RETRY%g` becomes `~25RETRY~25g`.

    Only characters that no URL escapes, as Delta's readers escape the path of a table more or less often; and no `.` or
    `_` at the begin, which hide a folder.

    Raises StoreFormatError for a topic that is too long for the name of a folder.
    """
    plain = [
        c.isascii() and (c.isalnum() or (c in _PLAIN and (c == "-" or number > 0))) for number, c in enumerate(topic)
    ]
    text = "".join(
        c if is_plain else "".join(f"~{b:02X}" for b in c.encode()) for c, is_plain in zip(topic, plain, strict=True)
    )
    _check_length(topic, text)
    return text or "~"


def _check_length(topic: str, name: str) -> None:
    if len(name.encode()) > _MAX_NAME_BYTES:
        raise StoreFormatError(
            f"the topic {topic!r} is too long for the name of a folder; name the topics to be exported without it"
        )


def stage_split(rows: LakeRows, staging: Staging, split: Split) -> StagedSplit:
    """Task: write one split to staged files, synced, in log order for each kind, topic and day."""
    scan = scan_split(split, level=rows.selection.level, on_damage=rows.selection.on_damage, files=staging.files)
    chunk, staged = _Chunk(rows, staging), list[LakeFile]()
    fault: CorruptRecordError | None = None
    try:
        for columns in scan:
            for batch in record_batches(rows.selection.select(columns), rows.selection):
                if chunk.bytes >= _CHUNK_BYTES and not chunk.ends_inside(batch):
                    staged += chunk.write()
                chunk.add(batch)
        staged += chunk.write()
    except CorruptRecordError as error:
        fault = error
    return StagedSplit(scan.result, fault, tuple(staged), tuple(scan.damages), chunk.samples)


def merge_files(rows: LakeRows, staging: Staging, group: Sequence[LakeFile]) -> LakeFile:
    """Task: merge small files of one kind, topic and day, in log order, to one staged file."""
    with _FileWriter(rows.schema(group[0].kind, group[0].topic), staging) as writer:
        for one in group:
            data = staging.files.read_bytes(os.path.join(staging.folder, one.name))
            writer.write(parquet.ParquetFile(pa.BufferReader(data)).read())
        name, size = writer.finish()
    merged = replace(group[0], name=name, size=size, rows=sum(one.rows for one in group))
    return replace(merged, last_offset=group[-1].last_offset)


def groups_to_merge(lake_files: Sequence[LakeFile], target_bytes: int) -> list[list[LakeFile]]:
    """Groups of files to be merged, in the order of their offsets: small adjacent files of a partition.

    A file of `target_bytes` or more is a group of its own, and so is a file without a small neighbour.
    """
    groups: list[list[LakeFile]] = []
    by_partition = sorted(lake_files, key=lambda one: (one.kind, one.topic, one.date or "", one.first_offset))
    for _, partition in groupby(by_partition, key=lambda one: one.partition):
        size = target_bytes
        for one in partition:
            if size >= target_bytes or one.size >= target_bytes:
                groups.append([])
                size = 0
            groups[-1].append(one)
            size += one.size
    return groups


class _Partition(NamedTuple):
    """Kind, topic and day of a row. The day counts from 1970-01-01; None without a store timestamp."""

    kind: Kind
    topic: str
    day: int | None


class _Chunk:
    """Rows of a task in memory, by partition, until they are written.

    Attributes:
        bytes: of the rows in memory.
        samples: fields of bodies, by topic, where the schema of a topic is to be inferred.
    """

    def __init__(self, rows: LakeRows, staging: Staging) -> None:
        self._rows, self._staging = rows, staging
        self._batches: dict[_Partition, list[pa.RecordBatch]] = {}
        self._last_offset = -1
        self.bytes = 0
        self.samples: dict[str, SampledFields] = {}
        self._full = set[str]()

    def ends_inside(self, batch: pa.RecordBatch) -> bool:
        """Whether a batch begins within the last record in memory. Files are named by their first records."""
        return bool(batch.num_rows) and batch["commit_log_offset"][0].as_py() == self._last_offset

    def add(self, batch: pa.RecordBatch) -> None:
        """Decode the bodies, and add each row to its partition."""
        decoders = self._rows.decoders
        if batch.num_rows:
            self._last_offset = batch["commit_log_offset"][-1].as_py()
        if decoders.is_same_for_all:
            self._add_decoded("", batch, decoders.of(""))
            return
        for topic, rows in _by_topic(batch, self._full):
            decoder = decoders.of(topic)
            if decoder is not None:
                self._add_decoded(topic, rows, decoder)
                continue
            sample = self.samples.setdefault(topic, SampledFields())
            sample.add(rows["body"].slice(0, _SAMPLE_ROWS - sample.bodies))
            if sample.bodies == _SAMPLE_ROWS:
                self._full.add(topic)

    def _add_decoded(self, topic: str, batch: pa.RecordBatch, decoder: BodyDecoder | None) -> None:
        """Add the rows of a topic, or of all topics if they have one decoder."""
        assert decoder is not None
        rows = self._rows
        if isinstance(decoder, RawDecoder):
            self._add_rows("messages", batch, batch.select(list(rows.columns)))
            return
        values, reasons = decoder.decode(batch["body"], batch["status"])
        decoded = pa.RecordBatch.from_arrays(
            [values if name == "body" else batch[name] for name in rows.columns], schema=rows.schema("messages", topic)
        )
        if reasons.null_count == len(reasons):
            self._add_rows("messages", batch, decoded)
            return
        good = reasons.is_null()
        bad = pc.invert(good)
        rejected = batch.filter(bad)
        schema = rows.schema("rejects", topic)
        arrays = [reasons.filter(bad) if name == "reason" else rejected[name] for name in schema.names]
        self._add_rows("messages", batch.filter(good), decoded.filter(good))
        self._add_rows("rejects", rejected, pa.RecordBatch.from_arrays(arrays, schema=schema))

    def write(self) -> list[LakeFile]:
        """Write all rows to staged files, a file for each partition."""
        staged = []
        for partition, batches in self._batches.items():
            with _FileWriter(self._rows.schema(partition.kind, partition.topic), self._staging) as writer:
                writer.write(pa.Table.from_batches(batches))
                name, size = writer.finish()
            first, last = batches[0]["commit_log_offset"][0].as_py(), batches[-1]["commit_log_offset"][-1].as_py()
            day = None if partition.day is None else (_EPOCH + timedelta(days=partition.day)).isoformat()
            count = sum(batch.num_rows for batch in batches)
            table = self._rows.table(partition.kind, partition.topic)
            staged.append(LakeFile(name, partition.kind, partition.topic, day, first, last, count, size, table))
        self._batches, self.bytes = {}, 0
        return staged

    def _add_rows(self, kind: Kind, batch: pa.RecordBatch, shown: pa.RecordBatch) -> None:
        """Add the rows of `shown` to their partitions, by topic and store timestamp of `batch`."""
        if not batch.num_rows:
            return
        self.bytes += shown.nbytes
        codes, partitions = _partitions(kind, batch)
        if len(partitions) == 1:
            self._batches.setdefault(partitions[0], []).append(shown)
            return
        order = np.argsort(codes, kind="stable")
        shown = shown.take(pa.array(order))
        borders = np.searchsorted(codes[order], np.arange(len(partitions) + 1)).tolist()
        for partition, (begin, end) in zip(partitions, pairwise(borders), strict=True):
            self._batches.setdefault(partition, []).append(shown.slice(begin, end - begin))


def _by_topic(batch: pa.RecordBatch, without: set[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Topics of a batch, but for those of a set, each with its rows, in log order."""
    topics = batch["topic"].dictionary_encode()
    names = topics.dictionary.to_pylist()
    if without.issuperset(names):
        return
    if len(names) == 1:
        yield names[0], batch
        return
    codes = np.asarray(topics.indices)
    order = np.argsort(codes, kind="stable")
    batch = batch.take(pa.array(order))
    borders = np.searchsorted(codes[order], np.arange(len(names) + 1)).tolist()
    for name, (begin, end) in zip(names, pairwise(borders), strict=True):
        if name not in without:
            yield name, batch.slice(begin, end - begin)


def _partitions(kind: Kind, batch: pa.RecordBatch) -> tuple[npt.NDArray[np.int64], list[_Partition]]:
    """Number of the partition of each row, and the partitions by number."""
    topics = batch["topic"].dictionary_encode()
    times = batch["store_timestamp"].cast(pa.int64())
    missing = np.asarray(times.is_null())
    days = np.asarray(times.fill_null(0)) // _DAY_US
    first = int(days.min())
    width = int(days.max()) - first + 2  # the last code of a topic stands for rows without a time
    codes = np.asarray(topics.indices) * np.int64(width) + np.where(missing, width - 1, days - first)
    if codes.min() == codes.max():  # the usual case
        distinct, numbers = codes[:1], np.zeros(codes.size, np.int64)
    else:
        distinct, numbers = np.unique(codes, return_inverse=True)
    names = topics.dictionary.to_pylist()
    partitions = [
        _Partition(kind, names[code // width], None if code % width == width - 1 else first + code % width)
        for code in distinct.tolist()
    ]
    return numbers, partitions


class _FileWriter:
    """Writer of one staged Parquet file; a context manager that closes the file."""

    def __init__(self, schema: pa.Schema, staging: Staging) -> None:
        # No statistics of bodies and properties: least and greatest values of them are large, and select nothing.
        leaves = [name for name in _leaves(schema) if name != "body" and not name.startswith("properties.")]
        encodings = {"commit_log_offset": "DELTA_BINARY_PACKED"}  # offsets ascend
        if _has_bytes(schema):  # lengths apart from the bytes: between bodies, they slow zstd's search for repetitions
            encodings["body"] = "DELTA_LENGTH_BYTE_ARRAY"
        offset = schema.get_field_index("commit_log_offset")
        self._name = uuid.uuid4().hex
        self._file = staging.files.open(os.path.join(staging.folder, self._name), writable=True, create=True)
        self._end = _FileEnd(self._file)
        self._stream = pa.BufferedOutputStream(pa.PythonFile(self._end, mode="w"), _WRITE_BYTES)
        self._writer = parquet.ParquetWriter(
            self._stream,
            schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=[name for name in _FEW_VALUES if name in schema.names],
            write_statistics=leaves,
            column_encoding=encodings,
            sorting_columns=[parquet.SortingColumn(offset)],
        )
        self._waiting: list[pa.Table] = []
        self._bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.is_open = False  # else Arrow would write the footer of an abandoned file when it is collected
        self._end.close()
        self._file.close()

    def write(self, table: pa.Table) -> None:
        """Add rows. Row groups have about 32 MiB."""
        self._waiting.append(table)
        self._bytes += table.nbytes
        if self._bytes >= _ROW_GROUP_BYTES:
            self._flush()

    def finish(self) -> tuple[str, int]:
        """Write the remaining rows, and sync; returns the file's name, unique to this task attempt, and its size."""
        self._flush()
        self._writer.close()
        self._stream.flush()
        self._file.sync()
        return self._name, self._end.position

    def _flush(self) -> None:
        if not self._waiting:
            return
        table = pa.concat_tables(self._waiting)
        rows = max(1, table.num_rows * _ROW_GROUP_BYTES // max(table.nbytes, 1))
        self._writer.write_table(table, row_group_size=min(rows, table.num_rows))
        self._waiting, self._bytes = [], 0


class _FileEnd:
    """File object for Arrow that appends to a file. `position` is the end of the file."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.position = 0
        self.closed = False

    def write(self, data: bytes) -> None:
        """Append bytes; do nothing after `close`."""
        if not self.closed:
            self._file.write(self.position, data)
            self.position += len(data)

    def flush(self) -> None:
        """Do nothing: no bytes are buffered."""

    def close(self) -> None:
        """Accept no more bytes."""
        self.closed = True


def _has_bytes(schema: pa.Schema) -> bool:
    """Whether the schema has bodies as bytes or text, not as structs."""
    return "body" in schema.names and not pa.types.is_struct(schema.field("body").type)


@lru_cache(maxsize=8)
def _leaves(schema: pa.Schema) -> list[str]:
    """Paths of the columns as Parquet names them: `keys.list.element`, `body.price`."""
    content = pa.BufferOutputStream()
    parquet.write_table(schema.empty_table(), content)
    columns = parquet.ParquetFile(pa.BufferReader(content.getvalue())).schema
    return [columns.column(i).path for i in range(len(columns))]
