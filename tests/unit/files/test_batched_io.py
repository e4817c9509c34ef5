from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from reput.errors import StoreError, StoreFullError
from reput.files import DISK

COUNT = 3
SOURCE = np.random.default_rng(7).integers(0, 256, 5000, dtype=np.uint8)


def made(folder: Path) -> list[str]:
    paths = [str(folder / f"{i} é") for i in range(COUNT)]
    for path in paths:
        DISK.open(path, writable=True, create=True).close()
    return paths


def column(values: list[int]) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def write_runs(paths: list[str], runs: list[tuple[int, int, int, int]]) -> None:
    """Each run: number of the file, start in SOURCE, size, position."""
    DISK.write_runs(
        [paths[run[0]] for run in runs],
        column([SOURCE.ctypes.data + run[1] for run in runs]),
        column([run[2] for run in runs]),
        column([run[3] for run in runs]),
    )


RUN = st.tuples(st.integers(0, COUNT - 1), st.integers(0, 4000), st.integers(0, 1000), st.integers(0, 10_000))


@given(st.lists(RUN, max_size=20))
def test_many_runs_equal_as_many_writes(
    tmp_path_factory: pytest.TempPathFactory, runs: list[tuple[int, int, int, int]]
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    paths = made(folder)
    write_runs(paths, runs)
    found = [DISK.read_bytes(path) for path in paths]
    expected = [bytearray() for _ in range(COUNT)]
    for number, start, size, position in runs:
        if size:
            content = expected[number]
            content.extend(bytes(max(0, position + size - len(content))))
            content[position : position + size] = SOURCE[start : start + size].tobytes()
    assert found == expected


@given(st.lists(st.tuples(st.integers(0, COUNT - 1), st.integers(0, 6000), st.integers(0, 3000)), max_size=20))
def test_many_reads_equal_as_many_reads_of_files_and_zeros_behind_their_ends(
    tmp_path_factory: pytest.TempPathFactory, reads: list[tuple[int, int, int]]
) -> None:
    paths = made(tmp_path_factory.mktemp("reads"))
    write_runs(paths, [(i, 0, 5000 - 1000 * i, 0) for i in range(COUNT)])
    positions, sizes = column([position for _, position, _ in reads]), column([size for *_, size in reads])
    found = DISK.read_runs([paths[i] for i, *_ in reads], positions, sizes)
    contents = [DISK.read_bytes(path) for path in paths]
    assert found.tobytes() == b"".join(contents[i][p : p + size].ljust(size, b"\0") for i, p, size in reads)


@given(st.lists(st.tuples(st.integers(0, 6000), st.integers(0, 3000)), max_size=300))
def test_many_reads_of_an_open_file_equal_as_many_reads_and_zeros_behind_its_end(
    tmp_path_factory: pytest.TempPathFactory, reads: list[tuple[int, int]]
) -> None:
    path = made(tmp_path_factory.mktemp("reads"))[0]
    write_runs([path], [(0, 0, 5000, 0)])
    with DISK.open(path) as file:
        found = file.read_runs(column([position for position, _ in reads]), column([size for _, size in reads]))
    content = DISK.read_bytes(path)
    assert found.tobytes() == b"".join(content[p : p + size].ljust(size, b"\0") for p, size in reads)


def test_the_read_of_an_open_file_that_fails_is_named(tmp_path: Path) -> None:
    path = made(tmp_path)[0]
    write_runs([path], [(0, 0, 100, 0)])
    with (
        DISK.open(path) as file,
        pytest.raises(StoreError, match=f"^{path}: cannot read at -7: " + os.strerror(22)),
    ):
        file.read_runs(column([0, -7, 10]), column([10, 10, 10]))


def test_the_failed_run_is_named_and_those_before_it_are_written(tmp_path: Path) -> None:
    paths = made(tmp_path)
    with pytest.raises(StoreFullError, match=r"^/dev/full: cannot write at 7: 5 bytes needed, ") as raised:
        write_runs([paths[0], "/dev/full", paths[2]], [(0, 0, 10, 0), (1, 0, 5, 7), (2, 0, 10, 0)])
    assert isinstance(raised.value.__cause__, OSError)
    assert DISK.read_bytes(paths[0]) == SOURCE[:10].tobytes()
    assert DISK.file_size(paths[2]) == 0


def test_what_cannot_be_opened_is_named(tmp_path: Path) -> None:
    paths = [*made(tmp_path), str(tmp_path / "missing")]
    gone = f"^{paths[-1]}: cannot "
    with pytest.raises(StoreError, match=gone + "write at 7: " + os.strerror(2)):
        write_runs(paths, [(0, 0, 1, 0), (3, 0, 1, 7)])
    with pytest.raises(StoreError, match=gone + "read at 7: " + os.strerror(2)):
        DISK.read_runs(paths, column([0, 0, 0, 7]), column([1] * 4))
    with pytest.raises(StoreError, match=gone + "sync: " + os.strerror(2)):
        DISK.sync_files(paths)
    with pytest.raises(StoreError, match=gone + "sync the folder: " + os.strerror(2)):
        DISK.sync_directories([str(tmp_path), paths[-1]])
    with pytest.raises(StoreError, match=f"^{tmp_path}: cannot read at 0: a folder lies where a file is expected"):
        DISK.read_runs([str(tmp_path)], column([0]), column([1]))


def test_every_path_is_synced_and_no_descriptor_stays_open(tmp_path: Path) -> None:
    """A character device refuses the sync, wherever it stands in the list."""
    paths = made(tmp_path)
    before = os.listdir("/proc/self/fd")
    DISK.sync_files(paths)
    DISK.sync_directories([str(tmp_path), "/tmp"])
    for i in range(COUNT + 1):
        with pytest.raises(StoreError, match="^/dev/null: cannot sync: " + os.strerror(22)):
            DISK.sync_files([*paths[:i], "/dev/null", *paths[i:]])
    assert os.listdir("/proc/self/fd") == before


PAGES = 300


@given(
    st.sets(st.integers(0, PAGES - 1)),
    st.lists(
        st.tuples(st.integers(0, (PAGES - 9) * mmap.PAGESIZE), st.integers(1, 9 * mmap.PAGESIZE)),
        min_size=1, max_size=9,
    ),
)  # fmt: skip
def test_pages_are_in_memory_if_they_were_written_or_read_in(
    tmp_path_factory: pytest.TempPathFactory, written: set[int], runs: list[tuple[int, int]]
) -> None:
    path = str(tmp_path_factory.mktemp("pages") / "file")
    with DISK.open(path, writable=True, create=True, size=PAGES * mmap.PAGESIZE) as file:
        for page in written:
            file.write(page * mmap.PAGESIZE, b"x" * mmap.PAGESIZE)
        mapping = file.map()
    wanted = {
        page for begin, size in runs for page in range(begin // mmap.PAGESIZE, -(-(begin + size) // mmap.PAGESIZE))
    }
    pairs = column([number for begin, size in sorted(runs) for number in (mapping.address + begin, size)])
    assert DISK.are_in_memory(pairs.ctypes.data, len(runs)) == (wanted <= written)
    DISK.read_in(path, mapping, pairs.ctypes.data, len(runs))
    assert DISK.are_in_memory(pairs.ctypes.data, len(runs))


def test_a_run_of_more_pages_than_one_call_is_told_about_is_looked_at_to_its_end(tmp_path: Path) -> None:
    size = 2500 * mmap.PAGESIZE
    with DISK.open(str(tmp_path / "file"), writable=True, create=True, size=size) as file:
        file.write(0, bytes(size - mmap.PAGESIZE))
        mapping = file.map(writable=True)
        run = column([mapping.address, size])
        assert not DISK.are_in_memory(run.ctypes.data, 1)
        file.write(size - 1, b"x")
        assert DISK.are_in_memory(run.ctypes.data, 1)


def test_a_page_that_cannot_be_read_is_an_error_and_no_signal(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    with DISK.open(path, writable=True, create=True, size=9 * mmap.PAGESIZE) as file:
        mapping = file.map(writable=True)
        os.truncate(path, 4 * mmap.PAGESIZE)
        runs = column([mapping.address, 10, mapping.address + 5 * mmap.PAGESIZE + 7, 10])
        assert not DISK.are_in_memory(runs.ctypes.data, 2)
        with pytest.raises(StoreError, match=rf"{path}: cannot read at {5 * mmap.PAGESIZE + 7}: Input/output error"):
            DISK.read_in(path, mapping, runs.ctypes.data, 2)
