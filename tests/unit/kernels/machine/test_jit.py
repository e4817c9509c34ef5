"""Compiled kernels are found again by their sources, wherever these are installed; which Python may load them."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import reput
from reput import Message, MessageStore
from reput.kernel_loader import load_kernels
from reput.kernels.queues import consume_queue, index_search
from tests.support.kernel_cache import WITHOUT_WHEEL, cache_without, kernels_in, whole_cache
from tests.support.shares import sampled

PACKAGE = Path(reput.__file__).parent


@sampled(2)
@pytest.mark.parametrize("form", ["folder", "zip"])
def test_another_installation_of_the_same_sources_finds_the_compiled_kernels(form: str, tmp_path: Path) -> None:
    from reput.kernels.machine import crc32

    crc32.crc32_slices.load()
    shutil.copytree(PACKAGE, tmp_path / "reput", ignore=shutil.ignore_patterns("__pycache__"))
    installed = tmp_path
    if form == "zip":
        installed = Path(shutil.make_archive(str(tmp_path / "installed"), "zip", tmp_path, "reput"))
    code = (
        "from reput.kernels.machine import crc32 as c; c.crc32_slices.load(); "
        "print(c.__file__, *map(len, c.crc32_slices.stats[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(installed)},
        cwd=tmp_path.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    path, hits, misses = done.stdout.split()
    assert Path(path).is_relative_to(installed)
    assert (hits, misses) == ("1", "0")


@pytest.mark.parametrize("use", ["MessageStore.open(PATH)", "read_log(PATH)"])
def test_a_free_threaded_python_may_import_reput_but_loads_no_kernel(use: str, tmp_path: Path) -> None:
    code = (
        "import sysconfig, sys; sysconfig.get_config_vars()['Py_GIL_DISABLED'] = 1\n"
        "import reput\n"
        "for _ in range(2):\n"
        "    try:\n"
        f"        reput.{use.replace('PATH', repr(str(tmp_path / 'store')))}\n"
        "    except reput.ReputError as error:\n"
        "        print('numba' in sys.modules, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first == second
    assert first.startswith("False free-threaded Python")
    assert list(tmp_path.iterdir()) == []


_USE = """
import logging, sys
records = []
class Seen(logging.Handler):
    def emit(self, record):
        records.append(record.getMessage())
if sys.argv[2:]:
    logging.getLogger("reput.kernels").addHandler(Seen())
    logging.getLogger("reput.kernels").setLevel(logging.INFO)
from reput import MessageStore
with MessageStore.open(sys.argv[1], read_only=True):
    print(*records, sep="\\n", end="")
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_logged", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_library_says_in_one_line_that_it_compiles_and_logs_the_rest(is_logged: bool, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store") as store:
        store.put_message(Message("orders", b"one"))
    cache = cache_without(tmp_path / "cache", "batched_io.read_runs", "record_scan._scan_headers")
    done = subprocess.run(
        [sys.executable, "-c", _USE, str(tmp_path / "store"), *(["logged"] if is_logged else [])],
        env=os.environ | WITHOUT_WHEEL | {"REPUT_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "batched_io.read_runs" in kernels_in(cache)
    lines = (done.stdout if is_logged else done.stderr).splitlines()
    assert (done.stderr if is_logged else done.stdout) == ""
    begin = "reput: compiling kernels, once for this version: "
    assert re.fullmatch(rf"{begin}\w+, about \d+ s left \(they are kept in {cache}/\S+\)", lines[0])
    assert [line.partition(" in ")[0] for line in lines[1::2]] == ["reput: kernels compiled"] * (2 * is_logged)
    assert [line for line in lines[2::2] if "kept" in line] == []


def test_a_kernel_of_plain_numbers_is_called_without_a_wrapper_once_it_is_loaded() -> None:
    load_kernels()
    assert type(consume_queue.select_run) is type(index_search.find_key) is type(len)


def test_a_load_has_the_kernels_of_all_modules() -> None:
    """What is missing would be compiled at its first use, at each start where the cache is read-only."""
    names = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for path in (*PACKAGE.glob("kernels/**/*.py"), *PACKAGE.glob("files/*.py"))
        if "\n@kernel(" in path.read_text()
    }
    code = "import sys; from reput.kernel_loader import load_kernels; load_kernels(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert len(names) > 20
    assert names - loaded == set()
    assert "pyarrow" not in loaded


@pytest.mark.parametrize("option", ["-O", "-OO"])
def test_a_python_without_docstrings_loads_the_kernels_of_any_other(option: str) -> None:
    load_kernels()
    code = "from reput.kernel_loader import load_kernels; load_kernels()"
    done = subprocess.run([sys.executable, option, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_a_load_of_compiled_kernels_imports_nothing_that_only_a_compilation_needs() -> None:
    load_kernels()
    code = (
        "import sys; from reput.kernel_loader import load_kernels; load_kernels()\n"
        "names = 'numba.cpython.unicode', 'numba.np.arrayobj', 'numba.np.linalg', 'numba.typed.typeddict'\n"
        "print([name for name in names if name in sys.modules])\n"
        "import numba, numpy\n"
        "@numba.njit\n"
        "def doubled(count):\n"
        "    return 2 * numpy.arange(count)\n"
        "print(doubled(3).tolist())\n"  # a program may compile functions of its own beside them
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "[0, 2, 4]"]


def test_the_cache_keeps_kernels_as_machine_code_alone() -> None:
    """In LLVM's language, which Numba keeps, too, they are twice as long, and all of it is parsed at a load."""
    kept = [pickle.loads(file.read_bytes()) for file in whole_cache().glob("*/*.nbc")]
    codes, languages = zip(*(library[2] for library, *_ in kept), strict=True)
    assert sum(map(len, languages)) < sum(map(len, codes)) / 5
