"""Kernels are compiled in several processes, once for all that want them, and whatever happens to these processes."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reput import kernel_loader
from reput.files import DISK
from tests.support.kernel_cache import WITHOUT_WHEEL, cache_without, whole_cache
from tests.support.shares import sampled

MISSING = ("gather.total_size", "batched_io.read_runs")
NAMES = [name.partition(".")[2] for name in MISSING]
#: Prints which kernels this process itself has compiled, and how many processes it has started.
LOAD = """
import json, os, subprocess, sys
started = []
class Counted(subprocess.Popen):
    def __init__(self, *arguments, **options):
        started.append(arguments[0])
        super().__init__(*arguments, **options)
subprocess.Popen = Counted
{before}
from reput.kernel_loader import load_kernels
load_kernels()
from reput.kernels.machine.jit import _declared
print(json.dumps([sorted(each.__name__ for each in _declared if each.stats.cache_misses), len(started)]))
"""
#: Holds the lock of a cache until it is killed.
HOLD = "import sys; from reput.files import DISK; lock = DISK.lock(sys.argv[1]); print(flush=True); sys.stdin.read()"


def loading(cache: Path, before: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", LOAD.format(before=before)],
        env=os.environ | WITHOUT_WHEEL | {"REPUT_CACHE_DIR": str(cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def compiled(process: subprocess.Popen[str], cache: Path) -> tuple[list[str], int, list[str]]:
    """(kernels that a process has compiled itself, count of its children, its lines); all are in the cache then."""
    out, err = process.communicate()
    assert process.returncode == 0, err
    ours = f"*.py{sys.version_info.major}{sys.version_info.minor}.nbi"  # another Python may have a cache beside
    assert {file.name for file in whole_cache().glob(f"*/{ours}")} <= {file.name for file in cache.glob(f"*/*/{ours}")}
    names, children = json.loads(out)
    return names, children, err.splitlines()


def with_processors(count: int) -> str:
    return f"os.sched_getaffinity = lambda process: set(range({count}))"


def with_memory(size: int) -> str:
    return f"from reput.files import FileLayer; FileLayer.available_memory = lambda layer: {size}"


@contextmanager
def lock_held(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds a lock."""
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        yield holder
        holder.kill()


def lock_of(cache: Path) -> Path:
    return cache / whole_cache().name / "lock"


#: As in a service with many connections: later descriptors are larger than select takes.
MANY_DESCRIPTORS = (
    "import os, resource; resource.setrlimit(resource.RLIMIT_NOFILE, (2000, 2000)); [os.dup(0) for _ in range(1100)]"
)


@pytest.mark.parametrize("before", ["pass", pytest.param(MANY_DESCRIPTORS, marks=pytest.mark.slow)])
def test_what_the_cache_lacks_is_compiled_by_children(tmp_path: Path, before: str) -> None:
    cache = cache_without(tmp_path / "cache", *MISSING)
    names, children, (line,) = compiled(loading(cache, f"{before}; {with_processors(64)}"), cache)
    assert (names, children) == ([], len(MISSING))
    begin = "reput: compiling kernels, once for this version: 1 of 2, about "
    assert line.startswith(begin)
    assert line.endswith(f" s left (they are kept in {lock_of(cache).parent})")


@sampled(2)
@pytest.mark.parametrize(
    ("before", "children"),
    [
        (with_processors(1), 0),
        pytest.param(with_memory(kernel_loader._PROCESS_BYTES * 2 - 1), 0, marks=pytest.mark.slow),
        # cannot be started
        pytest.param(with_processors(2) + "; sys.executable = '/dev/python'", 1, marks=pytest.mark.slow),
        (with_processors(2) + "; sys.executable = {dies!r}", 2),
        # a program that has Python in it
        pytest.param(with_processors(2) + "; sys.executable = '/bin/true'", 0, marks=pytest.mark.slow),
    ],
)
def test_without_children_one_process_compiles_all(before: str, children: int, tmp_path: Path) -> None:
    dies = tmp_path / "python-that-dies"
    dies.symlink_to("/bin/false")
    cache = cache_without(tmp_path / "cache", *MISSING)
    names, started, (line,) = compiled(loading(cache, before.replace("{dies!r}", repr(str(dies)))), cache)
    assert (names, started) == (sorted(NAMES), children)
    assert "1 of 2" in line


@pytest.mark.slow
def test_children_have_the_modules_of_their_parent_and_none_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numba.py").write_text("raise SystemExit")
    shutil.copytree(Path(kernel_loader.__file__).parent, tmp_path / "elsewhere/reput")
    cache = cache_without(tmp_path / "cache", *MISSING)
    before = f"sys.path.insert(0, {str(tmp_path / 'elsewhere')!r}); sys.path.remove('')"
    monkeypatch.chdir(tmp_path)
    names, children, _ = compiled(loading(cache, f"{before}; {with_processors(2)}"), cache)
    assert (names, children) == ([], len(MISSING))


def test_a_whole_cache_needs_no_process_and_no_line() -> None:
    cache = whole_cache().parent
    assert compiled(loading(cache, with_processors(2)), cache) == ([], 0, [])


@pytest.mark.slow
def test_of_two_processes_one_compiles(tmp_path: Path) -> None:
    cache = cache_without(tmp_path / "cache", *MISSING)
    both = [loading(cache, with_processors(1)) for _ in range(2)]
    done = [compiled(one, cache) for one in both]
    assert sorted(names for names, _, _ in done) == [[], sorted(NAMES)]


def test_a_process_waits_for_one_that_compiles_and_says_so(tmp_path: Path) -> None:
    cache = cache_without(tmp_path / "cache", *MISSING)
    with lock_held(lock_of(cache)):
        process = loading(cache, with_processors(2))
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line == f"reput: waiting for another process that compiles the kernels (it locks {lock_of(cache)})\n"
        shutil.copytree(whole_cache(), lock_of(cache).parent, dirs_exist_ok=True)
    assert compiled(process, cache) == ([], 0, [])


@pytest.mark.slow
def test_a_process_that_was_killed_while_it_compiled_holds_up_nobody(tmp_path: Path) -> None:
    cache = cache_without(tmp_path / "cache", *MISSING)
    with lock_held(lock_of(cache)) as holder:
        process = loading(cache, with_processors(1))
        assert process.stderr is not None
        assert "waiting" in process.stderr.readline()
        holder.kill()
        names, _, (line,) = compiled(process, cache)
    assert names == sorted(NAMES)
    assert "compiling" in line


def test_nobody_waits_where_a_folder_has_no_locks_or_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "reput.kernels")
    with kernel_loader._alone(str(tmp_path / "none")):
        pass
    monkeypatch.setattr(kernel_loader, "_MOST_WAIT_S", 0.01)
    with lock_held(tmp_path / "lock"), kernel_loader._alone(str(tmp_path)):
        pass
    with kernel_loader._alone(str(tmp_path)), pytest.raises(Exception, match="has the store open"):
        DISK.lock(str(tmp_path / "lock"))
