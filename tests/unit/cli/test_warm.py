"""reput warm: kernels compiled ahead, told while it takes; and a store read ahead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

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
