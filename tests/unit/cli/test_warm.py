"""reput warm: kernels compiled ahead, told while it takes; and a store read ahead."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from reput.kernel_loader import compile_kernels
from reput.kernels._cache import cache_folder
from tests.support.commands import Run, content_of, truth


def test_kernels_that_are_there_are_loaded_and_left(run_reput: Run) -> None:
    answer = run_reput("warm", "--json")
    assert answer.status == 0
    assert answer.object()["kernels_s"] >= 0
    assert "kernels_s" in run_reput("warm").out


def test_the_newest_part_of_a_store_is_read_and_nothing_is_changed(
    golden: Callable[[str], Path], run_reput: Run
) -> None:
    path = golden("clean")
    before = content_of(path)
    (log,) = truth("clean", "phy")
    answer = run_reput("warm", path, "--json").object()
    assert answer["commit_log_bytes"] == int(log[1]) - int(log[0])
    units = sum(int(end) - int(begin) for _, _, begin, end in truth("clean", "queue"))
    assert answer["consume_queue_bytes"] <= 20 * units
    assert answer["index_bytes"] > 0
    least = run_reput("warm", path, "--bytes", 1000, "--json").object()
    assert least["commit_log_bytes"] == 1000
    assert 0 < least["consume_queue_bytes"] < answer["consume_queue_bytes"]
    assert content_of(path) == before


def test_a_cache_is_made_in_another_folder(tmp_path: Path, capfd: pytest.CaptureFixture[str], run_reput: Run) -> None:
    compile_kernels()
    compiled = Path(cache_folder())
    shutil.copytree(compiled, tmp_path / "cache" / compiled.name)
    (tmp_path / "cache" / compiled.name / "complete").unlink()  # compiling would take long
    assert run_reput("warm", "--cache", tmp_path / "cache", "--json").status == 0
    assert json.loads(capfd.readouterr().out)["kernels_s"] > 0
    assert (tmp_path / "cache" / compiled.name / "complete").exists()


def test_a_cache_in_a_folder_that_cannot_be_written_is_refused(run_reput: Run) -> None:
    answer = run_reput("warm", "--cache", "/dev/null/cache")
    assert (answer.status, answer.out) == (2, "")
    assert "/dev/null/cache: cannot be written" in answer.err
    assert run_reput("warm", "store", "--cache", "cache").status == 2
