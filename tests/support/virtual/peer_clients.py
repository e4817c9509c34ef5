"""Clients whose peers are in trouble: a producer of transactions with two lives, and members of a group."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from reput.client import LocalTransactionState, Message, MessageClientExt, Producer, PullConsumer, PushConsumer
from reput.errors import ReputError

if TYPE_CHECKING:
    from tests.support.virtual.peers import Peers

TOPIC, GROUP = "orders", "g"
NAME_SERVERS = "10.0.0.101:9876", "10.0.0.102:9876"


class Transactions:
    """A producer of transactions, which is started again at some moment, and sends nothing any more."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self.is_last_life = asyncio.Event()
        self._open: set[bytes] = set()  # of the first life: their ends are known in the second one

    def _check(self, message: MessageClientExt) -> LocalTransactionState:
        if not self.is_last_life.is_set() and message.body in self._open:
            return LocalTransactionState.UNKNOW
        return self._peers.outcomes[message.body]

    async def _asked(self, message: MessageClientExt) -> LocalTransactionState:
        self._peers.counts["questions of the broker"] += 1
        return self._check(message)

    def _producer(self) -> Producer:
        return Producer(";".join(NAME_SERVERS), group="tx", check_transaction=self._asked)

    async def run(self) -> None:
        """Its two lives."""
        peers, chance = self._peers, self._peers.chance
        until = peers.loop.time() + chance.uniform(10, 60)
        producer = self._producer()
        await producer.start()
        while peers.loop.time() < until:
            await self._send(producer)
            await asyncio.sleep(chance.choice((0.1, 1.0, 4.0)))
        if chance.random() < 0.5:
            since = peers.loop.time()
            await producer.close()
            peers.ends_in_time("the end of a producer of transactions", since)
        else:
            await killed(producer._client)
        await asyncio.sleep(chance.choice((0.0, 1.0, 10.0)))
        self.is_last_life.set()
        async with self._producer():
            await peers.over.wait()

    async def _send(self, producer: Producer) -> None:
        peers, chance = self._peers, self._peers.chance
        peers.number += 1
        body, since = b"%d" % peers.number, peers.loop.time()
        peers.outcomes[body] = chance.choice(
            (LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.ROLLBACK_MESSAGE)
        )
        if chance.random() < 0.5:
            self._open.add(body)

        async def execute(_: Message) -> LocalTransactionState:
            return LocalTransactionState.UNKNOW if body in self._open else peers.outcomes[body]

        try:
            await producer.send_in_transaction(Message(TOPIC, body), execute)
            peers.counts["transactions"] += 1
            if body not in peers.master.stored:
                peers.broke(f"transaction {body!r} is lost")
        except ReputError as error:
            if not peers.may_fail(since):
                peers.broke(f"a transaction fails though all are there: {error}")
        peers.ends_in_time("a transaction", since)


class Member:
    """A member of the group; the second one is a peer of the first one, and has its troubles."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._state = ""
        self.is_started = False
        self._begin_life()

    def _begin_life(self) -> None:
        more: dict[str, Any] = {"group": GROUP, "topics": {TOPIC: "*"}, "consume_from": "first"}
        namesrv = ";".join(NAME_SERVERS)
        self.consumer: PushConsumer | PullConsumer
        if self._peers.kind == "pull":
            self.consumer = PullConsumer(namesrv, **more)
        else:
            self.consumer = PushConsumer(
                namesrv, on_message=self._handle, orderly=self._peers.kind == "orderly", concurrency=2, **more
            )
        self._is_leaving = False
        self._task = self._peers.loop.create_task(self._live())

    @property
    def client_id(self) -> str:
        group = self.consumer._group
        return "" if group is None else group.client.client_id

    async def _live(self) -> None:
        """Start, as often as it takes: a start ends in time, and a second one works after one that has failed."""
        while True:
            since = self._peers.loop.time()
            try:
                await self.consumer.start()
                break
            except ReputError as error:
                if self._peers.is_harmless:
                    self._peers.broke(f"a start fails though one name server is there: {error}")
                await asyncio.sleep(1.0)
            finally:
                self._peers.ends_in_time("a start", since)
        self.is_started = True
        while not self._is_leaving:
            if isinstance(self.consumer, PullConsumer):
                await self._poll(self.consumer)
            else:
                await asyncio.sleep(0.5)
        since = self._peers.loop.time()
        await self.consumer.close()
        self._peers.ends_in_time("the end of a consumer", since)

    async def _poll(self, consumer: PullConsumer) -> None:
        with suppress(ReputError):
            for message in await consumer.poll(timeout=1.0):
                while True:
                    with suppress(ValueError):
                        await self._handle(message)
                        break
                    await asyncio.sleep(0.5)
            await consumer.commit()

    async def _handle(self, message: MessageClientExt) -> None:
        if self._state == "slow":
            await asyncio.sleep(self._peers.chance.uniform(0, 10))
        if self._state == "refusing":
            raise ValueError("no")
        await self._peers.handle(message)

    def begin(self, state: str) -> None:
        """It is in trouble: its process is gone, or its handlers are slow or fail, or it has no connection."""
        self._state = state
        if state in ("away", "silent"):
            self._task.cancel()
            self._peers.loop.create_task(self._die())
        elif state == "cut" and self.consumer._group is not None:
            for connection in self.consumer._group.client.remoting.connections.values():
                connection.abort()

    async def _die(self) -> None:
        if self.consumer._group is not None:
            await killed(self.consumer._group.client)

    def end(self, state: str) -> None:
        """It is back, as another process if it was away."""
        self._state = ""
        if state in ("away", "silent"):
            self._begin_life()

    async def leave(self) -> None:
        self._is_leaving = True
        await self._task


async def killed(client: Any) -> None:
    """End a client as a process that is killed."""
    client.is_open = False
    tasks = list(client._tasks)
    for task in tasks:
        task.cancel()
    client.remoting.close()
    await asyncio.gather(*tasks, return_exceptions=True)
