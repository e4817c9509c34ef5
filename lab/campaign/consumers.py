"""Groups of consumers in virtual time against a reference: joins, deaths, resets, slow handlers, lost answers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from lab.campaign.cases import Part
from tests.support.virtual.peers import play
from tests.support.virtual.runs import KINDS, run


def case(folder: Path, seed: int) -> Counter[str]:
    """Three histories of a group, with few troubles, more, and slaves, and one of clients whose peers are in trouble.

    The kinds of consumers are in turn.
    """
    kind = KINDS[seed % len(KINDS)]
    of_groups = run(kind, seed) + run(kind, seed, "more") + run(kind, seed, "of slaves")
    return of_groups + play(seed) + Counter({f"kind: {kind}": 1})


PART = Part(
    "consumers", "groups of consumers that come and go, in virtual time, against a reference", 2000, case,
    ("messages handled", "commits", "resets", "members that died", "brokers killed"),
)  # fmt: skip
