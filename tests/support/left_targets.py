"""Targets of backups and archives as a kill, or a power cut, at any operation leaves them."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reput.files import FileLayer
from tests.support.faulty_files import Crash, FaultyFiles, crash_at
from tests.support.shares import Share


def left_targets(
    take: Callable[[Path, FileLayer], object], live: Path, earlier: Path | None, folder: Path, share: Share
) -> Iterator[Path]:
    """Targets that are left, each in a folder of its own, which is removed when the next one is asked for.

    Args:
        take: Takes a backup, or an archive, of the store to a target.
        live: The store.
        earlier: A target to begin with; None: it is made anew.
        folder: An empty folder.
        share: Of the operations.
    """

    def target_in(path: Path) -> Path:
        path.mkdir()
        return Path(shutil.copytree(earlier, path / "target")) if earlier is not None else path / "target"

    counting = FaultyFiles()
    take(target_in(folder / "counting"), counting)
    operations = len(counting.operations)
    assert operations > 25
    for number in share.of(range(operations)):
        path = folder / str(number)
        target = target_in(path)
        files = FaultyFiles(crash_at(number))
        for known in (path, live):
            files.all_is_durable(known)
        with pytest.raises(Crash):
            take(target, files)
        files.abandon()
        for name, chance in (("synced", None), ("torn", random.Random(number))):
            if target.exists():
                files.cut_power(target, path / name, chance)
        yield from [left for left in path.iterdir() if left.is_dir()]
        shutil.rmtree(path)
