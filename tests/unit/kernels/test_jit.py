"""Compiled kernels are found again by their sources, wherever these are installed."""

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
