"""reput replay: from one store into another."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import Run


def test_messages_come_over_once(store: Path, tmp_path: Path, run_reput: Run) -> None:
    target = tmp_path / "target"
    arguments = ("replay", store, target, "--topics", "orders", "--speed", "1000000x", "--json")
    assert run_reput(*arguments).object()["messages"] == 5
    again = run_reput(*arguments).object()
    assert (again["messages"], again["resumed_at"]) == (0, again["next_offset"])
    lines = [run_reput("query", path, "--topics", "orders", "--json").lines() for path in (store, target)]
    kept = ("topic", "queue_id", "queue_offset", "tags", "keys", "properties", "born_timestamp")
    for before, after in zip(*lines, strict=True):
        assert {name: before[name] for name in kept} == {name: after[name] for name in kept}
    assert "messages" in run_reput("replay", store, target, "--speed", "max", "--name", "anew").out


@pytest.mark.parametrize("speed", ["0", "-1x", "fast", "nan", "inf"])
def test_what_is_no_speed_is_refused(store: Path, tmp_path: Path, run_reput: Run, speed: str) -> None:
    answer = run_reput("replay", store, tmp_path / "target", "--speed", speed)
    assert (answer.status, answer.out) == (2, "")
    assert "is no speed; write 1x, 10x, 0.5x, or max" in answer.err
    assert not (tmp_path / "target").exists()
