"""Programs that leave a reader before its end, whoever reads for it: the reader ends with the program, and the program
with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import reput
from reput.formats.message import Message
from tests.support.left_early import READERS

#: Of a program that ends: on a busy machine its imports take long.
_PATIENCE_S = 400


@pytest.fixture(scope="module")
def many_batches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose log is read in more than 100 batches: more than any library reads ahead."""
    path = tmp_path_factory.mktemp("store")
    with reput.MessageStore.open(path, small=True, mapped_file_size_commit_log=1 << 14) as store:
        body = b'{"total": %d, "text": "' + b"-" * 100 + b'"}'
        store.put_messages([Message("ab"[number % 2], body % number) for number in range(8000)])
        store.wait_dispatched()
    assert sum(1 for _ in reput.read_log(path)) > 100
    return path


def left(path: Path, times: int, *names: str) -> tuple[int, str, str]:
    """Exit status and output of the program that leaves these readers so many times."""
    program = [sys.executable, "-m", "tests.support.left_early", str(path), str(times), *names]
    done = subprocess.run(program, capture_output=True, text=True, timeout=_PATIENCE_S)
    return done.returncode, done.stdout, done.stderr


def test_a_program_ends_that_leaves_readers_before_their_end(many_batches: Path) -> None:
    assert left(many_batches, 3) == (0, f"left {len(READERS)}\n", "")


@pytest.mark.parametrize(
    "programs",
    [
        pytest.param((20, 1), id="two programs", marks=pytest.mark.slow),
        pytest.param((200, 1, 1, 1), id="four programs", marks=pytest.mark.campaign),
    ],
)
@pytest.mark.parametrize("name", READERS)
def test_a_program_ends_that_leaves_a_reader_once_or_many_times(
    many_batches: Path, name: str, programs: tuple[int, ...]
) -> None:
    for times in programs:
        assert left(many_batches, times, name) == (0, "left 1\n", "")
