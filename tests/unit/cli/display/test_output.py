"""What commands show of kernels that are compiled: one line, which changes on a terminal."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.kernel_cache import cache_without, kernels_in
from tests.support.terminal import shown_on_a_terminal


@pytest.mark.slow
def test_a_first_command_compiles_only_what_it_calls_and_says_so_in_one_line(tmp_path: Path, store: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "reput", "info", str(store)],
        env=os.environ | {"REPUT_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert kernels_in(tmp_path / "cache") == [
        "batched_io.are_in_memory",
        "batched_io.read_runs",
        "mapped_pages.first_unreadable",
        "record_scan._scan_headers",
    ]
    (line,) = done.stderr.splitlines()
    begin = "reput: compiling kernels, once for this version: scan_headers, about"
    assert re.fullmatch(rf"{begin} \d s left \(they are kept in {tmp_path}/cache/\S+\)", line)


def test_the_line_stands_below_progress_bars(tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPUT_CACHE_DIR", str(cache_without(tmp_path / "cache", "gather.total_size")))
    shown = shown_on_a_terminal(["stats", str(store)], 80, "stderr")
    drawn = [line for line in shown.replace("\r", "").splitlines() if "kernels" in line]
    assert drawn
    assert all(
        line.startswith("reput: compiling kernels, once for this version: total_size, about 1 s") for line in drawn
    )
