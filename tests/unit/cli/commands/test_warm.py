"""reput warm: kernels compiled ahead, told while it takes; and a store read ahead."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from reput.kernels.machine.cache import COMPLETE
from tests.support.commands import Run, content_of, truth
from tests.support.kernel_cache import cache_without, whole_cache
from tests.support.terminal import shown_on_a_terminal


def test_kernels_that_are_there_are_loaded_and_left(run_reput: Run) -> None:
    answer = run_reput("warm", "--json")
    assert answer.status == 0
    assert answer.object()["kernels_s"] >= 0
    assert answer.object()["kernels"] == str(whole_cache())
    assert "kernels_s" in run_reput("warm").out


def test_the_folder_of_the_kernels_is_told_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_reput: Run
) -> None:
    folder = whole_cache()
    assert run_reput("warm", "--where").out == f"{folder}\n"
    assert run_reput("warm", "--where", "--json").object() == {"kernels": str(folder)}
    command = [sys.executable, "-m", "reput", "warm", "--where"]
    environment = os.environ | {"REPUT_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"{tmp_path}/cache/{folder.name}\n", "")
    assert not (tmp_path / "cache").exists()
    for more in (["store"], ["--spark"], ["--cache", "cache"]):
        assert run_reput("warm", "--where", *more).status == 2


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
    cache = cache_without(tmp_path / "cache")
    assert run_reput("warm", "--cache", cache, "--json").status == 0
    assert json.loads(capfd.readouterr().out)["kernels_s"] > 0
    assert list(cache.glob(f"*/{COMPLETE}"))


@pytest.mark.slow
@pytest.mark.parametrize(("width", "begin"), [(80, "reput: compiling kernels, once for this version: "), (50, "")])
def test_a_terminal_shows_which_kernel_of_how_many_is_compiled_and_the_time_left(
    width: int, begin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = cache_without(tmp_path / "cache", "gather.total_size", "batched_io.read_runs")
    monkeypatch.setenv("REPUT_CACHE_DIR", str(cache))
    shown = shown_on_a_terminal(["warm"], width, "stderr").split("\r")
    *first, second, last = shown
    assert (first, last) == (["", f"{begin}1 of 2, about 1 s left"], "")
    assert re.fullmatch(rf"{begin}2 of 2, about \d+ s left", second)  # by the speed of the first one


def test_a_cache_in_a_folder_that_cannot_be_written_is_refused(run_reput: Run) -> None:
    answer = run_reput("warm", "--cache", "/dev/null/cache")
    assert (answer.status, answer.out) == (2, "")
    assert "/dev/null/cache: cannot be written" in answer.err
    assert run_reput("warm", "store", "--cache", "cache").status == 2
