"""A file that only spares a start work does not count where it is odd or too large."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import reput


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("spared") / "store"
    with reput.MessageStore.open(path, small=True) as store:
        store.put_message(reput.Message("t", b"x"), 0)
    return path


@pytest.mark.parametrize("size", [0, 3, 1 << 40], ids=str)  # the last one is sparse
@pytest.mark.parametrize("name", ["reputShutdown.json", "reputRecovery.json"])
def test_an_odd_or_huge_file_stops_no_start(closed: Path, tmp_path: Path, name: str, size: int) -> None:
    path = tmp_path / "store"
    shutil.copytree(closed, path)
    with (path / "config" / name).open("wb") as file:
        file.truncate(size)
    for read_only in (True, False):
        with reput.MessageStore.open(path, read_only=read_only) as store:
            assert [one.body for one in store.get_message("t", 0, 0, 32).messages()] == [b"x"]
