"""The examples of a page, run one after the other as a reader runs them, and what the page says that they print.

A block's label says what it is: `python` runs in one process for the whole page, as the cells of a notebook do, or in
one that many pages share, as a JVM and Spark take seconds to start; a
block with test functions runs by pytest. `sh` is commands, a line each. `text` is what the block before it prints. A
block of any other kind whose first line is a comment with a path is a file with that name.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.commands import run_reput
from tests.support.page_worlds import World

ROOT = Path(__file__).parents[2]
FENCED = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"(?:#|//) (\S*[/.]\S*)(?:,.*)?\n")
#: Runs what comes in a line of JSON, and ends what it prints with a zero byte, or with a byte of one if it fails.
_CELLS = """
import json, sys, traceback
names = {"__name__": "__main__"}
for line in sys.stdin:
    end = "\\0"
    try:
        exec(compile(json.loads(line), "example", "exec"), names)
    except BaseException:
        traceback.print_exc()
        end = "\\1"
    print(end=end, flush=True)
"""
#: Lets another page begin in that process: of the page before only the JVM is left, and what Python has imported.
_NEXT_PAGE = """
from pyspark.sql import SparkSession
if running := SparkSession._instantiatedSession:
    for query in running.streams.active:
        query.stop()
    running.stop()
for name in set(globals()) - {"__name__", "__builtins__", "name"}:
    del globals()[name]
del name
"""
#: Types a command there.
_COMMAND = """
import sys
sys.path.append({root!r})
from tests.support.commands import run_reput
sys.path.remove({root!r})
answer = run_reput(*{words!r})
assert answer.status == 0, answer.err
print(end=answer.out)
"""
#: What differs from run to run: times, ids, addresses, durations and rates.
_VARIES = (
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?", "TIME"),
    (r"\b[0-9A-F]{32}\b", "ID"),
    (r"\b\d+\.\d+\.\d+\.\d+(:\d+)?", "ADDRESS"),
    (r"\b(seconds|a second) +[\d,.]+", "DURATION"),
    (r"─+|━+", ""),
    (r"\s+", " "),
)


class Block(NamedTuple):
    """A block of a page. text: without the fence. output: the block `text` after it, if there is one."""

    language: str
    text: str
    output: str | None = None

    @property
    def commands(self) -> list[str]:
        """The commands of a block `sh`, without their comments."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [command for line in lines if (command := re.sub(r"(^|\s+)#.*", "", line).strip())]

    @property
    def file(self) -> str | None:
        """The path in the comment that begins a file."""
        found = _FILE.match(self.text)
        return found[1] if found and self.language not in ("python", "sh", "text") else None

    @property
    def needs_spark(self) -> bool:
        """Whether any of it starts Spark."""
        if self.language == "sh":
            return any(map(needs_spark, self.commands))
        return self.language == "python" and "spark" in self.text


def needs_spark(command: str) -> bool:
    """Whether a command starts Spark."""
    is_query = command.startswith("reput dispatch") and "--runner" not in command and "--once" not in command
    return "--runner spark" in command or is_query


def blocks(text: str) -> list[Block]:
    """The blocks of a page or of a part of it, each with its output: at once beneath, or after "It prints"."""
    found: list[Block] = []
    end = 0
    for fenced in FENCED.finditer(text):
        language, body = fenced.groups()
        between = text[end : fenced.start()].strip()
        end = fenced.end()
        is_program = bool(found) and found[-1].language in ("python", "sh") and found[-1].output is None
        if language == "text" and is_program and (not between or between.startswith("It prints")):
            found[-1] = found[-1]._replace(output=body)
        else:
            found.append(Block(language, body))
    return found


def plain(text: str) -> str:
    """A text without what differs from run to run, and without the ruling of tables."""
    for pattern, name in _VARIES:
        text = re.sub(pattern, name, text)
    return text.strip()


def is_what_the_page_shows(shown: str, printed: str) -> bool:
    """Whether a program printed what its page shows, where `...` stands for anything."""
    pattern = ".*".join(map(re.escape, plain(shown).split("...")))
    return re.fullmatch(pattern, plain(printed), re.DOTALL) is not None


class Cells:
    """A process that runs one program after the other, as a notebook's kernel does, of one page or of several."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, text: str) -> str:
        """Run a program, which must not fail; what it printed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(text), file=self._process.stdin, flush=True)
        printed = ""
        while not printed.endswith(("\0", "\1")):
            character = self._process.stdout.read(1)
            assert character, f"this ends the process, as stderr says:\n{text}{printed}"
            printed += character
        assert printed.endswith("\0"), f"this fails, as stderr says:\n{text}{printed}"
        return printed[:-1]

    def begin_page(self) -> None:
        """Forget the page before. The folder stays: it is the JVM's, too, and so that of tasks."""
        self.run(_NEXT_PAGE)


