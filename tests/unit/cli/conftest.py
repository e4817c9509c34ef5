"""The command in this process, and stores for it to work on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.commands import GOLDEN, SMALL_FILES, Run, run_reput


@pytest.fixture(name="run_reput")
def run_reput_fixture() -> Run:
    """`run_reput("get", store, "--topic", "orders")`."""
    return run_reput


@pytest.fixture
def golden(tmp_path: Path) -> Callable[[str], Path]:
    """`golden("clean")`: a copy of a store that Apache RocketMQ wrote."""

    def copy(case: str) -> Path:
        return Path(shutil.copytree(GOLDEN / case / "store", tmp_path / case))

    return copy


@pytest.fixture
def store(tmp_path: Path, written_store: Path) -> Path:
    """A store of small files with five messages: four in orders/0, one in orders/1; each test has its own."""
    return Path(shutil.copytree(written_store, tmp_path / "store"))


@pytest.fixture(scope="session")
def written_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `store` is copied from."""
    path = tmp_path_factory.mktemp("written") / "store"
    lines = b"one\ntwo\n\xff\xfe\n"
    for arguments, stdin in (
        (("--body", "hello world", "--tags", "paid", "--key", "o-1", "--key", "o-2", "--property", "region=eu"), None),
        (("--stdin", "--tags", "shipped", "--key", "o-2"), lines),
        (("--body", "elsewhere", "--queue-id", "1"), None),
    ):
        answer = run_reput("put", path, "--topic", "orders", *arguments, *SMALL_FILES, stdin=stdin)
        assert answer.status == 0, answer.err
    return path
