"""reput warm: kernels compiled ahead, told while it takes."""

from __future__ import annotations

from .conftest import Run


def test_kernels_that_are_there_are_loaded_and_left(run_reput: Run) -> None:
    answer = run_reput("warm", "--json")
    assert answer.status == 0
    assert answer.object()["kernels_s"] >= 0
    assert "kernels_s" in run_reput("warm").out
