"""Compiled kernels are found again by their sources, wherever these are installed; which Python may load them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import reput

PACKAGE = Path(reput.__file__).parent


@pytest.mark.parametrize("form", ["folder", "zip"])
def test_another_installation_of_the_same_sources_finds_the_compiled_kernels(form: str, tmp_path: Path) -> None:
    from reput.kernels import crc32

    assert crc32.crc32_slices.signatures  # compiled and cached by now, if not before
    shutil.copytree(PACKAGE, tmp_path / "reput", ignore=shutil.ignore_patterns("__pycache__"))
    installed = tmp_path
    if form == "zip":
        installed = Path(shutil.make_archive(str(tmp_path / "installed"), "zip", tmp_path, "reput"))
    code = "from reput.kernels import crc32 as c; print(c.__file__, *map(len, c.crc32_slices.stats[1:]))"
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
