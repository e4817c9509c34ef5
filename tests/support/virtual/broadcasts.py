"""Histories of broadcasting consumers: each has all messages, and its offsets in a file of its own."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from reput.client import Message, MessageClientExt, MessageQueue, PushConsumer
from reput.client.consuming import offset_store
from reput.errors import StoreError
from reput.remoting.queue_tables import QueueKey, decode_queue_table
from tests.support.virtual.histories import GROUP, NAMESRV, TOPIC, Member, World
from tests.support.virtual.net import VirtualLoop
from tests.support.virtual.quiet import COMMIT_S, MOST_MEMBERS, QUIET_S

#: A write takes so many seconds.
_WRITE_S = (0.0, 0.01, 1.0)
#: A broker that was away may be missing in a route for so many seconds after that.
_AWAY_S = 90.0


class OffsetFiles:
    """Files of offsets, in memory: a write takes its time, and one fails if it was told so.

    Args:
        on_read, on_written: Told of the offsets of a path.
    """

    def __init__(
        self, loop: VirtualLoop, chance: random.Random, on_read: Callable[[str, dict[QueueKey, int]], None],
        on_written: Callable[[str, dict[QueueKey, int]], None],
    ) -> None:  # fmt: skip
        self.failing: set[str] = set()
        self.offsets: dict[str, dict[QueueKey, int]] = {}
        self._data: dict[str, bytes] = {}
        self._loop, self._chance = loop, chance
        self._on_read, self._on_written = on_read, on_written
        self._lives: Counter[str] = Counter()

    def read(self, path: str) -> bytes | None:
        self._on_read(path, self.offsets.get(path, {}))
        return self._data.get(path)

    def died(self, path: str) -> None:
        """The process of a file has died: what it was writing is written, or not."""
        self._lives[path] += 1

    async def write(self, path: str, data: bytes) -> None:
        """Write as a thread does: it goes on if nobody waits for it any more."""
        life, ended = self._lives[path], self._loop.create_future()

        def end() -> None:
            if self._lives[path] != life:
                return
            is_failing = path in self.failing
            self.failing.discard(path)
            if not is_failing or self._chance.random() < 0.5:  # the file may have its name, and no sync
                self._data[path] = data
                self.offsets[path] = {queue: int(at) for queue, at in decode_queue_table(data, "offsetTable").items()}
                self._on_written(path, self.offsets[path])
            if ended.done():
                return
            if is_failing:
                ended.set_exception(StoreError(f"{path}: no space is left"))
            else:
                ended.set_result(None)

        self._loop.call_later(self._chance.choice(_WRITE_S), end)
        await ended

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let consumers have these files, and no threads."""

        async def at_once(function: Callable[..., Any], *arguments: Any) -> Any:
            return function(*arguments)

        with (
            patch.object(offset_store, "_read", self.read),
            patch.object(offset_store, "_write_in_thread", self.write),
            patch.object(asyncio, "to_thread", at_once),
        ):
            yield


class _Queue:
    """A queue of one file.

    Attributes:
        reach: All messages before it are handled by who has the file, or were passed over by a reset.
        ever: Those that are handled, or passed over, behind it, too.
        begins_at: What the file said at the begin of this life.
        done: What this life has handled.
        may_repeat: This life may handle again what it has: it heard of a reset, or the queue's broker was away.
        had_reset: This life has heard of a reset, perhaps.
    """

    def __init__(self) -> None:
        self.reach = self.begins_at = 0
        self.ever: set[int] = set()
        self.done: set[int] = set()
        self.may_repeat = self.had_reset = False

    def settle(self, offset: int) -> None:
        self.ever.add(offset)
        while self.reach in self.ever:
            self.reach += 1


