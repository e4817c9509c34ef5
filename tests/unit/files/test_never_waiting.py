"""What a thread that may not wait for the disk is refused, and what it may do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from reput.errors import WouldWaitError
from reput.files import DISK, FileLayer, NeverWaiting, may_wait
from tests.support.commands import content_of
from tests.support.faulty_files import FaultyFiles

#: Operations on a folder with the file "there", which may wait for the disk.
WAITING: dict[str, Callable[[FileLayer, str], object]] = {
    "make a file": lambda files, folder: files.open(f"{folder}/new", writable=True, create=True),
    "make a folder": lambda files, folder: files.make_directories(f"{folder}/new"),
    "make folders without a sync": lambda files, folder: files.add_directories(f"{folder}/new/one"),
    "replace a file": lambda files, folder: files.write_atomically(f"{folder}/there", b"new"),
    "rename": lambda files, folder: files.rename(f"{folder}/there", f"{folder}/new"),
    "rename files": lambda files, folder: files.rename_files([(f"{folder}/there", f"{folder}/new")]),
    "link": lambda files, folder: files.link(f"{folder}/there", f"{folder}/new"),
    "remove": lambda files, folder: files.unlink(f"{folder}/there"),
    "sync a folder": lambda files, folder: files.sync_directory(folder),
    "sync files": lambda files, folder: files.sync_files([f"{folder}/there"]),
    "sync folders": lambda files, folder: files.sync_directories([folder]),
    "allocate": lambda files, folder: files.open(f"{folder}/there", writable=True).allocate(0, 10_000),
    "sync a file": lambda files, folder: files.open(f"{folder}/there", writable=True).sync(),
}


@pytest.mark.parametrize("files", [DISK, FaultyFiles()], ids=["disk", "faulty"])
@pytest.mark.parametrize("name", WAITING)
def test_what_may_wait_is_refused_and_changes_nothing(tmp_path: Path, files: FileLayer, name: str) -> None:
    (tmp_path / "there").write_bytes(b"text")
    before = content_of(tmp_path)
    with NeverWaiting(), pytest.raises(WouldWaitError, match=str(tmp_path)):
        WAITING[name](files, str(tmp_path))
    assert content_of(tmp_path) == before
    WAITING[name](files, str(tmp_path))


def test_bytes_of_a_file_that_is_there_are_written_and_read(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"text")
    with NeverWaiting(), DISK.open(str(tmp_path / "there"), writable=True, create=True) as file:
        file.write(0, b"T")
        assert file.read(0, 4) == bytes(file.map().view) == b"Text"


def test_a_context_inside_of_another_and_other_threads_change_nothing() -> None:
    told = []
    with NeverWaiting():
        with NeverWaiting():
            assert not may_wait()
        assert not may_wait()
        thread = threading.Thread(target=lambda: told.append(may_wait()))
        thread.start()
        thread.join()
    assert may_wait()
    assert told == [True]
