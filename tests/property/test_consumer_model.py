"""Consumers in virtual time, against a reference: each queue has one member of a group, or all that broadcast."""

from __future__ import annotations

import pytest

from tests.support.patience import impatient
from tests.support.virtual.runs import KINDS, run

#: Histories of each kind, the last ones with faults that were found; `make campaign` has thousands.
_SEEDS = (0, 1, 2, 7, 71, 174, 200181, 200721)
#: Histories with more troubles, the last ones with faults that were found.
_TROUBLED_SEEDS = (0, 1)
#: Histories with slaves, by kind and seed, the last ones with faults that were found.
_SEEDS_OF_SLAVES = (
    *((kind, 0) for kind in KINDS), ("concurrent", 25), ("concurrent", 51), ("concurrent", 206), ("pull", 229),
    ("concurrent", 450),
)  # fmt: skip


@pytest.mark.parametrize("seed", _SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_each_queue_has_one_member_and_what_is_committed_is_what_was_handled(
    monkeypatch: pytest.MonkeyPatch, kind: str, seed: int
) -> None:
    impatient(3.0, monkeypatch)  # as in the product
    counts = run(kind, seed)
    assert counts["messages handled"]
    assert counts["commits"]


@pytest.mark.parametrize(("kind", "seed"), [(kind, seed) for kind in KINDS for seed in _TROUBLED_SEEDS])
def test_the_same_holds_where_brokers_move_name_servers_are_away_and_requests_are_refused(
    monkeypatch: pytest.MonkeyPatch, kind: str, seed: int
) -> None:
    impatient(3.0, monkeypatch)  # as in the product
    counts = run(kind, seed, "more")
    assert counts["messages handled"]
    assert counts["commits"]


@pytest.mark.parametrize(("kind", "seed"), _SEEDS_OF_SLAVES)
def test_the_same_holds_where_slaves_serve_members_while_masters_are_away(
    monkeypatch: pytest.MonkeyPatch, kind: str, seed: int
) -> None:
    impatient(3.0, monkeypatch)  # as in the product
    counts = run(kind, seed, "of slaves")
    assert counts["messages handled"]
    assert counts["commits"]
