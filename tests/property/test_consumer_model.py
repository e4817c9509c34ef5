"""Consumers in virtual time, against a reference: each queue has one member of a group, or all that broadcast."""

from __future__ import annotations

import pytest

from tests.support.patience import impatient
from tests.support.virtual.runs import KINDS, run

#: Histories of each kind, the last ones with faults that were found; `make campaign` has thousands.
_SEEDS = (0, 1, 2, 7, 71, 174, 200181, 200721)


@pytest.mark.parametrize("seed", _SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_each_queue_has_one_member_and_what_is_committed_is_what_was_handled(
    monkeypatch: pytest.MonkeyPatch, kind: str, seed: int
) -> None:
    impatient(3.0, monkeypatch)  # as in the product
    counts = run(kind, seed)
    assert counts["messages handled"]
    assert counts["commits"]
