"""Checks of a group of consumers once nothing happens any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from reput.client import Message, MessageQueue
from reput.remoting.codes import RequestCode

if TYPE_CHECKING:
    from tests.support.virtual.histories import World

#: Seconds of quiet after which each queue has one member: a member reads routes each 28 s, and asks who else is there.
#: A lock whose member has died lives for a minute: it may be cut off alone, and still handle its messages.
QUIET_S, LOCK_S = 30.0, 60.0
#: A push consumer commits what is handled within so many seconds.
COMMIT_S = 8.0
#: A member that has begun so many seconds ago commits an offset once.
ALONE_S = 30.0
#: Commits are refused for so many seconds: a push consumer commits each 5 s, and its held pull ends after 15 s.
REFUSED_S = 5.1
MOST_MEMBERS = 4
#: A queue goes from one member to another within so many seconds, if all are there.
AT_ONCE_S = 5.0


class Quiet:
    """The checks, in a world that is calm."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._now = world.loop.time

    async def check(self) -> None:
        """Check that each queue has one member, a new message is handled once, and all is committed."""
        begun = self._now()
        limit = QUIET_S + (
            LOCK_S if self._world.kind == "orderly" and begun - self._world.last_lock_at < LOCK_S else 0.0
        )
        while self._shares() != sorted(self._world.queues) and self._now() < begun + QUIET_S + 1:
            await asyncio.sleep(0.5)
        settled_s = self._now() - begun
        if settled_s > QUIET_S:
            shares = {one.name: sorted(one.queues) for one in self._world.members}
            self._world.ledger.broken.append(f"after {settled_s:.0f} s of quiet the queues are not shared: {shares}")
        await asyncio.sleep(QUIET_S - settled_s)
        await self._until(self._all_is_handled, limit)
        await self._reset_in_quiet(limit)
        await self._probe(limit)
        await self._probe_while_commits_are_refused()
        await self._hand_over()
        await self._world.visit("0", 3.0, 4.0)
        await self._until(self._all_is_handled, limit)
        for member in list(self._world.members):
            await member.leave()
        for queue in self._all_queues():
            broker = self._world.broker_of(queue)
            self._world.ledger.check_end(queue, broker.end(queue), broker.offsets.get(queue))

    def _shares(self) -> list[MessageQueue]:
        return sorted(queue for one in self._world.members for queue in one.queues)

    def _all_queues(self) -> list[MessageQueue]:
        return [
            queue for broker in self._world.brokers for queue in broker.records if not queue.topic.startswith("%DLQ%")
        ]

    def _all_is_handled(self) -> bool:
        return not any(one.retries for one in self._world.brokers) and all(map(self._is_handled, self._all_queues()))

    def _is_handled(self, queue: MessageQueue) -> bool:
        one, broker = self._world.ledger.queue(queue), self._world.broker_of(queue)
        end = broker.end(queue)
        return (
            queue not in broker.resets and len(one.ever | one.passed) >= end and (one.is_undone or one.frontier >= end)
        )

    async def _until(self, holds: Callable[[], bool], limit_s: float) -> None:
        until = self._now() + limit_s
        while not holds() and self._now() < until:
            await asyncio.sleep(0.5)

    async def _reset_in_quiet(self, limit: float) -> None:
        """Check that what is handled again after a reset is committed, also if nothing new comes."""
        await asyncio.sleep(COMMIT_S)
        for queue in self._world.chance.sample(
            self._world.queues, self._world.chance.randint(0, len(self._world.queues))
        ):
            broker = self._world.broker_of(queue)
            offset = self._world.chance.randint(0, broker.end(queue))
            self._world.ledger.reset(queue, offset, is_sure=True)
            broker.reset(queue, offset)
        await self._until(self._all_is_handled, limit)
        await asyncio.sleep(COMMIT_S)
        for queue in self._all_queues():
            broker = self._world.broker_of(queue)
            self._world.ledger.check_end(queue, broker.end(queue), broker.offsets.get(queue))

    async def _probe_while_commits_are_refused(self) -> None:
        """Check that what a broker did not keep is committed again, though nothing new comes."""
        await asyncio.sleep(ALONE_S)  # before that, all is committed again and again
        for broker in self._world.brokers:
            broker.refuses.add(RequestCode.UPDATE_CONSUMER_OFFSET)
        self._world.loop.call_later(REFUSED_S, self._refuse_no_more)
        await self._probe(REFUSED_S, REFUSED_S + COMMIT_S)

    def _refuse_no_more(self) -> None:
        for broker in self._world.brokers:
            broker.refuses.clear()

    async def _hand_over(self) -> None:
        """Check that a new member gets its queues at once: they are unlocked, and not locked until a minute is over."""
        await asyncio.sleep(max(0.0, self._world.last_lock_at + LOCK_S - self._now()))
        if len(self._world.members) == MOST_MEMBERS:
            await self._world.members.pop().leave()
        await self._world.join()
        await asyncio.sleep(AT_ONCE_S)
        await self._probe(AT_ONCE_S)

    async def _probe(self, limit: float, commit_s: float = COMMIT_S) -> None:
        """A message in each queue is handled by one member, once, and committed within the time of a push consumer."""
        probes = [
            (queue, self._world.broker_of(queue).put(queue, Message(queue.topic, b"probe")))
            for queue in self._world.queues
        ]
        await self._until(lambda: all(self._world.ledger.handlers[probe] for probe in probes), limit)
        await asyncio.sleep(commit_s)
        for queue, offset in probes:
            times, at = self._world.ledger.handlers[queue, offset], self._world.broker_of(queue).offsets.get(queue)
            if times != 1 or at != offset + 1:
                self._world.ledger.broken.append(
                    f"{queue} {offset}: a new message is handled {times} times, {at} is committed"
                )
