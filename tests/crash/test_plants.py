"""Damages with names, several at a time: what an audit calls clean opens, and answers as before."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.campaign import plants
from tests.support.shares import sampled


@sampled(5)
@pytest.mark.parametrize("seed", range(10))
def test_what_is_clean_after_several_damages_opens_and_answers_as_before(tmp_path: Path, seed: int) -> None:
    counts = plants.run(tmp_path, seed)
    assert sum(count for name, count in counts.items() if name.startswith("audit: ")) == 1
    assert counts["planted damages"]
