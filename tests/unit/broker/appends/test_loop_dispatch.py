"""LoopDispatch: those who wait for a pass beside the loop do not have the loop for long afterwards."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from reput.broker.appends.loop_dispatch import LoopDispatch


async def test_requests_that_waited_for_a_pass_go_on_some_in_each_turn() -> None:
    dispatch = LoopDispatch(*[cast("Any", None)] * 3)
    waiting = [asyncio.get_running_loop().create_future() for _ in range(1000)]
    waiting[3].cancel()
    dispatch._waiting = list(waiting)
    dispatch._wake_all(cast("Any", None))
    counts = []
    while not counts or counts[-1] < 1000:
        counts.append(sum(one.done() for one in waiting))
        await asyncio.sleep(0)
    assert counts == [256, 512, 768, 1000]
