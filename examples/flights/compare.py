"""Comparisons that say where two things differ: columns of a queue, groups of a count, bytes of files."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from examples.flights.counts import Counts
from reput.kernels.records.property_maps import without_properties
from reput.progress import Progress

BLOCK_SIZE = 16 << 20
ADDED_BY_BROKERS = ("MSG_REGION", "TRACE_ON", "CLUSTER")


def compare_queue(topic: str, queue_id: int, expected: pa.Table, found: pa.Table) -> Iterator[str]:
    """Findings: another number of messages, and the first difference in each column. Offsets must count from 0."""
    where = f"topic {topic}, queue {queue_id}"
    if len(found) != len(expected):
        yield f"{where}: {len(found)} messages consumed, {len(expected)} put"
    count = min(len(found), len(expected))
    expected = expected.slice(0, count).append_column("queue_offset", pa.array(np.arange(count)))
    for column in expected.column_names:
        row = first_difference(expected[column], found[column].slice(0, count))
        if row is not None:
            pair = f"{_short(found[column][row])} consumed, {_short(expected[column][row])} put"
            yield f"{where}, offset {row}, column {column}: {pair}"


def own_properties(rows: pa.Table) -> pa.Table:
    """Rows without the properties that a broker has added."""
    own = without_properties(rows["properties"].combine_chunks(), ADDED_BY_BROKERS)
    return rows.set_column(rows.column_names.index("properties"), "properties", own)


def first_difference(expected: pa.Table | pa.ChunkedArray, found: pa.Table | pa.ChunkedArray) -> int | None:
    """The first row that differs, by bisection over slices, which works for every type; both have the same length."""
    if expected.equals(found):
        return None
    begin, end = 0, len(expected)
    while end - begin > 1:
        middle = (begin + end) // 2
        if expected.slice(begin, middle - begin).equals(found.slice(begin, middle - begin)):
            begin = middle
        else:
            end = middle
    return begin


def _short(value: pa.Scalar) -> str:
    text = repr(value.as_py())
    return text if len(text) <= 120 else text[:117] + "..."


def compare_counts(where: str, expected: Counts, found: Counts) -> Iterator[str]:
    """Findings: for each of the two counts another number of groups, and the first group that differs."""
    for name, left, right in zip(Counts._fields, expected, found, strict=True):
        if len(left) != len(right):
            yield f"{where}, {name}: {len(right)} groups counted, {len(left)} in the events"
        count = min(len(left), len(right))
        row = first_difference(left.slice(0, count), right.slice(0, count))
        if row is not None:
            one, other = (table.slice(row, 1).to_pylist()[0] for table in (left, right))
            yield f"{where}, {name}: group {other} counted, {one} in the events"


def compare_statistics(expected: Counts, found: pa.Table) -> Iterator[str]:
    """Findings: the first of the job's groups (topic, carrier) that is not the sum over all airports and hours."""
    keys = ["topic", "carrier"]
    sums = expected.counts.group_by(keys).aggregate([("messages", "sum")]).rename_columns([*keys, "messages"])
    renamed = found.rename_columns({"tags": "carrier"}).select([*keys, "messages"])
    order = [(key, "ascending") for key in keys]
    tables = [table.sort_by(order).combine_chunks() for table in (sums, renamed)]
    count = min(map(len, tables))
    row = first_difference(*(table.slice(0, count) for table in tables))
    if row is None and len(tables[0]) != len(tables[1]):
        yield f"statistics: {len(renamed)} groups counted, {len(sums)} in the events"
    elif row is not None:
        one, other = (table.slice(row, 1).to_pylist()[0] for table in tables)
        yield f"statistics: group {other} counted, {one} in the events"


def compare_delays(expected: Counts, found: dict[str, int]) -> Iterator[str]:
    """Findings: departures, and their minutes of delay, that SQL sums up otherwise."""
    for name, value in found.items():
        sums = sum(expected.delays[name].to_pylist())
        if sums != value:
            yield f"SQL, {name}: {value} found, {sums} in the events"


def compare_stores(live: Path, rebuilt: Path, progress: Progress) -> tuple[int, list[str]]:
    """Compare consume queues by name and index files by order, byte for byte: bytes compared, and findings.

    The name of an index file is the moment of its making, so only their order can agree.
    """
    pairs: list[tuple[Path, Path]] = []
    findings = []
    names = [sorted(p.relative_to(root) for p in root.glob("consumequeue/*/*/*")) for root in (live, rebuilt)]
    findings += [f"{live / name}: not in {rebuilt}" for name in names[0] if name not in names[1]]
    findings += [f"{rebuilt / name}: not in {live}" for name in names[1] if name not in names[0]]
    pairs += [(live / name, rebuilt / name) for name in names[0] if name in names[1]]
    indexes = [sorted(root.glob("index/*")) for root in (live, rebuilt)]
    if len(indexes[0]) != len(indexes[1]):
        findings.append(f"{live / 'index'}: {len(indexes[0])} files, {len(indexes[1])} in {rebuilt / 'index'}")
    pairs += zip(*indexes, strict=False)
    size = 0
    for number, (one, other) in enumerate(pairs, start=1):
        findings += compare_files(one, other)
        size += one.stat().st_size
        progress(number, len(pairs), "compare files")
    return size, findings


def compare_files(one: Path, other: Path) -> Iterator[str]:
    """At most one finding: another size, or the first byte that differs."""
    if one.stat().st_size != other.stat().st_size:
        yield f"{other}: {other.stat().st_size} bytes, {one.stat().st_size} in {one}"
        return
    position = 0
    with one.open("rb") as left, other.open("rb") as right:
        while block := left.read(BLOCK_SIZE):
            twin = right.read(BLOCK_SIZE)
            if block != twin:
                at = int(np.flatnonzero(np.frombuffer(block, np.uint8) != np.frombuffer(twin, np.uint8))[0])
                yield f"{other}: byte {position + at} is {twin[at]:#04x}, {block[at]:#04x} in {one}"
                return
            position += len(block)
