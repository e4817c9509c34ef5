"""Cuts of a log: a kill or a power cut at any step leaves no gap, and no byte that is not kept."""

from __future__ import annotations

import random
from itertools import count
from pathlib import Path

import pytest

from reput.files import DISK, FileLayer
from reput.files.truncate import truncate_files
from reput.jobs.rebuild.originals import keep_tail
from tests.support.faulty_files import Crash, FaultyFiles, crash_at

SIZE, FILES = 4096, 3
WHOLE = b"".join(bytes([1 + number]) * SIZE for number in range(FILES))


def series_of(folder: Path) -> list[tuple[str, int]]:
    return [(str(path), int(path.name)) for path in sorted(folder.iterdir())]


def make_log(root: Path) -> Path:
    folder = root / "commitlog"
    folder.mkdir(parents=True)
    for start in range(0, len(WHOLE), SIZE):
        (folder / f"{start:020}").write_bytes(WHOLE[start : start + SIZE])
    return folder


def check_log(folder: Path, end: int) -> bool:
    """Whether the cut is done; a log that is cut in part has its bytes up to the end, and no gap among its files."""
    series = series_of(folder)
    assert [start for _, start in series] == list(range(0, len(series) * SIZE, SIZE))
    data = b"".join(Path(path).read_bytes() for path, _ in series)
    assert data[:end] == WHOLE[: min(end, len(data))]
    # the last file goes first: before it the log is as it was
    assert data[end : data.rstrip(b"\0").__len__()] == WHOLE[end : len(data.rstrip(b"\0"))]
    return not data[end:].strip(b"\0") and len(series) == max(1, -(-end // SIZE))


@pytest.mark.parametrize("end", [0, 1, SIZE, SIZE + 100, 2 * SIZE, len(WHOLE) - 1, len(WHOLE)])
def test_a_log_is_cut_where_it_is_to_end(tmp_path: Path, end: int) -> None:
    folder = make_log(tmp_path)
    assert truncate_files(DISK, series_of(folder), end) == []
    assert check_log(folder, end)
    truncate_files(DISK, series_of(folder), end)
    assert check_log(folder, end)


@pytest.mark.parametrize("end", [0, SIZE, SIZE + 100])
@pytest.mark.parametrize("power", [False, True])
def test_a_cut_that_ends_at_any_step_goes_on_and_loses_no_byte(tmp_path: Path, end: int, power: bool) -> None:
    for step in count():
        root = tmp_path / str(step)
        folder = make_log(root)
        files = FaultyFiles()
        files.all_is_durable(tmp_path)
        files.judge = crash_at(step)
        try:
            truncate_files(files, series_of(folder), end, keep=keep_tail)
        except Crash:
            was_killed = True
        else:
            was_killed = False
        if power:
            left = tmp_path / f"{step}-left"
            files.cut_power(root, left, random.Random(step))
            folder = left / "commitlog"
        is_done = check_log(folder, end)
        assert is_done or was_killed
        truncate_files(DISK, series_of(folder), end, keep=keep_tail)
        assert check_log(folder, end)
        kept = bytearray(len(WHOLE))
        for path in (folder.parent / "commitlog.broken").glob("0*[0-9]"):
            start = int(path.name[:20])
            for position, byte in enumerate(path.read_bytes()):
                kept[start + position] |= byte
        assert bytes(kept[end:]) == WHOLE[end:]
        if not was_killed:
            return


def test_bytes_that_are_zeros_are_not_kept(tmp_path: Path) -> None:
    folder = make_log(tmp_path)
    (folder / f"{2 * SIZE:020}").write_bytes(bytes(SIZE))
    asked: list[tuple[str, int]] = []

    def keep(_: FileLayer, path: str, position: int) -> str:
        asked.append((Path(path).name, position))
        return "copy"

    assert truncate_files(DISK, series_of(folder), SIZE + 5, keep=keep) == ["copy"]
    assert asked == [(f"{SIZE:020}", 5)]
