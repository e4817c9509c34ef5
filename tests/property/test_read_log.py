"""Whatever the bytes of a log: no crash, no row that is not in the log, and none beyond damage."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reput
from reput.errors import CorruptRecordError
from reput.kernels.records.record_batch import SCHEMA
from reput.kernels.records.record_scan import ScanLevel
from reput.log import StoreDirectory
from reput.log.scan import SplitScan, scan_split
from reput.log.splits import Split, check_stitches, plan_splits

GOLDEN = Path(__file__).parents[1] / "golden" / "5.3.3"
FILE_SIZE = 65536
#: Header fields by position and size; 84 is the body length of a record with IPv4 hosts.
FIELDS = [(0, 4), (4, 4), (8, 4), (28, 8), (36, 4), (56, 8), (84, 4)]
EXTREMES = [0, 1, -1, 0x7FFFFFFF, -0x80000000, 91, 90, -626843481, -626843477, -875286124, FILE_SIZE, 1 << 62]


@cache
def log(case: str) -> tuple[bytes, ...]:
    """The files of a log."""
    return tuple(path.read_bytes() for path in sorted((GOLDEN / case / "store" / "commitlog").iterdir()))


@cache
def intact(case: str) -> tuple[pa.Table, list[int]]:
    """All rows, and the offset of each record."""
    table = reput.read_log(GOLDEN / case / "store").read_all()
    return table, record_offsets(table)


def record_offsets(table: pa.Table) -> list[int]:
    return sorted(set(table["commit_log_offset"].to_pylist()))


def rows_before(table: pa.Table, offset: int) -> pa.Table:
    """The rows whose records end at or before an offset."""
    ends = pc.add(table["commit_log_offset"], table["store_size"])
    return table.filter(pc.less_equal(ends, offset))


def write(folder: str, files: list[bytes]) -> Path:
    store = Path(folder) / "store"
    (store / "commitlog").mkdir(parents=True)
    for i, content in enumerate(files):
        (store / "commitlog" / f"{i * FILE_SIZE:020d}").write_bytes(content)
    return store


def read(files: list[bytes]) -> tuple[pa.Table, int | None]:
    """The rows that come, and the offset of the damage that is told."""
    batches: list[pa.RecordBatch] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            batches.extend(reput.read_log(write(folder, files)))
        except CorruptRecordError as error:
            return pa.Table.from_batches(batches, SCHEMA), error.offset
    return pa.Table.from_batches(batches, SCHEMA), None


def change(files: tuple[bytes, ...], offset: int, data: bytes) -> list[bytes]:
    changed = [bytearray(content) for content in files]
    i, position = divmod(offset, FILE_SIZE)
    changed[i][position : position + len(data)] = data[: FILE_SIZE - position]
    return [bytes(content) for content in changed]


def check(case: str, offset: int, data: bytes) -> None:
    """Overwrite a part of a log: every row before it is there, and what follows is there too, or its loss is told."""
    table, offsets = intact(case)
    untouched = rows_before(table, offset)
    rows, damage = read(change(log(case), offset, data))
    assert rows.slice(0, untouched.num_rows).equals(untouched)
    found = record_offsets(rows)
    assert found == offsets[: len(found)]
    if damage is not None:
        assert all(row < damage for row in found)
        assert max(record_offsets(untouched), default=0) <= damage < offset + len(data)
    elif found != offsets:
        assert offset + len(data) > offsets[-1], "only a change of the last record can shorten the log quietly"


@pytest.mark.parametrize("case", ["batch", "ipv6", "bcq"])
@given(data=st.data())
def test_a_flipped_bit_is_told_or_harmless(case: str, data: st.DataObject) -> None:
    files = log(case)
    offset = data.draw(st.integers(0, len(files) * FILE_SIZE - 1))
    flipped = files[offset // FILE_SIZE][offset % FILE_SIZE] ^ (1 << data.draw(st.integers(0, 7)))
    check(case, offset, bytes([flipped]))


@pytest.mark.parametrize("case", ["batch", "bcq"])
@given(data=st.data())
def test_a_header_field_at_its_extreme_is_told_or_harmless(case: str, data: st.DataObject) -> None:
    record = data.draw(st.sampled_from(intact(case)[1]))
    position, size = data.draw(st.sampled_from(FIELDS))
    value = data.draw(st.sampled_from(EXTREMES) | st.integers(-(1 << 63), (1 << 63) - 1))
    content = (value & ((1 << 8 * size) - 1)).to_bytes(size, "big")
    check(case, record + position, content)


@given(cut=st.integers(0, 4 * FILE_SIZE - 1))
def test_a_log_that_was_cut_ends_at_the_last_whole_record(cut: int) -> None:
    """All bytes from the cut on are zero, as after a power cut that lost them."""
    files = [content[: max(0, cut - i * FILE_SIZE)].ljust(FILE_SIZE, b"\0") for i, content in enumerate(log("batch"))]
    table, _ = intact("batch")
    rows, damage = read(files)
    expected = rows_before(table, cut)
    assert damage is None
    assert rows.slice(0, expected.num_rows).equals(expected)
    assert rows.num_rows - expected.num_rows <= 1  # a record that lost nothing but zeros is whole


@given(lost=st.integers(0, 2 * FILE_SIZE), size=st.integers(1, 3000))
def test_lost_pages_in_the_middle_are_told(lost: int, size: int) -> None:
    check("batch", lost, bytes(size))


@given(content=st.binary(min_size=1, max_size=2000))
def test_any_bytes_at_all_are_read_without_a_crash(content: bytes) -> None:
    rows, damage = read([content])
    assert (rows.num_rows, damage) == (0, None)


def scanned(split: Split) -> tuple[SplitScan, list[int]]:
    scan = scan_split(split, level=ScanLevel.HEADER)
    return scan, [offset for columns in scan for offset in columns["commit_log_offset"].tolist()]


@given(data=st.data(), split_bytes=st.integers(2000, FILE_SIZE))
def test_stitched_splits_of_any_bytes_agree_with_one_reader(data: st.DataObject, split_bytes: int) -> None:
    """A stretch of records is copied elsewhere, as in files that were used before."""
    files = log("ipv6")
    source, target = (data.draw(st.integers(0, len(files) * FILE_SIZE - 1)) for _ in range(2))
    size = data.draw(st.integers(1, 4000))
    i, position = divmod(source, FILE_SIZE)
    changed = change(files, target, files[i][position : position + size])
    rows, damage = read(changed)
    with tempfile.TemporaryDirectory() as folder:
        splits = plan_splits(StoreDirectory(write(folder, changed)).log_files(), split_bytes)
        try:
            runs = [scanned(split) for split in splits]
            while again := check_stitches([scan.result for scan, _ in runs]):
                for j, split in again.items():
                    runs[j] = scanned(split)
        except CorruptRecordError:
            assert damage is not None
        else:
            assert damage is None
            assert [offset for _, found in runs for offset in found] == rows["commit_log_offset"].to_pylist()
