"""Source of an import: files of Parquet, CSV or JSON lines, by file, folder or pattern, or a Delta table, in parts.

The parts of an unchanged source are the same at each start, in the same order. So the number of the last committed
batch is enough for an import to continue after a kill.
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import parquet

from reput.config.arguments import check_texts, optional
from reput.errors import ConfigError, StoreFormatError
from reput.extras import require
from reput.formats.paths import COMMIT_LOG
from reput.jobs.arguments import check_arguments
from reput.jobs.job_folder import STATE
from reput.jobs.lake.files import COMPACTED_NAME, commit_numbers
from reput.jobs.lake.text_source import read_text_file
from reput.jobs.text_rows import TEXT_KINDS, TextKind
from reput.log.object_storage import check_is_no_url

#: Bytes (before compression) of a part, and of a batch; the identity of a source depends on them.
PART_BYTES = 32 << 20
BATCH_BYTES = 256 << 20
_MAX_PARTS = 1000
_BATCH_ROWS = 32_768
#: Bytes (before compression) of rows that are decoded at once, and bytes of a column that are read at once.
_READ_BYTES = 8 << 20
_BUFFER_BYTES = 1 << 20
_HIVE = pa.schema([("topic", pa.string()), ("date", pa.string())])
#: Partition column of an export that is no column of a message; the other one, topic, is.
_NO_COLUMN = "date"


class SourcePart(Protocol):
    """Adjacent rows of one file, read by one task; picklable."""

    @property
    def path(self) -> str:
        """Of the file."""
        ...

    @property
    def first_row(self) -> int:
        """Number of the first row in the file."""
        ...

    @property
    def rows(self) -> int:
        """Count of rows."""
        ...

    @property
    def size(self) -> int:
        """Bytes of the rows before compression."""
        ...

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read the rows in order and on demand."""
        ...


