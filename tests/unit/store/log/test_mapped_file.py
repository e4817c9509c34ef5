"""MappedFile: one file of the log, and its map."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any

from reput.files import DISK, FileLayer
from reput.store.log.mapped_file import MappedFile


class SlowToOpen:
    """A disk on which whoever opens a file waits for a second one who does, for a moment."""

    def __init__(self) -> None:
        self._both = Barrier(2)

    def __getattr__(self, name: str) -> Any:
        return getattr(DISK, name)

    def open(self, path: str, **options: Any) -> Any:
        with contextlib.suppress(BrokenBarrierError):  # nobody else came
            self._both.wait(0.2)
        return DISK.open(path, **options)


def test_a_file_is_mapped_once_where_two_threads_ask_for_it(tmp_path: Path) -> None:
    path, files = tmp_path / "0", SlowToOpen()
    path.write_bytes(bytes(4096))
    layer: FileLayer = files  # type: ignore[assignment]
    mapped: list[MappedFile] = []
    file = MappedFile(layer, str(path), 0, 4096, writable=False, on_map=mapped.append, check_space=lambda *_: None)
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda _: file.mapping, range(2))
    assert first is second
    assert mapped == [file]
