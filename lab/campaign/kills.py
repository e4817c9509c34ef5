"""SIGKILL of a real process under load; what it acknowledged was written down outside of it."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import reput
from lab.campaign.cases import Part
from tests.support.faulty_files import FaultyFiles
from tests.support.invariants import check_acknowledged, check_rebuild, check_store
from tests.support.writer import OPTIONS, check_prefixes, with_places, write_and_kill


def run(folder: Path, seed: int) -> Counter[str]:
    """One store whose writer is killed twice in a row; after each kill a copy must recover."""
    chance = random.Random(seed)
    way, mode = chance.choice(("single", "table")), chance.choice(("SYNC_FLUSH", "ASYNC_FLUSH"))
    options, lines = OPTIONS | {"flush_disk_type": mode}, []
    killed = folder / "killed"
    for kill in range(2):
        lines += write_and_kill(killed, way, 2 * seed + kill, options)
        path = folder / f"recovered-{kill}"
        shutil.copytree(killed, path)
        with reput.MessageStore.open(path, files=FaultyFiles(), **options):
            pass
        records = check_store(path, options)
        with reput.MessageStore.open(path, files=FaultyFiles(), **options) as store:
            check_acknowledged(store, with_places(lines, records))
        check_rebuild(path, folder / f"rebuilt-{kill}", options)
        if way == "table":
            check_prefixes(records)
    return Counter({"kills": 2, "acknowledged messages": len(lines), f"mode: {mode}": 1, f"way: {way}": 1})


PART = Part("kills", "SIGKILL of a process that writes, twice in a row", 100, run, ("kills", "acknowledged messages"))