class BroadcastLedger:
    """The reference of broadcasting consumers: which of them handles a message when, and what its file may say.

    Args:
        now: Seconds.
        timeout_s: A message that is handled for so long counts as handled; None: never.
    """

    def __init__(self, now: Callable[[], float], timeout_s: float | None) -> None:
        self.broken: list[str] = []
        self.counts: Counter[str] = Counter()
        self.handlers: Counter[tuple[str, QueueKey, int]] = Counter()
        self._now, self._timeout_s = now, timeout_s
        self._queues: dict[tuple[str, QueueKey], _Queue] = {}
        self._running: dict[tuple[str, QueueKey, int], float] = {}
        self._files: dict[str, Mapping[QueueKey, int]] = {}
        self._away_at: dict[str, float] = {}

    def queue(self, member: str, queue: QueueKey) -> _Queue:
        return self._queues.setdefault((member, queue), _Queue())

    def _break(self, member: str, queue: QueueKey, text: str) -> None:
        self.broken.append(f"{self._now() - 1000:.3f} s: {member} {queue.broker_name} {queue.queue_id}: {text}")

    # -- handlers

    def begun(self, member: str, queue: QueueKey, offset: int) -> None:
        one = self.queue(member, queue)
        if not one.may_repeat:
            if offset < one.begins_at:
                self._break(member, queue, f"{offset} is handled, and its file said {one.begins_at}")
            if offset in one.done or (member, queue, offset) in self._running:
                self._break(member, queue, f"{offset} is handled twice")
        self._running[member, queue, offset] = self._now()

    def ended(self, member: str, queue: QueueKey, offset: int, *, is_done: bool) -> None:
        self._running.pop((member, queue, offset), None)
        if is_done:
            self.counts["messages handled"] += 1
            self.handlers[member, queue, offset] += 1
            one = self.queue(member, queue)
            one.done.add(offset)
            one.settle(offset)

    def ended_life(self, member: str) -> None:
        """A member has ended: what it was handling is not handled."""
        self._settle_late()
        for key in [key for key in self._running if key[0] == member]:
            del self._running[key]

    def _settle_late(self) -> None:
        for (member, queue, offset), since in self._running.items():
            if self._timeout_s is not None and since + self._timeout_s <= self._now():
                self.queue(member, queue).settle(offset)

    # -- files

    def read(self, member: str, offsets: Mapping[QueueKey, int]) -> None:
        """A life of a member begins where its file says."""
        for (name, queue), one in self._queues.items():
            if name == member:
                one.begins_at, one.done, one.may_repeat, one.had_reset = offsets.get(queue, 0), set(), False, False
                one.may_repeat = self._now() - self._away_at.get(queue.broker_name, -1e9) < _AWAY_S
        for queue, offset in offsets.items():
            self.queue(member, queue).begins_at = offset

    def written(self, member: str, offsets: Mapping[QueueKey, int]) -> None:
        """A file has offsets: all messages before them are handled by this member, and none goes back by itself."""
        self.counts["commits"] += 1
        self._settle_late()
        before = self._files.get(member, {})
        for queue, offset in offsets.items():
            one = self.queue(member, queue)
            if offset > one.reach:
                self._break(member, queue, f"its file says {offset}, and {one.reach} is not handled")
            if offset < before.get(queue, 0) and not one.had_reset:
                self._break(member, queue, f"its file said {before[queue]}, and says {offset}")
        if lacking := before.keys() - offsets.keys():
            self._break(member, min(lacking), "its file has lost the queue")
        self._files[member] = dict(offsets)

    def committed(self, queue: QueueKey, offset: int, by: object) -> None:
        self._break("a member", queue, f"commits {offset} at the broker")

    # -- what happens

    def reset(self, members: list[str], queue: QueueKey, offset: int) -> None:
        """Members are told that they go on at an offset; perhaps they do not hear it."""
        self.counts["resets"] += 1
        for member in members:
            one = self.queue(member, queue)
            one.may_repeat = one.had_reset = True
            for passed in range(one.reach, offset):
                one.settle(passed)

    def undo(self, broker_name: str) -> None:
        """A broker was away: who gives its queues up, and takes them again, handles some messages twice."""
        self._away_at[broker_name] = self._now()
        for (_, queue), one in self._queues.items():
            one.may_repeat |= queue.broker_name == broker_name

    def check_end(self, member: str, queue: QueueKey, end: int) -> None:
        """A member has handled all messages, and its file says so."""
        one = self.queue(member, queue)
        if one.reach < end:
            self._break(member, queue, f"{one.reach} of {end} was never handled")
        if (says := self._files.get(member, {}).get(queue, 0)) != end:
            self._break(member, queue, f"its file says {says} of {end}, and all are handled")


class Broadcaster(Member):
    """One broadcasting consumer, from its start to its end; another one has its name, and its file, after it."""

    _world: Broadcasts

    def _made(self) -> PushConsumer:
        world = self._world
        return PushConsumer(
            NAMESRV, group=GROUP, topics={TOPIC: "*"}, consume_from="first", on_message=self._handle,
            broadcasting=True, orderly=world.is_orderly, concurrency=world.concurrency,
            consume_timeout=world.consume_timeout_s, offsets_path=self.name,
        )  # fmt: skip

    async def die(self) -> None:
        self._world.files.died(self.name)
        await super().die()
        self._world.reference.ended_life(self.name)

    async def _handle(self, message: MessageClientExt) -> None:
        world, queue, offset = self._world, message.queue, message.queue_offset
        world.reference.begun(self.name, queue, offset)
        is_done = False
        try:
            await world.work()
            fails = not world.is_quiet and world.chance.random() < world.fail_share
            is_done = not (fails and world.is_orderly)  # else it does not come again
            if fails:
                raise ValueError("no")
        finally:
            world.reference.ended(self.name, queue, offset, is_done=is_done)