@dataclass(frozen=True, slots=True)
class ParquetPart:
    """Adjacent row groups of one file.

    Attributes:
        path: of the file.
        first_row: number of the first row in the file.
        rows: count of rows.
        size: bytes of the row groups before compression.
        fragment: pyarrow's fragment.
        schema: of the whole source.
        columns: that are read.
        topic: of all rows; None: the rows have a topic.
    """

    path: str
    first_row: int
    rows: int
    size: int
    fragment: Any
    schema: pa.Schema
    columns: tuple[str, ...]
    topic: str | None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read the rows in order and on demand: a row group may be larger than the memory."""
        fragment = self.fragment
        constants = ds.get_partition_keys(fragment.partition_expression)
        if self.topic is not None:
            constants["topic"] = self.topic
        fields = [self.schema.field(name) for name in self.columns]
        if self.topic is not None:
            fields.append(pa.field("topic", pa.string()))
        names = [name for name in fragment.physical_schema.names if name in self.columns and name not in constants]
        with fragment.open() as opened:
            file = parquet.ParquetFile(opened, metadata=fragment.metadata, buffer_size=_BUFFER_BYTES, pre_buffer=False)
            groups = [group.id for group in fragment.row_groups]
            rows = max(1, min(_BATCH_ROWS, self.rows * _READ_BYTES // max(self.size, 1)))
            for batch in file.iter_batches(rows, row_groups=groups, columns=names, use_threads=False):
                columns = dict(zip(batch.schema.names, batch.columns, strict=True))
                arrays = [
                    columns[field.name].cast(field.type)
                    if field.name in columns
                    else pa.repeat(pa.scalar(constants.get(field.name), field.type), batch.num_rows)
                    for field in fields
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


@dataclass(frozen=True, slots=True)
class LakeSource:
    """Source as it is now.

    Attributes:
        path: of the file, folder, pattern or table.
        identity: differs for every other source, and for this source after a change.
        schema: of the rows of its parts.
        batches: the parts of each batch.
    """

    path: str
    identity: str
    schema: pa.Schema
    batches: tuple[tuple[SourcePart, ...], ...]

    @property
    def rows(self) -> int:
        """Count of rows of all parts."""
        return sum(part.rows for batch in self.batches for part in batch)


def open_source(
    path: str | os.PathLike[str], *, topic: str | None = None, columns: Sequence[str] | None = None
) -> LakeSource:
    """Open a source: list its files, read their footers, and cut it into parts and batches.

    Files of an export are in the order of their commits and first commit log offsets, others in the order of paths.

    Args:
        path: a file, a folder or a pattern of files of Parquet, CSV or JSON lines (`.csv`, `.jsonl`), a Delta table,
            or the output of an export.
        topic: of all messages; None: a column or the folders (`topic=...`) have it.
        columns: columns to read; None: all.

    Raises:
        StoreFormatError: nothing is there, or something else than such files.
        ConfigError: a URL; a missing column, no topic, bodies that were decoded to fields, or a line of text that is
            no message.
    """
    check_arguments(**locals())
    optional(check_texts)("columns", columns)
    check_is_no_url(path)
    root = os.path.abspath(os.path.expanduser(path))
    if _is_export(root):
        root = os.path.join(root, "messages")
    paths = _paths(root)
    kind = _text_kind(root, paths)
    if kind is None:
        return _parquet_source(root, paths, topic, columns)
    return _text_source(root, paths, kind, topic, columns)


def rejects_of(path: str | os.PathLike[str]) -> str | None:
    """Folder of what an export has rejected, which is no part of its messages; None without such rows."""
    root = os.path.abspath(os.path.expanduser(path))
    folder = os.path.join(root, "rejects")
    files = glob.iglob(os.path.join(glob.escape(folder), "**", "*.*"), recursive=True)
    has_rows = _is_export(root) and any(name.endswith((".parquet", ".csv", ".jsonl")) for name in files)
    return folder if has_rows else None


def _is_export(root: str) -> bool:
    return os.path.isdir(os.path.join(root, STATE)) and os.path.isdir(os.path.join(root, "messages"))


def _paths(root: str) -> str | list[str]:
    """The file, folder or table, or the files that fit a pattern; raises StoreFormatError if nothing is."""
    if os.path.exists(root):
        return root
    paths = sorted(name for name in glob.glob(root, recursive=True) if os.path.isfile(name))
    if not paths:
        raise StoreFormatError(f"{root}: no such file or folder, and no pattern that a file fits; check the path")
    return paths


def _text_kind(root: str, paths: str | list[str]) -> TextKind | None:
    """Kind of text that the files are by their names; None: they are Parquet, or a Delta table."""
    if os.path.isdir(os.path.join(root, "_delta_log")):
        return None
    kinds = {
        next((kind for kind in TEXT_KINDS if fragment.path.lower().endswith(f".{kind}")), None)
        for fragment in _any_files(paths).get_fragments()
    }
    if len(kinds) > 1:
        raise StoreFormatError(f"{root}: files of several kinds; give a pattern: '{root}/**/*.csv'")
    return next(iter(kinds), None)


def _any_files(paths: str | list[str]) -> Any:
    """Dataset that names files and their folders, and opens none."""
    return ds.dataset(paths, schema=_HIVE, format="csv", partitioning=ds.partitioning(_HIVE, flavor="hive"))


def _text_source(
    root: str, paths: str | list[str], kind: TextKind, topic: str | None, columns: Sequence[str] | None
) -> LakeSource:
    files = []
    for fragment in _any_files(paths).get_fragments():
        folder_topic = ds.get_partition_keys(fragment.partition_expression).get("topic")
        files.append(read_text_file(fragment.path, kind, folder_topic=folder_topic, topic=topic, columns=columns))
    numbers = commit_numbers([file.part.path for file in files])
    in_order = sorted(zip(numbers, files, strict=True), key=lambda one: (one[0], one[1].first_offset, one[1].part.path))
    files = [file for _, file in in_order]
    parts = [file.part for file in files if file.part.rows]
    digest = hashlib.blake2b(f"text {BATCH_BYTES} {columns} {topic}".encode(), digest_size=16)
    for file in files:
        digest.update(f"\n{os.path.relpath(file.part.path, root)} {file.digest}".encode("utf-8", "surrogatepass"))
    fields = {field.name: field for file in files for field in file.part.schema}  # also of those without a row
    return LakeSource(root, digest.hexdigest(), pa.schema(list(fields.values())), _batches_of(parts))


def _parquet_source(root: str, paths: str | list[str], topic: str | None, columns: Sequence[str] | None) -> LakeSource:
    dataset = _dataset(root, paths)
    found = list(_fragments(dataset, root))
    numbers = commit_numbers([fragment.path for fragment in found])
    in_order = sorted(zip(numbers, found, strict=True), key=lambda one: (one[0], *_sort_key(one[1])))
    fragments = [fragment for _, fragment in in_order]
    names = _columns(dataset, fragments or list(dataset.get_fragments()), root, topic, columns)
    digest = hashlib.blake2b(f"{PART_BYTES} {BATCH_BYTES} {names} {topic}".encode(), digest_size=16)
    parts: list[ParquetPart] = []
    for fragment in fragments:
        groups = [(group.num_rows, group.total_byte_size) for group in fragment.row_groups]
        digest.update(f"\n{os.path.relpath(fragment.path, root)} {groups}".encode("utf-8", "surrogatepass"))
        parts += _parts(fragment, dataset.schema, names, topic)
    schema = pa.schema([dataset.schema.field(name) for name in names])
    if topic is not None:
        schema = schema.append(pa.field("topic", pa.string()))
    return LakeSource(root, digest.hexdigest(), schema, _batches_of(parts))


def _batches_of(parts: Iterable[SourcePart]) -> tuple[tuple[SourcePart, ...], ...]:
    """Cut parts into batches."""
    batches: list[list[SourcePart]] = []
    size = BATCH_BYTES
    for part in parts:
        if size >= BATCH_BYTES or len(batches[-1]) >= _MAX_PARTS:
            batches.append([])
            size = 0
        batches[-1].append(part)
        size += part.size
    return tuple(map(tuple, batches))


def _dataset(root: str, paths: str | list[str]) -> Any:
    partitioning = ds.partitioning(_HIVE, flavor="hive")
    try:
        if os.path.isdir(os.path.join(root, "_delta_log")):
            return _delta_table(root).to_pyarrow_dataset()
        dataset = ds.dataset(paths, format="parquet", partitioning=partitioning)
        if not dataset.files:
            raise StoreFormatError(f"{root}: a folder without any file to import; check the path")
        if compacted := [path for path in dataset.files if COMPACTED_NAME.fullmatch(os.path.basename(path))]:
            raise StoreFormatError(
                f"{compacted[0]}: it was put together of others that may be there, too, and the folder may have rows "
                "twice; export again, without --compact"
            )
        return dataset
    except (pa.ArrowException, OSError) as error:
        if os.path.isdir(os.path.join(root, COMMIT_LOG)):
            raise StoreFormatError(f"{root}: a store; `reput replay` puts its messages into another one") from None
        reason = str(error).splitlines()[0]
        raise StoreFormatError(
            f"{root}: cannot be read as Parquet; names of files of text must end in .csv or .jsonl: {reason}"
        ) from error


def _delta_table(root: str) -> Any:
    require("deltalake", f"{root}: a Delta table")
    from deltalake import DeltaTable

    return DeltaTable(root)


def _columns(
    dataset: Any, fragments: Sequence[Any], root: str, topic: str | None, columns: Sequence[str] | None
) -> tuple[str, ...]:
    """Columns that are read of the files; raises ConfigError if no message can be made of them."""
    given = {name for one in fragments for name in ds.get_partition_keys(one.partition_expression)}
    given.update(name for one in fragments for name in one.physical_schema.names)
    there = [name for name in dataset.schema.names if name in given and name != _NO_COLUMN]
    for name in columns or ():
        if name not in there:
            raise ConfigError(f"columns: {root} has no column {name!r}; it has {', '.join(there)}")
    wanted = [name for name in (columns or there) if topic is None or name != "topic"]
    if topic is None and "topic" not in wanted:
        raise ConfigError(
            f"topic: {root} has no column topic, nor folders topic=...; say to which the messages go"
            f"; it has {', '.join(there)}"
        )
    if "body" in wanted and pa.types.is_struct(dataset.schema.field("body").type):
        raise ConfigError(
            f"{root}: its bodies were decoded to fields, and their bytes cannot be made again; import an export that "
            "was made with decode raw or utf8"
        )
    return tuple(wanted)


def _fragments(dataset: Any, root: str) -> Iterable[Any]:
    """Fragments with rows. The footer of each file is read."""
    for fragment in dataset.get_fragments():
        try:
            if fragment.count_rows():
                yield fragment
        except (pa.ArrowException, OSError) as error:
            raise StoreFormatError(
                f"{os.path.join(root, fragment.path)}: no Parquet file: {str(error).splitlines()[0]}; move it away"
            ) from error


def _sort_key(fragment: Any) -> tuple[int, str]:
    """First commit log offset (-1 without) and path of a file."""
    offset = (fragment.row_groups[0].statistics or {}).get("commit_log_offset")
    return (offset["min"] if offset and "min" in offset else -1), fragment.path


def _parts(fragment: Any, schema: pa.Schema, columns: tuple[str, ...], topic: str | None) -> Iterator[ParquetPart]:
    ids: list[int] = []
    first = rows = size = 0
    for group in fragment.row_groups:
        ids.append(group.id)
        rows += group.num_rows
        size += group.total_byte_size
        if size >= PART_BYTES or group.id == fragment.row_groups[-1].id:
            taken = fragment.subset(row_group_ids=ids)
            yield ParquetPart(fragment.path, first, rows, size, taken, schema, columns, topic)
            first, ids, rows, size = first + rows, [], 0, 0
