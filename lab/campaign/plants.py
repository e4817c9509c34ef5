"""Damages with names, up to three at a time: a store that an audit calls clean opens, and answers as before.

A test plants each of them alone (`tests/property/test_planted_damage.py`).
"""

from __future__ import annotations

import atexit
import random
import shutil
import struct
import tempfile
from collections import Counter
from functools import cache, partial
from pathlib import Path
from typing import Any

from lab.campaign.cases import Part
from lab.campaign.children import in_child
from reput.errors import ReputError
from reput.jobs.audit.job import audit
from reput.jobs.runner import LocalRunner
from tests.support.planted_answers import answers
from tests.support.plants import PLANTS, planted_store


@cache
def _base() -> tuple[Path, dict[str, Any]]:
    """The store to be damaged, and what it answers; made once a process."""
    folder = tempfile.mkdtemp(prefix="reput-campaign-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = planted_store(Path(folder) / "store")
    return path, answers(path, writable=False)


def run(folder: Path, seed: int) -> Counter[str]:
    """One store, in a process of its own."""
    chance = random.Random(seed)
    base, before = _base()
    path = folder / "store"
    shutil.copytree(base, path)
    planted = []
    for name in chance.sample(sorted(PLANTS), chance.choice((1, 2, 2, 3))):
        try:
            PLANTS[name](path)
        except (OSError, ValueError, LookupError, struct.error):  # the one before has taken its place
            continue
        planted.append(name)
    try:
        counts = in_child(partial(_look, path, before))
    except AssertionError as error:
        raise AssertionError(f"{', '.join(planted)}: {error}") from None
    return counts + Counter({"planted damages": len(planted)})


def _look(path: Path, before: dict[str, Any]) -> Counter[str]:
    try:
        if not audit(path, runner=LocalRunner(1)).is_clean:
            return Counter(["audit: findings"])
    except ReputError:
        return Counter(["audit: refused"])
    for writable in (False, True):
        found = answers(path, writable=writable)
        other = [name for name in before.keys() | found.keys() if before.get(name) != found.get(name)]
        assert not other, f"audit clean, and {'a start' if writable else 'a reader'} answers other {sorted(other)[:3]}"
    return Counter(["audit: clean"])


PART = Part(
    "plants", "damages with names, up to three at a time: clean opens", 600, run, ("planted damages", "audit: clean")
)
