from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from reput.errors import StoreError, StoreFullError
from reput.files import DISK, File

COUNT = 3
SOURCE = np.random.default_rng(7).integers(0, 256, 5000, dtype=np.uint8)


@contextmanager
def opened(folder: Path) -> Iterator[list[File]]:
    files = [DISK.open(str(folder / str(i)), writable=True, create=True) for i in range(COUNT)]
    yield files
    for file in files:
        file.close()


def column(values: list[int]) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def write_runs(files: list[File], runs: list[tuple[int, int, int, int]]) -> None:
    """Each run: number of the file, start in SOURCE, size, position."""
    DISK.write_runs(
        column([files[run[0]].fileno() for run in runs]),
        column([SOURCE.ctypes.data + run[1] for run in runs]),
        column([run[2] for run in runs]),
        column([run[3] for run in runs]),
        path_of=lambda i: files[runs[i][0]].path,
    )


RUN = st.tuples(st.integers(0, COUNT - 1), st.integers(0, 4000), st.integers(0, 1000), st.integers(0, 10_000))


@given(st.lists(RUN, max_size=20))
def test_many_runs_equal_as_many_writes(
    tmp_path_factory: pytest.TempPathFactory, runs: list[tuple[int, int, int, int]]
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    with opened(folder) as files:
        write_runs(files, runs)
        found = [DISK.read_bytes(file.path) for file in files]
    expected = [bytearray() for _ in range(COUNT)]
    for number, start, size, position in runs:
        if size:
            content = expected[number]
            content.extend(bytes(max(0, position + size - len(content))))
            content[position : position + size] = SOURCE[start : start + size].tobytes()
    assert found == expected


def test_the_failed_run_is_named_and_those_before_it_are_written(tmp_path: Path) -> None:
    with opened(tmp_path) as files, DISK.open("/dev/full", writable=True) as full:
        with pytest.raises(StoreFullError, match=r"^/dev/full: cannot write at 7: 5 bytes needed, ") as raised:
            write_runs([files[0], full, files[2]], [(0, 0, 10, 0), (1, 0, 5, 7), (2, 0, 10, 0)])
        assert isinstance(raised.value.__cause__, OSError)
        assert files[0].read(0, 100) == SOURCE[:10].tobytes()
        assert files[2].size == 0


def test_a_file_opened_for_reading_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with DISK.open(str(tmp_path / "file")) as file:
        with pytest.raises(StoreError, match="file: cannot write at 0: " + os.strerror(9)):
            write_runs([file], [(0, 0, 1, 0)])
        assert file.size == 0