class Broadcasts(World):
    """A cluster, broadcasting consumers, and what happens to them."""

    def in_place(self) -> AbstractContextManager[None]:
        return self.files.in_place()

    def __init__(self, loop: VirtualLoop, chance: random.Random, kind: str) -> None:
        super().__init__(loop, chance, kind)
        self.is_orderly = chance.random() < 0.4
        self.reference = BroadcastLedger(loop.time, None if self.is_orderly else self.consume_timeout_s)
        self.ledger.broken, self.ledger.counts = self.reference.broken, self.reference.counts
        self.files = OffsetFiles(loop, chance, self.reference.read, self.reference.written)
        self._resting: list[str] = []
        self._leaving: list[Member] = []
        for broker in self.brokers:
            broker._on_commit = self.reference.committed
            broker.sent_back = lambda queue, offset, _: self.reference.committed(queue, offset, None)
            broker.on_lock = self.reference.committed

    def happenings(self) -> tuple[Callable[[], Any], ...]:
        return (*super().happenings(), self._fail_write, self._fail_write)

    async def join(self) -> None:
        """Let a new consumer begin, or one again that has ended."""
        if len(self.members) + len(self._resting) < MOST_MEMBERS and (not self._resting or self.chance.random() < 0.4):
            self._number += 1
            self._resting.append(f"member {self._number}")
        if self._resting:
            name = self._resting.pop(self.chance.randrange(len(self._resting)))
            self.members.append(Broadcaster(self, name))

    async def leave(self) -> None:
        if self.members:
            member = self.chance.choice(self.members)
            self.members.remove(member)
            self.background(self._left(member))

    async def _left(self, member: Member) -> None:
        self._leaving.append(member)
        await member.leave()
        self._leaving.remove(member)
        self.reference.ended_life(member.name)
        self._resting.append(member.name)

    async def die(self) -> None:
        before = list(self.members)
        await super().die()
        self._resting += [one.name for one in before if one not in self.members]

    async def restart(self) -> None:
        for broker in self.brokers:
            self.reference.undo(broker.name)
        await super().restart()

    async def cut(self) -> None:
        for broker in self.brokers:
            self.reference.undo(broker.name)
        await super().cut()

    async def reset(self) -> None:
        queue = self.chance.choice(self.queues)
        broker = self.broker_of(queue)
        if broker.is_up:
            self.reset_at(queue, self.chance.choice((0, broker.end(queue), self.chance.randint(0, broker.end(queue)))))

    def reset_at(self, queue: MessageQueue, offset: int) -> None:
        """An operator resets a queue: members are told."""
        self.reference.reset([one.name for one in (*self.members, *self._leaving)], queue, offset)
        self.broker_of(queue).reset_members(queue, offset)

    async def _fail_write(self) -> None:
        if self.members:
            self.files.failing.add(self.chance.choice(self.members).name)

    async def calm(self) -> None:
        await super().calm()
        while self._resting:
            await self.join()

    # -- once nothing happens any more

    async def check(self) -> None:
        """Check that each member has handled all messages, and that its file says so, whatever failed."""
        await asyncio.sleep(QUIET_S + COMMIT_S)
        self._check_files()
        self.files.failing.update(one.name for one in self.members)
        self._probe()
        await asyncio.sleep(2 * COMMIT_S)
        self._check_files()
        for queue in self.chance.sample(self.queues, self.chance.randint(0, len(self.queues))):
            await self._check_reset(queue)
        members = list(self.members)
        self._probe()
        await asyncio.sleep(1.0)
        for member in members:
            await member.leave()
        self._check_files()

    def _probe(self) -> None:
        for queue in self.queues:
            self.broker_of(queue).put(queue, Message(TOPIC, b"probe"))

    async def _check_reset(self, queue: MessageQueue) -> None:
        """Each member handles what is behind a reset once more."""
        end, handlers = self.broker_of(queue).end(queue), self.reference.handlers
        begin = self.chance.randint(0, end)
        before = dict(handlers)
        self.reset_at(queue, begin)
        await asyncio.sleep(2 * COMMIT_S)
        for name in (one.name for one in self.members):
            for offset in range(end):
                times = handlers[name, queue, offset] - before.get((name, queue, offset), 0)
                if times != (offset >= begin):
                    self.reference.broken.append(f"{name} {queue} {offset}: {times} times after a reset to {begin}")
        self._check_files()

    def _check_files(self) -> None:
        for member in self.members:
            for queue in self.queues:
                self.reference.check_end(member.name, queue, self.broker_of(queue).end(queue))
