"""A disk that fails once, with an I/O error or for want of space, at every kind of operation."""

from __future__ import annotations

import errno
import os
import random
from collections import Counter
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import reput
from lab.campaign.cases import Part
from tests.support.faulty_files import Operation, fail_at, fail_next
from tests.support.invariants import Acknowledged, check_acknowledged
from tests.support.scenarios import SCENARIOS, start_again

#: Its check knows all records that there may be.
_WHOLE_LOG = "sink commits"
_SYNCS = 0.4
_ENDS = (
    "as it is", "a power cut", "a start, a power cut", "a start, a checkpoint, a power cut",
    "a start, a close, a power cut",
)  # fmt: skip


@cache
def _operations(index: int) -> list[tuple[str, str]]:
    """Of a healthy life: the kind of each operation, and the part of the store that it is about."""
    seen: list[Operation] = []
    with TemporaryDirectory(prefix="reput-campaign-") as folder:
        path = Path(folder) / "life"
        SCENARIOS[index].live(path, seen.append)
        return [(one.kind, os.path.relpath(one.path, path).partition("/")[0]) for one in seen]


def run(folder: Path, seed: int) -> Counter[str]:
    """One life with one operation that fails; whatever came of it, the next life must have what was acknowledged.

    That is so after a power cut, too, and where the store was started and written to in the same machine before it.
    """
    chance = random.Random(seed)
    index = seed % len(SCENARIOS)
    scenario, operations, code = SCENARIOS[index], _operations(index), chance.choice((errno.EIO, errno.ENOSPC))
    end, number = chance.choice(_ENDS), chance.randrange(len(operations))
    kind, part = operations[number]
    judge = fail_at(number, code)
    if chance.random() < _SYNCS:  # few operations are: a failed one loses most, and each part in its own way
        syncs = Counter(part for kind, part in operations if kind == "sync")
        kind, part = "sync", chance.choice(sorted(syncs))
        judge = fail_next("sync", code, part=str(folder / "life" / part), after=chance.randrange(syncs[part]))
    files, check = scenario.live(folder / "life", judge)
    left = folder / "life"
    answered: list[Acknowledged] = []
    if end == "a power cut":
        left = folder / "left"
        files.cut_power(folder / "life", left)
    elif end != "as it is" and (folder / "life").exists():
        left = folder / "left"
        answers = 0 if scenario.name == _WHOLE_LOG else 4
        start_again(
            folder / "life", files, left, scenario.options, answered,
            checkpoints="checkpoint" in end, closes="close" in end, answers=answers,
        )  # fmt: skip
    check(left)
    if "close" in end or scenario.options.get("flush_disk_type") != "ASYNC_FLUSH":
        with reput.MessageStore.open(left, read_only=True, **scenario.options) as store:
            check_acknowledged(store, answered)
    return Counter(
        {
            "faults": 1,
            f"scenario: {scenario.name}": 1,
            f"at: {kind} of {part}" if kind == "sync" else f"at: {kind}": 1,
            errno.errorcode[code]: 1,
            f"then: {end}": 1,
        }
    )


PART = Part("faults", "an operation of the file layer that fails once", 2_000, run, ("faults",))
