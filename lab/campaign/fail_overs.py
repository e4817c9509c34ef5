"""Fail-overs at any moment, while clients send messages of all kinds, pop and acknowledge some, and commit others.

The slave is lost at a moment under load, as a machine that stops, and its master with it. Then the slave is started as
the master: what a SYNC_MASTER has answered SEND_OK comes there; of an ASYNC_MASTER only what its slave did not have yet
is lost.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from lab.campaign.cases import Part
from tests.support.fail_overs import KINDS, SHORT, check_all_come, fail_over
from tests.support.master_and_slave import Pair, hurry, name_server

_ROLES = ("SYNC_MASTER", "ASYNC_MASTER")


def run(folder: Path, seed: int) -> Counter[str]:
    """One fail-over; masters of both roles in turn."""
    role = _ROLES[seed % len(_ROLES)]
    with pytest.MonkeyPatch.context() as patch, name_server(folder) as namesrv:
        hurry(patch)
        pair = Pair(folder, namesrv, **SHORT)
        load = fail_over(pair, seed, role)
        counts = Counter({f"{role}s lost": 1, "messages that came": check_all_come(pair, load)})
    counts |= Counter({f"{kind} messages": len(load.sent[kind]) for kind in KINDS})
    return counts | Counter({"messages of the lag": load.lag, "acknowledged pops": len(load.acked)})


PART = Part(
    "fail-overs", "fail-overs at any moment, under load of all kinds of messages", 200, run,
    ("SYNC_MASTERs lost", "ASYNC_MASTERs lost", "messages that came", "messages of the lag", "acknowledged pops"),
)  # fmt: skip
