"""Hostile state: requests with members and values of any kind, and state files that somebody has changed.

A case is a store whose broker takes a hundred such requests in each of some lives. What was answered SUCCESS is there
at each next start: after a clean stop, and in a copy of the running store, as a kill leaves it. Then a value in one of
its state files becomes another one: a start refuses the file and does not touch it, or takes it, and so does the next.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

from lab.campaign.cases import Part
from reput.errors import ReputError
from tests.support.async_tests import run as run_async
from tests.support.broker import fill, serving_broker, with_topic
from tests.support.odd_state import KEYS, OddState, damaged_state

_LIVES, _REQUESTS, _CHANGED_FILES = 3, 100, 5


def run(folder: Path, seed: int) -> Counter[str]:
    """One store."""
    chance = random.Random(seed)
    store, state = folder / "store", OddState(chance)
    for life in range(_LIVES):
        run_async(_life(store, folder / f"killed-{life}", state))
    run_async(_checked(store, state))
    counts = Counter({f"made: {kind}": len(made) for kind, made in state.made.items()})
    counts["requests"] = state.requests
    counts["answered SUCCESS"] = sum(map(len, state.made.values()))
    for number in range(_CHANGED_FILES):
        counts += run_async(_changed(store, folder / f"changed-{number}", chance))
    return counts


async def _life(store: Path, killed: Path, state: OddState) -> None:
    is_new = not store.exists()
    async with serving_broker(store, **KEYS) as served:
        client = await served.client()
        if is_new:
            await with_topic(client, "orders")
            await fill(client, "orders", "a", "b")
        await state.check(served, client)
        await state.write(served, client, _REQUESTS)
        shutil.copytree(store, killed)
    (killed / "lock").unlink()
    async with serving_broker(killed, **KEYS) as served:
        await state.check(served, await served.client(), after_kill=True)
    shutil.rmtree(killed)


async def _checked(store: Path, state: OddState) -> None:
    async with serving_broker(store, **KEYS) as served:
        await state.check(served, await served.client())


async def _changed(store: Path, copy: Path, chance: random.Random) -> Counter[str]:
    """Start on a copy with a state file that has another value; its backup has that, too, in half of the cases."""
    shutil.copytree(store, copy)
    names = sorted(path for path in (copy / "config").glob("*") if path.suffix in (".json", "") and path.is_file())
    path = chance.choice(names)
    path.write_bytes(damaged_state(chance, path.read_bytes()))
    backup = path.with_name(path.name + ".bak")
    if backup.exists() and chance.random() < 0.5:
        shutil.copy(path, backup)
    before = path.read_bytes()
    try:
        for _ in range(2):
            async with serving_broker(copy, **KEYS) as served:
                await (await served.client()).round_trip()
    except ReputError:
        assert path.read_bytes() == before, f"{path.name} was refused, and has changed"
        return Counter({"changed files refused": 1})
    finally:
        shutil.rmtree(copy)
    return Counter({"changed files taken": 1})


PART = Part(
    "states", "requests and state files with members and values of any kind", 30, run,
    ("requests", "answered SUCCESS", "changed files refused", "changed files taken"),
)  # fmt: skip
