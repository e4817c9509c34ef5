"""SIGKILL of a broker: under load, while it starts, and while it stops; its clients know what they were answered."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

from lab.campaign.cases import Part
from tests.support.broker_ledger import Ledger
from tests.support.broker_load import Death, kill_starting, load_until_death

#: Lives of a store that end by a kill; one more ends by itself.
_KILLS = 3
_MOST_ANSWERS = 1500


def run(folder: Path, seed: int) -> Counter[str]:
    """One store whose broker is killed again and again; after each death, and after a clean stop, a copy is checked."""
    chance = random.Random(seed)
    mode = chance.choice(("SYNC_FLUSH", "ASYNC_FLUSH"))
    store, ledger, counts = folder / "store", Ledger(), Counter({f"mode: {mode}": 1})
    starts_in_s = 1.0
    for life in range(_KILLS):
        way = chance.choice(("load", "load", "start", "stop"))
        is_clean = False
        if way == "start":
            is_starting = kill_starting(store, chance.uniform(0.2, 1.1) * starts_in_s, flush_disk_type=mode)
            way = "start" if is_starting else "idle"
        else:
            death = Death(
                chance.randrange(1, _MOST_ANSWERS), chance.uniform(0, 0.02), way == "stop", chance.uniform(0, 0.15)
            )
            is_clean = load_until_death(store, ledger, f"{life}", death, flush_disk_type=mode)
            way = "nothing: it had stopped" if is_clean else way
        counts[f"killed in: {way}"] += 1
        counts["kills"] += not is_clean
        ledger.check(store, folder / f"check-{life}", is_clean=is_clean)
    last = Death(100, is_stopped=True, is_drained=True)
    assert load_until_death(store, ledger, f"{_KILLS}", last, flush_disk_type=mode), "a broker that stops was killed"
    ledger.check(store, folder / "check", is_clean=True)
    consumed = sum(ledger.consumed.values())
    made = {"acknowledged messages": len(ledger.acknowledged), "consumed": consumed, "topics": len(ledger.topics)}
    return counts + Counter(made)


PART = Part(
    "brokers", "SIGKILL of a broker under load, while it starts and while it stops, three times in a row", 100, run,
    ("kills", "acknowledged messages"),
)  # fmt: skip
