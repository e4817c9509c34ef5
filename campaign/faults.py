"""A disk that fails once, with an I/O error or for want of space, at every kind of operation."""

from __future__ import annotations

import errno
import random
from collections import Counter
from pathlib import Path

import reput
from campaign.cases import Part
from campaign.power import operations
from tests.crash.faulty_files import fail_at, fail_next
from tests.crash.invariants import Acknowledged, check_acknowledged
from tests.crash.scenarios import SCENARIOS, start_again

#: Its check knows all records that there may be.
_WHOLE_LOG = "sink commits"
_SYNCS = 0.4
_ENDS = ("as it is", "a power cut", "a start, a power cut", "a start, a close, a power cut")


def run(folder: Path, seed: int) -> Counter[str]:
    """One life with one operation that fails; whatever came of it, the next life must have what was acknowledged.

    That is so after a power cut, too, and where the store was started and written to in the same machine before it.
    """
    chance = random.Random(seed)
    index = seed % len(SCENARIOS)
    scenario, code = SCENARIOS[index], chance.choice((errno.EIO, errno.ENOSPC))
    number, end = chance.randrange(operations(index)), chance.choice(_ENDS)
    is_sync = chance.random() < _SYNCS  # few operations are: a failed one loses most
    number = chance.randrange(1 + operations(index) // 4) if is_sync else number
    judge = fail_next("sync", code, after=number) if is_sync else fail_at(number, code)
    files, check = scenario.live(folder / "life", judge)
    left = folder / "life"
    answered: list[Acknowledged] = []
    if end == "a power cut":
        left = folder / "left"
        files.cut_power(folder / "life", left)
    elif end != "as it is" and (folder / "life").exists():
        left = folder / "left"
        answers = 0 if scenario.name == _WHOLE_LOG else 4
        start_again(folder / "life", files, left, scenario.options, answered, closes="close" in end, answers=answers)
    check(left)
    if "close" in end or scenario.options.get("flush_disk_type") != "ASYNC_FLUSH":
        with reput.MessageStore.open(left, read_only=True, **scenario.options) as store:
            check_acknowledged(store, answered)
    possible = [operation.kind for operation in files.operations if not is_sync or operation.kind == "sync"]
    kind = possible[number] if number < len(possible) else "after its end"
    return Counter(
        {
            "faults": 1,
            f"scenario: {SCENARIOS[index].name}": 1,
            f"at: {kind}": 1,
            errno.errorcode[code]: 1,
            f"then: {end}": 1,
        }
    )


PART = Part("faults", "an operation of the file layer that fails once", 2_000, run, ("faults",))
