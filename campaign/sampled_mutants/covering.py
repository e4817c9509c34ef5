"""Which test files run which lines, as coverage.py records them of each test file by itself."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path

from coverage import CoverageData
from coverage.exceptions import DataError

from campaign.sampled_mutants.changes import SOURCE, Change

ROOT = SOURCE.parent
#: Tests that need RocketMQ or a browser take part in no trial.
MARKERS = "not java and not browser"
#: Of the tests of one change, as they were recorded.
_MOST_SECONDS = 900
_RECORD = "record.json"
_SETTINGS = """
[run]
source_pkgs = reput
parallel = true
sigterm = true
patch = subprocess, _exit, fork
disable_warnings = no-data-collected, module-not-imported, trace-changed, no-sysmon, no-ctracer, couldnt-parse
"""


def _folder_of(folder: Path, test: str) -> Path:
    return folder / test.removesuffix(".py").replace("/", "-")


def test_files() -> list[str]:
    """All files of tests below `tests`."""
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))


def record(folder: Path, processes: int) -> None:
    """Run each test file by itself, and keep in `folder` which lines it ran; files recorded before are left out."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "coveragerc"
    settings.write_text(_SETTINGS)
    with ThreadPoolExecutor(processes) as pool:
        for line in pool.map(lambda test: _record_one(test, folder, settings), test_files()):
            print(line, flush=True)


def _record_one(test: str, folder: Path, settings: Path) -> str:
    data = _folder_of(folder, test)
    if (data / _RECORD).exists():
        return f"{test}: recorded before"
    data.mkdir(exist_ok=True)
    for part in data.iterdir():
        part.unlink()
    environment = {**os.environ, "COVERAGE_RCFILE": str(settings), "COVERAGE_FILE": str(data / "lines")}
    command = [sys.executable, "-m", "coverage", "run", "-m", "pytest", "-q", "-m", MARKERS, test]
    started = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - started
    if done.returncode == 0:
        (data / _RECORD).write_text(json.dumps({"seconds": round(seconds, 1), "lines": _lines_in(data)}) + "\n")
    last = done.stdout.strip().rpartition("\n")[2]
    return f"{seconds:5.0f} s  {test}: {'recorded' if done.returncode == 0 else 'NOT RECORDED'}: {last}"


def _lines_in(data: Path) -> dict[str, list[int]]:
    """The lines of each source file that the processes of one test file ran."""
    lines: dict[str, set[int]] = {}
    for part in data.glob("lines.*"):
        coverage = CoverageData(str(part))
        try:
            coverage.read()
        except DataError:  # its process was killed
            continue
        for name in coverage.measured_files():
            path = "reput/" + name.rpartition("/reput/")[2]
            lines.setdefault(path, set()).update(coverage.lines(name) or [])
    return {path: sorted(lines[path]) for path in sorted(lines)}


class Covering:
    """What was recorded: for each line its test files.

    Args:
        folder: What `record` has written.
    """

    def __init__(self, folder: Path):
        self._seconds: dict[str, float] = {}
        self._tests: dict[tuple[str, int], set[str]] = {}
        for test in test_files():
            recorded = _folder_of(folder, test) / _RECORD
            if recorded.exists():
                record = json.loads(recorded.read_text())
                self._seconds[test] = record["seconds"]
                for path, lines in record["lines"].items():
                    for line in lines:
                        self._tests.setdefault((path, line), set()).add(test)
        self._callers = _callers_of_kernels()

    def seconds(self, tests: Sequence[str]) -> float:
        """How long test files took while they were recorded; 0 for those that are new since."""
        return sum(self._seconds.get(test, 0.0) for test in tests)

    def of(self, change: Change) -> list[str]:
        """The test files that run a changed line: the file that mirrors its module first, then the fastest.

        A line that runs when its module is imported is covered by nearly all; the files are those of a few minutes.
        """
        places = {(change.path, line) for line in range(change.statement_line, change.line + 1)}
        if change.layer == "kernels" and change.function:
            places |= _lines_that_call(change.function.partition(".")[0], self._callers)
        covering = {test for place in places for test in self._tests.get(place, ())}
        # Python workers of Spark end without a record.
        covering |= {test for test in self._seconds if not covering and test.startswith("tests/spark/")}
        mirror = _mirror(change.path)
        covering |= {test for test in test_files() if test.startswith(mirror)}
        tests = sorted(covering, key=lambda test: (not test.startswith(mirror), self.seconds([test])))
        ends = accumulate(self.seconds([test]) for test in tests)
        return [test for i, (test, end) in enumerate(zip(tests, ends, strict=True)) if i == 0 or end <= _MOST_SECONDS]


def _mirror(path: str) -> str:
    """How the names of the unit tests of a module begin: reput/log/scan.py -> tests/unit/log/test_scan."""
    folder, _, name = path.removeprefix("reput/").rpartition("/")
    return f"tests/unit/{folder}/test_{name.removesuffix('.py').strip('_')}"


def _lines_that_call(function: str, callers: dict[str, list[tuple[str, str, int]]]) -> set[tuple[str, int]]:
    """The interpreted lines from which a kernel is reached: compiled lines are not recorded."""
    places, open_names, seen = set(), [function], {function}
    while open_names:
        for caller_path, caller, line in callers.get(open_names.pop(), []):
            places.add((caller_path, line))
            if caller_path.startswith("reput/kernels/") and caller not in seen:
                seen.add(caller)
                open_names.append(caller)
    return places


def _callers_of_kernels() -> dict[str, list[tuple[str, str, int]]]:
    """For each name that is used in a function: the paths, the functions and the lines that use it."""
    callers: dict[str, list[tuple[str, str, int]]] = {}
    for file in sorted((SOURCE / "reput").rglob("*.py")):
        path = str(file.relative_to(SOURCE))
        for function, name, line in _uses(ast.parse(file.read_text())):
            callers.setdefault(name, []).append((path, function, line))
    return callers


def _uses(module: ast.Module) -> Iterator[tuple[str, str, int]]:
    for function in module.body:
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Name):
                    yield function.name, node.id, node.lineno
                elif isinstance(node, ast.Attribute):
                    yield function.name, node.attr, node.lineno
