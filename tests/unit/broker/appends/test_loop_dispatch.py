"""LoopDispatch: requests that wait for a pass beside the loop see all messages, and go on some in each turn."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import numpy as np
import pytest

from reput.broker.appends.loop_dispatch import LoopDispatch
from reput.broker.disk_work import DiskWork
from reput.files.never_waiting import about_to_wait
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from reput.store.dispatch.arrivals import Arrivals


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


class _Writer:
    """A writer whose passes take one record each, beside the loop if they are told so."""

    dispatch_failure = None

    def __init__(self) -> None:
        self.end = self.dispatched = 0
        self.beside: set[int] = set()
        self.may_end, self.has_ended = threading.Event(), threading.Event()

    @property
    def max_commit_log_offset(self) -> int:
        return self.end

    @property
    def dispatch_behind_bytes(self) -> int:
        return self.end - self.dispatched

    def dispatch(self, max_bytes: int) -> Arrivals | None:
        if self.dispatched == self.end:
            return None
        if self.dispatched in self.beside:
            about_to_wait("queue", "make a file")
            assert self.may_end.wait(60)
        self.dispatched += 1
        self.has_ended.set()
        return Arrivals(1, [], [], np.empty(0, np.int32), np.empty(0, np.int32))


@pytest.mark.parametrize("beside", [{0}, {0, 1}, {0, 1, 2}, {0, 2}, {1}])
@pytest.mark.parametrize("turns", range(6))
async def test_a_request_sees_what_was_sent_before_whenever_the_pass_beside_the_loop_ends(
    beside: set[int], turns: int
) -> None:
    """`turns`: of the loop between the end of the first pass in its thread and the request."""
    writer, log_work = _Writer(), DiskWork("test", 1, None)
    dispatch = LoopDispatch(cast("Any", writer), cast("Any", writer), log_work)
    writer.beside = beside
    seen: list[int] = []

    def handle(connection: object, command: object) -> None:
        seen.append(writer.dispatched)

    asked = dispatch.with_all_messages(cast("Any", handle))
    loop = asyncio.get_running_loop()
    for _ in range(2):
        writer.end += 1
        dispatch.soon()
    dispatch._pass_all()  # the first record's pass goes on beside the loop, if it is to
    writer.end += 1
    dispatch.soon()
    writer.may_end.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    tasks = []
    for _ in range(3):
        answer = asked(cast("Any", None), cast("Any", None))
        if answer is not None:
            tasks.append(loop.create_task(cast("Any", answer)))
            # The pass ends before the task begins, as if the loop had other work first.
            if dispatch._beside is not None and turns:
                assert writer.has_ended.wait(60)
    await asyncio.gather(*tasks)
    await dispatch.stop()
    log_work.stop()
    assert seen == [3, 3, 3]


@pytest.mark.parametrize("topic", ["orders", "rmq_sys_wheel_timer"])
async def test_a_request_for_a_topic_leaves_what_is_of_the_system_to_the_next_pass(topic: str) -> None:
    """But it sees what was sent to its topic, also behind that, and all of a topic of the system."""
    writer = _Writer()
    dispatch = LoopDispatch(cast("Any", writer), cast("Any", writer), cast("Any", None))
    seen: list[int] = []
    command = RemotingCommand(RequestCode.POP_MESSAGE, ext_fields={"topic": topic})
    asked = dispatch.with_messages_of_topic(lambda *_: seen.append(writer.dispatched))

    def put(*, is_of_system: bool) -> None:
        writer.end += 1
        dispatch.soon(is_of_system=is_of_system)

    for is_of_system in (True, False, True, True, False, True):
        put(is_of_system=is_of_system)
        asked(cast("Any", None), command)
    await dispatch.stop()
    assert seen == ([1, 2, 2, 2, 5, 5] if topic == "orders" else [1, 2, 3, 4, 5, 6])


async def test_what_is_of_the_system_is_dispatched_without_a_request() -> None:
    writer = _Writer()
    dispatch = LoopDispatch(cast("Any", writer), cast("Any", writer), cast("Any", None))
    writer.end += 1
    dispatch.soon(is_of_system=True)
    while not writer.dispatched:
        await asyncio.sleep(0)
    await dispatch.stop()


async def test_a_request_for_a_topic_sees_what_a_pass_beside_the_loop_has_left() -> None:
    writer, log_work = _Writer(), DiskWork("test", 1, None)
    dispatch = LoopDispatch(cast("Any", writer), cast("Any", writer), log_work)
    writer.beside = {0}
    seen: list[int] = []
    command = RemotingCommand(RequestCode.POP_MESSAGE, ext_fields={"topic": "orders"})
    asked = dispatch.with_messages_of_topic(lambda *_: seen.append(writer.dispatched))
    writer.end = 2
    dispatch.soon()
    dispatch._pass_all()
    dispatch.soon(is_of_system=True)
    answer = asked(cast("Any", None), command)
    writer.may_end.set()
    await cast("Any", answer)
    await dispatch.stop()
    log_work.stop()
    assert seen == [2]
