"""The command in this process, and stores for it to work on."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from reput.cli.main import app

GOLDEN = Path(__file__).parents[2] / "golden" / "5.3.3"
#: Files so small that a test can read them all.
SMALL_FILES = (
    *("--set", "mappedFileSizeCommitLog=65536", "--set", "mappedFileSizeConsumeQueue=2000"),
    *("--set", "maxHashSlotNum=100", "--set", "maxIndexNum=400", "--set", "maxMessageSize=4096"),
)


class Answer(NamedTuple):
    """What a command did: its exit status, and what it printed."""

    status: int
    out: str
    err: str

    def object(self) -> dict[str, Any]:
        """The one JSON object of stdout."""
        (line,) = self.out.splitlines()
        return json.loads(line)

    def lines(self) -> list[dict[str, Any]]:
        """The JSON object of each line of stdout."""
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Answer]


def run_reput(*arguments: object, stdin: str | bytes | None = None) -> Answer:
    """Run one command; it may fail, but never with a traceback."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
    assert "Traceback" not in result.stderr, result.stderr
    return Answer(result.exit_code, result.stdout, result.stderr)


def content_of(folder: Path) -> dict[str, tuple[str, int]]:
    """Hash and time of change of every file below a folder, and of the folders, by their paths."""
    return {
        str(path.relative_to(folder)): (
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
            path.stat().st_mtime_ns,
        )
        for path in [folder, *folder.rglob("*")]
    }


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


def truth(case: str, kind: str) -> list[list[str]]:
    """The lines of one kind of what RocketMQ read from a golden store, as words without the kind."""
    lines = (GOLDEN / case / "truth.txt").read_text().splitlines()
    return [words[1:] for words in map(str.split, lines) if words[0] == kind]
