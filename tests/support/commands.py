"""The command in this process."""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from reput.cli.main import app

#: Made once: to make the parameters of all commands takes as long as many a command.
_COMMAND = get_command(app)


class Answer(NamedTuple):
    """Answer of a command: its exit status, and its output."""

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
    with CliRunner().isolation(input=stdin) as (out, err, _):
        with pytest.raises(SystemExit) as end:
            _COMMAND.main([str(argument) for argument in arguments], prog_name="reput")
        for stream in filter(None, (sys.stdout, sys.stderr)):  # None after an output that cannot be written
            stream.flush()
        answer = Answer(end.value.code, out.getvalue().decode(), err.getvalue().decode())  # type: ignore[arg-type]
    assert "Traceback" not in answer.err, answer.err
    return answer


def unknown_words(command: str) -> list[str]:
    """Words of a command line that `reput` does not know: a command, or an option; all others may be anything."""
    found, words = _COMMAND, shlex.split(command)[1:]
    while words and hasattr(found, "commands") and not words[0].startswith("-"):
        name = words.pop(0)
        if name not in found.commands:
            return [name]
        found = found.commands[name]
    known = {"--help", *(name for one in found.params for name in (*one.opts, *one.secondary_opts))}
    return [word for word in words if word.startswith("--") and word.partition("=")[0] not in known]


def content_of(folder: Path) -> dict[str, tuple[str, int]]:
    """Hash and time of change of every file below a folder, and of the folders, by their paths."""
    return {
        str(path.relative_to(folder)): (
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
            path.stat().st_mtime_ns,
        )
        for path in [folder, *folder.rglob("*")]
    }


GOLDEN = Path(__file__).parents[1] / "golden" / "5.3.3"
#: Files so small that a test can read them all.
SMALL_FILES = (
    *("--set", "mappedFileSizeCommitLog=65536", "--set", "mappedFileSizeConsumeQueue=2000"),
    *("--set", "maxHashSlotNum=100", "--set", "maxIndexNum=400", "--set", "maxMessageSize=4096"),
)


def truth(case: str, kind: str) -> list[list[str]]:
    """The lines of one kind of what RocketMQ read from a golden store, as words without the kind."""
    lines = (GOLDEN / case / "truth.txt").read_text().splitlines()
    return [words[1:] for words in map(str.split, lines) if words[0] == kind]
