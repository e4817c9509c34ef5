"""Kills and power cuts of a broker under retries, delays, transactions, and what it does between clients."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from lab.campaign.cases import Part
from tests.support.kinds.client_calls import ClientCalls
from tests.support.kinds.delays import Delays, Timers
from tests.support.kinds.kind import Kind
from tests.support.kinds.lives import Death, drawn_death, live
from tests.support.kinds.pop import Pop
from tests.support.kinds.retries import Retries
from tests.support.kinds.transactions import Transactions

#: Lives that end by a kill or a power cut; in one more all that was promised comes.
_DEATHS = 3
_CASES = 40


def run(make: Callable[[], Kind], folder: Path, seed: int) -> Counter[str]:
    """One store, whose broker dies three times; after each death a copy is checked."""
    chance = random.Random(seed)
    mode = chance.choice(("SYNC_FLUSH", "ASYNC_FLUSH"))
    kind, store, counts = make(), folder / "store", Counter({f"mode of kills: {mode}": 1})
    for number in range(_DEATHS):
        death = drawn_death(chance)
        kind.life = f"{number}"
        store = live(kind, store, folder / f"life-{number}", death, flush_disk_type=mode)
        counts[f"{death.way}s"] += 1
    kind.life = f"{_DEATHS}"
    live(kind, store, folder / "last", Death("stop", answers=20), flush_disk_type=mode)
    return counts + Counter({"acknowledged messages": kind.answers}) + kind.counts


def _part(name: str, title: str, make: Callable[[], Kind], *figures: str) -> Part:
    figures = ("kills", "power cuts", "acknowledged messages", *figures)
    return Part(name, f"kills and power cuts of a broker: {title}", _CASES, partial(run, make), figures)


PARTS = (
    _part("retries", "messages sent back, dead letters", Retries, "messages sent back", "dead letters"),
    _part("delays", "delay levels", Delays, "delayed messages come"),
    _part("timers", "messages with a time", Timers, "delayed messages come", "messages recalled"),
    _part("transactions", "transactions", Transactions, "transactions committed", "transactions checked"),
    _part("pop", "pops, acks, and what nobody acks", Pop, "messages that were popped again"),
    _part("clients", "locks, resets, replies, broadcasts", ClientCalls, "replies", "resets that a pull was told"),
)
