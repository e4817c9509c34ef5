"""A disk that fails once, with an I/O error or for want of space, at every kind of operation."""

from __future__ import annotations

import errno
import random
from collections import Counter
from pathlib import Path

from campaign.cases import Part
from campaign.power import operations
from tests.crash.faulty_files import fail_at
from tests.crash.scenarios import SCENARIOS

#: Each of its batches is a start of its own; and a start takes what the page cache shows for what the disk has.
_SEVERAL_STARTS = "sink commits"


def run(folder: Path, seed: int) -> Counter[str]:
    """One life with one operation that fails; whatever came of it, the next life must have what was acknowledged."""
    chance = random.Random(seed)
    index = seed % len(SCENARIOS)
    code = chance.choice((errno.EIO, errno.ENOSPC))
    number = chance.randrange(operations(index))
    files, check = SCENARIOS[index].live(folder / "life", fail_at(number, code))
    left, is_cut = folder / "life", chance.random() < 0.5 and SCENARIOS[index].name != _SEVERAL_STARTS
    if is_cut:  # then a failed sync, too, has lost what it was to write
        left = folder / "left"
        files.cut_power(folder / "life", left)
    check(left)
    kind = files.operations[number].kind if number < len(files.operations) else "after its end"
    return Counter(
        {
            "faults": 1,
            f"scenario: {SCENARIOS[index].name}": 1,
            f"at: {kind}": 1,
            errno.errorcode[code]: 1,
            "power cuts": is_cut,
        }
    )


PART = Part("faults", "an operation of the file layer that fails once", 2_000, run, ("faults",))
