"""The look at what queues reach, before a swap, costs what they have, not what their files could hold."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reput.errors import CorruptConsumeQueueError
from reput.jobs.rebuild.reachable import check_reachable
from reput.log.directory import StoreDirectory
from tests.support.plants import planted_store


def test_holes_of_queue_files_are_not_read(tmp_path: Path) -> None:
    path = planted_store(tmp_path / "store", 60)
    for file in (path / "consumequeue").glob("*/*/*"):
        os.truncate(file, 1 << 42)
    directory = StoreDirectory(path)
    check_reachable(directory, str(path), directory.log_files())
    with pytest.raises(CorruptConsumeQueueError, match="--allow-fewer"):
        check_reachable(directory, str(tmp_path), directory.log_files())
