"""Kernels are compiled in several processes, and whatever happens to these, all are there at the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.kernel_cache import cache_without, whole_cache

MISSING = ("gather.total_size", "runs.read_runs")
#: Prints which kernels this process itself has compiled, and the processes that it has started.
COMPILE = """
import json, os, subprocess, sys
started = []
class Counted(subprocess.Popen):
    def __init__(self, *arguments, **options):
        started.append(arguments[0])
        super().__init__(*arguments, **options)
subprocess.Popen = Counted
{before}
from reput.kernel_loader import compile_kernels, load_kernels
compile_kernels()
load_kernels()
from reput.kernels._jit import _declared
print(json.dumps([sorted(each.__name__ for each in _declared if each.stats.cache_misses), len(started)]))
"""


def compiled(cache: Path, before: str) -> tuple[list[str], int]:
    """(kernels that one process has compiled itself, count of its children); all kernels are in the cache then."""
    done = subprocess.run(
        [sys.executable, "-c", COMPILE.format(before=before)],
        env={**os.environ, "REPUT_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    ours = f"*.py{sys.version_info.major}{sys.version_info.minor}.nbi"  # another Python may have a cache beside
    assert {file.name for file in whole_cache().glob(f"*/{ours}")} <= {file.name for file in cache.glob(f"*/*/{ours}")}
    names, children = json.loads(done.stdout)
    return names, children


def with_processors(count: int) -> str:
    return f"os.sched_getaffinity = lambda process: set(range({count}))"


def test_what_the_cache_lacks_is_compiled_by_children(tmp_path: Path) -> None:
    cache = cache_without(tmp_path / "cache", *MISSING)
    assert compiled(cache, with_processors(64)) == ([], len(MISSING))


@pytest.mark.parametrize(
    ("before", "children"),
    [
        (with_processors(1), 0),
        (with_processors(2) + "; sys.executable = '/dev/null'", 1),  # cannot be started
        (with_processors(2) + "; sys.executable = '/bin/false'", 2),  # dies
    ],
)
def test_without_children_one_process_compiles_all(before: str, children: int, tmp_path: Path) -> None:
    cache = cache_without(tmp_path / "cache", *MISSING)
    names = sorted(name.partition(".")[2] for name in MISSING)
    assert compiled(cache, before) == (names, children)


def test_a_whole_cache_needs_no_process() -> None:
    assert compiled(whole_cache().parent, with_processors(2)) == ([], 0)
