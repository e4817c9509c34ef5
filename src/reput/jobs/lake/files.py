"""Files of an export: each has rows of one kind, topic and day, in log order; its name tells first row and commit."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import groupby, pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reput.errors import StoreFormatError

Kind = Literal["messages", "rejects"]

#: Name of the partition of a null in Hive, Spark and Delta.
NO_DATE = "__HIVE_DEFAULT_PARTITION__"
#: Name of a file of an export: offset of its first row, and number of its commit, which versions up to 0.2 leave out.
EXPORTED_NAME = re.compile(r"(\d{20})(?:-(\d{6,19}))?\.(?:parquet|csv|jsonl)")
#: Name of an Iceberg table's file that was put together of others: the offsets of the first rows of the first and the
#: last one, and the number of the table's last commit by then.
COMPACTED_NAME = re.compile(r"(\d{20})-(\d{20})(?:-\d{6,19})?\.parquet")
_DAY_US = 86_400_000_000
_EPOCH = date(1970, 1, 1)
_MAX_NAME_BYTES = 255
_PLAIN = frozenset("-_.")


@dataclass(frozen=True, slots=True)
class LakeFile:
    """File of one topic and day.

    Attributes:
        name: of the staged file.
        kind: whether the file holds messages, or rows whose bodies were rejected: they could not be decoded.
        topic: as text.
        date: ISO 8601, of the store timestamps in UTC; None if they are outside the years 1 to 9999.
        first_offset, last_offset: commit log offsets of the first and the last row.
        rows: count of rows.
        size: bytes of the file.
        table: folder of the table that the file belongs to, below the output: `messages`, `messages/orders`, `rejects`.
        ending: of its name: `.parquet`, `.csv`, `.jsonl`.
        commit: number of its commit; None before the commit, and if a version up to 0.2 has decided it.
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
    ending: str = ".parquet"
    commit: int | None = None

    @property
    def partition(self) -> tuple[Kind, str, str | None]:
        """Kind, topic and date of all rows of the file."""
        return self.kind, self.topic, self.date

    @property
    def path(self) -> str:
        """Path below the output: `messages/topic=orders/date=2026-11-21/<first offset>-<commit>.parquet`.

        The offset alone may be that of another file, too, as an export goes on with another log.
        """
        commit = "" if self.commit is None else f"-{self.commit:06d}"
        name = f"{self.first_offset:020d}{commit}{self.ending}"
        return os.path.join(self.table, f"topic={escaped(self.topic)}", f"date={self.date or NO_DATE}", name)


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


def groups_to_merge(lake_files: Sequence[LakeFile], target_bytes: int) -> list[list[LakeFile]]:
    """Groups of files to be merged, in the order of their offsets: small adjacent files of a partition.

    A file of `target_bytes` or more is a group of its own, and so is a file without a small neighbour.
    """
    groups: list[list[LakeFile]] = []
    in_order = sorted(lake_files, key=lambda one: (one.kind, one.topic, one.date or "", one.first_offset))
    for _, partition in groupby(in_order, key=lambda one: one.partition):
        size = target_bytes
        for one in partition:
            if size >= target_bytes or one.size >= target_bytes:
                groups.append([])
                size = 0
            groups[-1].append(one)
            size += one.size
    return groups


class Partition(NamedTuple):
    """Kind, topic and day of a row. The day counts from 1970-01-01; None without a store timestamp."""

    kind: Kind
    topic: str
    day: int | None

    @property
    def date(self) -> str | None:
        """The day in ISO 8601."""
        return None if self.day is None else (_EPOCH + timedelta(days=self.day)).isoformat()


def by_topic(batch: pa.RecordBatch, without: set[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Topics of a batch, but for the topics of a set, each with its rows, in log order."""
    topics = batch["topic"].dictionary_encode()
    names = topics.dictionary.to_pylist()
    if without.issuperset(names):
        return
    groups = _groups(batch, np.asarray(topics.indices), len(names))
    yield from ((name, rows) for name, rows in zip(names, groups, strict=True) if name not in without)


def by_partition(
    kind: Kind, batch: pa.RecordBatch, shown: pa.RecordBatch
) -> Iterator[tuple[Partition, pa.RecordBatch]]:
    """Partitions of a batch, by its topics and store timestamps, each with its rows of `shown`, in log order."""
    if batch.num_rows:
        numbers, partitions = _partitions(kind, batch)
        yield from zip(partitions, _groups(shown, numbers, len(partitions)), strict=True)


def _groups(batch: pa.RecordBatch, numbers: npt.NDArray[Any], count: int) -> Iterable[pa.RecordBatch]:
    """Rows of each of `count` numbers from 0 on, in the order of the batch."""
    if count == 1:
        return (batch,)
    order = np.argsort(numbers, kind="stable")
    batch = batch.take(pa.array(order))
    borders = np.searchsorted(numbers[order], np.arange(count + 1)).tolist()
    return (batch.slice(begin, end - begin) for begin, end in pairwise(borders))


def _partitions(kind: Kind, batch: pa.RecordBatch) -> tuple[npt.NDArray[np.int64], list[Partition]]:
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
        Partition(kind, names[code // width], None if code % width == width - 1 else first + code % width)
        for code in distinct.tolist()
    ]
    return numbers, partitions


def offsets_of_name(name: str) -> tuple[int, int]:
    """Offsets of the first rows of the first and the last file of an export that a file of such a name was made of."""
    if (found := COMPACTED_NAME.fullmatch(name)) is not None:
        return int(found[1]), int(found[2])
    found = EXPORTED_NAME.fullmatch(name)
    assert found is not None, "files of other writers are left alone"
    return int(found[1]), int(found[1])


def commit_numbers(paths: Sequence[str]) -> list[int]:
    """Numbers of the commits of files by their names; zeros if they are not all of an export, or put together."""
    found = [EXPORTED_NAME.fullmatch(os.path.basename(path)) for path in paths]
    numbers = [int(one[2]) for one in found if one is not None and one[2] is not None]
    return numbers if len(numbers) == len(paths) else [0] * len(paths)
