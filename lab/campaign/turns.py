"""The frames that cost a broker most: what others wait for, and what memory stays, while it takes them.

A case is a broker in a loop and the worst frames of some codes, one by one or several at once on a connection. No turn
of the loop may take 50 ms of CPU, and the anonymous memory of the process stays within a bound.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from pathlib import Path

from lab.campaign.cases import Part
from reput.remoting.codes import RequestCode
from tests.support.async_tests import run as run_async
from tests.support.broker import serving_broker, with_topic
from tests.support.loop_gaps import loop_gaps
from tests.support.worst_frames import exchange, known, of_code

MOST_S = 0.05
_MOST_GROWTH = 256 << 20
_CODES_OF_A_CASE, _FRAMES_OF_A_CODE = 4, 10


def _anonymous_bytes() -> int:
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def run(folder: Path, seed: int) -> Counter[str]:
    """One broker, and its frames."""
    return run_async(_case(folder, random.Random(seed)))


async def _case(folder: Path, chance: random.Random) -> Counter[str]:
    counts: Counter[str] = Counter()
    async with serving_broker(folder / "store") as served:
        client = await served.client()
        await with_topic(client, "t")
        await client.send_message("t")
        before = _anonymous_bytes()
        frames = [(name, data) for name, data in known().items() if chance.random() < 0.2]
        for code in chance.sample(list(RequestCode), _CODES_OF_A_CASE):
            found = list(of_code(code))
            frames += [(f"{code.name}: {name}", data) for name, data in chance.sample(found, _FRAMES_OF_A_CODE)]
        chance.shuffle(frames)
        while frames:
            several = [frames.pop() for _ in range(min(len(frames), chance.choice((1, 1, 3))))]
            with loop_gaps() as gaps:
                data = b"".join(data for _, data in several)
                await asyncio.to_thread(exchange, served.controller.address, data)
                await client.round_trip()
            names = ", ".join(name for name, _ in several)
            assert gaps.worst < MOST_S, f"{gaps.worst * 1000:.0f} ms in a turn of the loop: {names}"
            counts["worst frames"] += len(several)
        growth = _anonymous_bytes() - before
        assert growth < _MOST_GROWTH, f"{growth} bytes of memory are left"
    return counts


PART = Part(
    "turns", "the frames that cost a broker's loop most, of all codes: what others wait for", 60, run,
    ("worst frames",),
)  # fmt: skip
