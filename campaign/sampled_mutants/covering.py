"""Which test files run which lines: recorded by coverage.py, with one context for each test file."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from coverage import CoverageData

from campaign.sampled_mutants.changes import SOURCE, Change

ROOT = SOURCE.parent
#: Tests that need RocketMQ or a browser take part in no trial.
MARKERS = "not java and not browser"
_CONTEXT = "REPUT_TEST_FILE"
_SETTINGS = f"""
[run]
source_pkgs = reput
parallel = true
sigterm = true
patch = subprocess, _exit, fork
context = ${{{_CONTEXT}}}
disable_warnings = no-data-collected, module-not-imported, trace-changed, no-sysmon, no-ctracer, couldnt-parse
"""


class TestFile(NamedTuple):
    """A file of tests that pass, and how long they took while they were recorded."""

    path: str
    seconds: float


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
    data = folder / re.sub(r"[/.]", "-", test)
    if (data / "seconds").exists():
        return f"{test}: recorded before"
    data.mkdir(exist_ok=True)
    for part in data.iterdir():
        part.unlink()
    environment = {**os.environ, _CONTEXT: test, "COVERAGE_RCFILE": str(settings), "COVERAGE_FILE": str(data / "lines")}
    command = [sys.executable, "-m", "coverage", "run", "-m", "pytest", "-q", "-m", MARKERS, test]
    started = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - started
    if done.returncode == 0:
        (data / "seconds").write_text(f"{seconds:.1f}")
    last = done.stdout.strip().rpartition("\n")[2]
    return f"{seconds:5.0f} s  {test}: {'recorded' if done.returncode == 0 else 'NOT RECORDED'}: {last}"


class Covering:
    """What was recorded: for each line its test files.

    Args:
        folder: What `record` has written.
    """

    def __init__(self, folder: Path):
        self.seconds: dict[str, float] = {}
        self._tests: dict[str, dict[int, set[str]]] = {}
        for test in test_files():
            data = folder / re.sub(r"[/.]", "-", test)
            if not (data / "seconds").exists():
                continue
            self.seconds[test] = float((data / "seconds").read_text())
            for part in data.glob("lines.*"):
                self._add(test, part)
        self._callers = _callers_of_kernels()

    def _add(self, test: str, part: Path) -> None:
        lines = CoverageData(str(part))
        lines.read()
        for name in lines.measured_files():
            path = "reput/" + name.rpartition("/reput/")[2]
            known = self._tests.setdefault(path, {})
            for line in lines.lines(name) or []:
                known.setdefault(line, set()).add(test)

    def of(self, change: Change) -> list[str]:
        """The test files that run a changed line: the file that mirrors its module first, then the fastest."""
        if change.layer == "kernels" and change.function:
            places = _lines_that_call(change.function.partition(".")[0], change.path, self._callers)
        else:
            places = {(change.path, line) for line in range(change.statement_line, change.line + 1)}
        covering = {test for path, number in places for test in self._tests.get(path, {}).get(number, ())}
        # Python workers of Spark end without a record.
        covering |= {test for test in self.seconds if not covering and test.startswith("tests/spark/")}
        mirror = _mirror(change.path)
        covering |= {test for test in self.seconds if test.startswith(mirror)}
        return sorted(covering, key=lambda test: (not test.startswith(mirror), self.seconds[test]))


def _mirror(path: str) -> str:
    """How the names of the unit tests of a module begin: reput/log/scan.py -> tests/unit/log/test_scan."""
    folder, _, name = path.removeprefix("reput/").rpartition("/")
    return f"tests/unit/{folder}/test_{name.removesuffix('.py').strip('_')}"


def _lines_that_call(function: str, path: str, callers: dict[str, list[tuple[str, str, int]]]) -> set[tuple[str, int]]:
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
