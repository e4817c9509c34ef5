"""A store with files so small that a few messages roll them, on a disk whose syncs cost nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import reput
from tests.support.faulty_files import FaultyFiles
from tests.support.fixtures import OpenStore
from tests.support.invariants import SMALL


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The folder of the test's store."""
    return tmp_path / "store"


@pytest.fixture
def open_store(path: Path) -> Iterator[OpenStore]:
    """`open_store(**options)` -> the store at `path`; closed at the test's end."""
    opened: list[reput.MessageStore] = []

    def open_one(**options: object) -> reput.MessageStore:
        files = options.pop("files", None) or FaultyFiles()
        opened.append(reput.MessageStore.open(path, files=files, **(SMALL | options)))  # type: ignore[arg-type]
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: OpenStore) -> reput.MessageStore:
    """An empty store of small files."""
    return open_store()
