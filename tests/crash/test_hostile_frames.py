"""The fuzzer of the campaign: a few thousand frames of an enemy keep the promises."""

from __future__ import annotations

import gc
import random
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest

from lab.campaign import frames, network
from lab.campaign.cases import run_case


@pytest.mark.parametrize("seed", range(3))
def test_hostile_frames_raise_errors_of_ours_alone(tmp_path: Path, seed: int) -> None:
    counts = frames.run(tmp_path, 900_000 + seed, 2000)
    assert counts["hostile frames"] == 2000
    assert counts["understood"] > 500
    assert counts["refused"] > 500
    assert len([name for name in counts if name.startswith("way: ")]) == len(set(frames._WAYS))


def test_a_broker_lives_on_whatever_its_connections_send(tmp_path: Path) -> None:
    counts = network.run(tmp_path, 900_000, connections=20, requests=300)
    assert (counts["connections"], counts["requests"]) == (20, 300)
    assert counts["answered SUCCESS"] > 20
    assert counts["messages stored"] > 5


def test_a_bug_that_a_request_meets_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object) -> None:
        raise KeyError("topic")

    monkeypatch.setattr("reput.broker.admin.topic_processor.TopicProcessor.system_topics", breaks)
    with pytest.raises(AssertionError, match=r"bugs, the first: .*request failed.*KeyError\('topic'\)"):
        network.run(tmp_path, 900_000, connections=0, requests=1500)


def test_a_seed_repeats_its_frames() -> None:
    first, second = ([frames.hostile_frame(random.Random(seed)) for seed in range(200)] for _ in range(2))
    assert first == second
    assert len({data for _, data in first}) > 150


def test_the_published_run_has_ten_million_frames() -> None:
    assert frames.PART.cases * frames.FRAMES_OF_A_CASE >= 10_000_000


def test_hostile_frames_leave_no_memory_behind(tmp_path: Path) -> None:
    frames.run(tmp_path, 1, 500)
    tracemalloc.start()
    try:
        frames.run(tmp_path, 1, 500)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        frames.run(tmp_path, 2, 1000)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 100_000


def test_an_error_that_is_not_ours_is_told_with_its_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(data: bytes, chance: random.Random) -> Counter[str]:
        raise KeyError("topic")

    monkeypatch.setattr(frames, "take", breaks)
    _, failure = run_case(frames.PART, 5)
    assert failure is not None
    way, data = frames.hostile_frame(random.Random(5))
    assert failure.text.startswith(f"AssertionError: {way}: KeyError: 'topic': {data[:4000].hex()}")
