"""A store with small files, on a disk whose syncs cost nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import reput
from tests.support.faulty_files import FaultyFiles
from tests.support.invariants import SMALL


@pytest.fixture
def store(tmp_path: Path) -> Iterator[reput.MessageStore]:
    """An empty store."""
    with reput.MessageStore.open(tmp_path / "store", files=FaultyFiles(), **SMALL) as opened:
        yield opened
