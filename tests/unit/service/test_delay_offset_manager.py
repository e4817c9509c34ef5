"""Offsets of the delay levels, and their file."""

from __future__ import annotations

from pathlib import Path

from reput.files import DISK
from reput.formats.metadata import DelayOffsets
from reput.log.metadata import read_metadata
from reput.service.delay_offset_manager import DelayOffsetManager


def persist(manager: DelayOffsetManager) -> None:
    snapshot = manager.snapshot()
    assert snapshot is not None
    manager.persist(snapshot)


def test_offsets_are_those_of_the_file_after_a_start(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    manager = DelayOffsetManager(str(tmp_path), delay_offset_update_version_step=2)
    assert (manager.offset(1), manager.snapshot()) == (0, None)
    for offset in (5, 6, 6):
        manager.update_offset(1, offset, 1000 + offset)
    manager.update_offset(18, 7, 2000)
    persist(manager)
    assert manager.snapshot() is None
    written = read_metadata(str(tmp_path), DelayOffsets, DISK)
    assert written is not None
    assert written.offset_table == {1: 6, 18: 7}
    assert (written.data_version.counter, written.data_version.timestamp) == (1, 1006)
    again = DelayOffsetManager(str(tmp_path))
    assert (again.offset(1), again.offset(18), again.offset(2), again.snapshot()) == (6, 7, 0, None)