class Reader:
    """Types the examples of one page in its world.

    Args:
        shared: a process of several pages, which have absolute paths only, and need no environment; it runs commands
            that start Spark, too. Without it each of them starts a process of its own.
    """

    def __init__(self, world: World, shared: Cells | None = None) -> None:
        self._world = world
        self._cells = self._shared = shared
        if shared is not None:
            shared.begin_page()
        self._server: subprocess.Popen[str] | None = None

    def run(self, block: Block) -> str:
        """Run a block, and return what it printed, in the words of the page."""
        if block.language == "sh":
            printed = "".join(map(self.type, block.commands))
        elif block.file:
            path = Path(self._here(block.file))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._here(block.text), encoding="utf-8")
            printed = ""
        elif "def test_" in block.text:
            printed = self._pytest(block.text)
        else:
            printed = self._cell(block.text)
        for word, here in self._world.names.items():
            printed = printed.replace(here, word)
        return printed

    def type(self, command: str) -> str:
        """Type a command, which has to succeed."""
        here = self._here(command)
        if re.match("reput (broker|namesrv)\\b", here):
            return self._serve(here)
        if re.search("[|<>]", re.sub("'[^']*'|\"[^\"]*\"", "", here)) or not here.startswith("reput "):
            return self._process(["sh", "-c", here])
        if needs_spark(here):
            if self._shared is not None:
                return self._shared.run(_COMMAND.format(root=str(ROOT), words=shlex.split(here)[1:]))
            return self._process([sys.executable, "-m", *shlex.split(here)])
        answer = run_reput(*shlex.split(here)[1:])
        assert answer.status == 0, f"{command}: {answer.err}"
        return answer.out

    def _here(self, text: str) -> str:
        words = "|".join(map(re.escape, sorted(self._world.names, key=len, reverse=True)))
        return re.sub(rf"(?<![\w/])({words})(?!\w)", lambda found: self._world.names[found[1]], text) if words else text

    def _process(self, command: list[str]) -> str:
        done = subprocess.run(
            command, cwd=self._world.folder, env=_environment(), capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def _pytest(self, text: str) -> str:
        path = self._world.folder / "test_example.py"
        path.write_text(self._here(text), encoding="utf-8")
        return self._process([sys.executable, "-m", "pytest", "-q", "-p", "reput.pytest_plugin", str(path)])

    def _cell(self, text: str) -> str:
        if self._cells is None:
            self._cells = self._world.left.enter_context(start_cells(self._world.folder))
        return self._cells.run(self._here(text))

    def _serve(self, command: str) -> str:
        """Start a broker or a name server on free ports; later commands find it at the addresses of the page."""
        if self._server is not None:
            _stop(self._server)
        ports = "--port 0"
        if command.startswith("reput broker"):
            ports += " --namesrv-port 0 --set metricsPromExporterPort=0"
        words = ["sh", "-c", f"exec {sys.executable} -m {command} {ports}"]
        self._server = subprocess.Popen(
            words, cwd=self._world.folder, env=_environment(), stdout=subprocess.PIPE, text=True
        )
        self._world.left.callback(_stop, self._server)
        assert self._server.stdout is not None
        ready = self._server.stdout.readline()
        assert "ready" in ready, f"{command}: {ready}"
        addresses = dict(re.findall(r'(\w+)"?[:=] ?"?([\w.]+:\d+)', ready))
        for host in ("127.0.0.1", "10.0.0.5"):
            self._world.names[f"{host}:9876"] = addresses["namesrv"]
            if "broker" in addresses:
                self._world.names[f"{host}:10911"] = addresses["broker"]
        return ready


def _environment() -> dict[str, str]:
    bin_first = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # where the command `reput` is
    return os.environ | {"PATH": bin_first, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


@contextmanager
def start_cells(folder: Path) -> Iterator[Cells]:
    """A process for cells that starts in a folder; it ends with the block."""
    with subprocess.Popen(
        [sys.executable, "-c", _CELLS], cwd=folder, env=_environment(),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            yield Cells(process)
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(60) == 0
        finally:
            process.kill()


def _stop(server: subprocess.Popen[str]) -> None:
    if server.poll() is None:
        server.send_signal(signal.SIGTERM)
    server.communicate(timeout=60)
    assert server.returncode == 0
