"""Power cuts and kills below the file layer, at every kind of operation, once or twice in a row."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import reput
from lab.campaign.cases import Part
from reput.errors import StoreError
from tests.support.faulty_files import Crash, FaultyFiles, abandon, crash_at, no_objection
from tests.support.invariants import log_records
from tests.support.scenarios import SCENARIOS, Scenario


@cache
def operations(index: int) -> int:
    """Number of operations of a life; counted once a process, which proves the life without a crash, too."""
    with TemporaryDirectory(prefix="reput-campaign-") as folder:
        return SCENARIOS[index].count(Path(folder) / "healthy")


def run(folder: Path, seed: int) -> Counter[str]:
    """One life that ends at an operation drawn by the seed; what is left must hold, after a second crash, too."""
    chance = random.Random(seed)
    scenario = SCENARIOS[seed % len(SCENARIOS)]
    number = chance.randrange(operations(seed % len(SCENARIOS)))
    way = chance.choice(("kill", "what was synced", "torn and reordered", "torn and reordered"))
    twice = chance.random() < 0.4
    files, check = scenario.live(folder / "life", crash_at(number))
    kind = files.operations[number].kind if number < len(files.operations) else "after its end"
    left = _left(files, folder / "life", folder / "left", way, chance)
    if twice:
        left = _die_again(scenario, files if way == "kill" else None, left, folder / "again", chance)
    check(left)
    return Counter({"crash points": 1 + twice, f"scenario: {scenario.name}": 1, f"way: {way}": 1, f"at: {kind}": 1})


def _left(files: FaultyFiles, path: Path, target: Path, way: str, chance: random.Random) -> Path:
    if way == "kill":
        return path
    files.cut_power(path, target, None if way == "what was synced" else chance)
    return target


def _die_again(scenario: Scenario, killed: FaultyFiles | None, path: Path, target: Path, chance: random.Random) -> Path:
    """Start what a crash has left, and cut the power during that start, shortly behind it, or behind a clean exit.

    What the log had once it was opened is all that may ever be in it again: what recovery has cut does not come back.
    """
    closes = chance.random() < 0.3
    files = FaultyFiles(no_objection if closes else crash_at(chance.randrange(40)))
    if killed is not None:
        files.goes_on_after(killed)
    elif path.is_dir():
        files.all_is_durable(path)
    served: list[str] | None = None
    store = None
    with suppress(Crash, StoreError):
        store = reput.MessageStore.open(path, files=files, **scenario.options)
        served = _keys(path)
        if closes:
            store.close()
    if store is not None:
        abandon(store, files)
    files.abandon()
    files.cut_power(path, target, chance)
    if served is not None:
        copy = target.with_name("served")
        after = FaultyFiles()
        after.all_is_durable(target)
        after.cut_power(target, copy)
        with reput.MessageStore.open(copy, files=FaultyFiles(), **scenario.options):
            pass
        again = _keys(copy)
        assert again == served[: len(again)], "records came back that a start had cut"
        assert not closes or again == served, "a clean exit has lost records"
    return target


def _keys(path: Path) -> list[str]:
    return [f"{record.offset} {record.row['keys']!r}" for record in log_records(path)]


PART = Part(
    "power",
    "power cuts and kills at every operation of the file layer, torn and reordered",
    8_000,
    run,
    ("crash points",),
)
