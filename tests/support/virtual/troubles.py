"""More troubles of a history: brokers that move, name servers that are away, requests that are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from reput.remoting.codes import RequestCode
from tests.support.virtual.broadcasts import Broadcasts
from tests.support.virtual.histories import World
from tests.support.virtual.servers import Faults, ModelBroker

#: Requests that a broker refuses, or answers late, while others go well.
_CODES = (
    RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ, RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP, RequestCode.HEART_BEAT, RequestCode.PULL_MESSAGE,
    RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.UNREGISTER_CLIENT,
)  # fmt: skip
#: An answer comes just before or behind the end of the client's patience, or long after it.
_LATE_S = 2.9, 3.1, 6.0, 12.0


class Troubled(World):
    """A world with more troubles."""

    _moves = 0

    def happenings(self) -> tuple[Callable[[], Coroutine[Any, Any, None]], ...]:
        more = (
            self._move,
            self._lose_name_server,
            self._refuse,
            self._answer_late,
            self._be_silent,
            self._restart_and_cut,
        )
        return (*super().happenings(), *more, *more)

    async def _while_it_lasts(self, least_s: float, most_s: float) -> None:
        try:
            async with asyncio.timeout(self.chance.uniform(least_s, most_s)):
                await self._quiet.wait()
        except TimeoutError:
            pass

    def _undo(self, broker: ModelBroker) -> None:
        self.ledger.undo(broker.name)

    async def _move(self) -> None:
        """A broker is killed, and comes back at another address."""
        broker = self.chance.choice(self.brokers)
        if broker.is_up:
            self.background(self._moved(broker))

    async def _moved(self, broker: ModelBroker) -> None:
        self._undo(broker)
        broker.kill()
        if self.chance.random() < 0.3:
            self.loop.net.silent.add(broker.address)
        if self.chance.random() < 0.5:
            self.name_server.knows.discard(broker.name)
        await self._while_it_lasts(0.05, 20)
        self._moves += 1
        broker.address = f"10.0.7.{self._moves}:10911"
        broker.start()
        self.name_server.knows.add(broker.name)

    async def _lose_name_server(self) -> None:
        """The name server is away, perhaps while a member joins."""
        if self.name_server.is_up:
            self.background(self._name_server_away())

    async def _name_server_away(self) -> None:
        server = self.name_server
        server.kill()
        if self.chance.random() < 0.4:
            self.loop.net.silent.add(server.address)
        if self.chance.random() < 0.7:
            await self.join()
        await self._while_it_lasts(0.5, 40)
        self.loop.net.silent.discard(server.address)
        server.start()

    async def _refuse(self) -> None:
        """A broker refuses some kinds of requests, as locks."""
        broker = self.chance.choice(self.brokers)
        self._undo(broker)
        self.background(self._refused(broker, self.chance.sample(_CODES, self.chance.choice((1, 1, 2, 4)))))

    async def _refused(self, broker: ModelBroker, codes: list[RequestCode]) -> None:
        broker.refuses.update(codes)
        if self.chance.random() < 0.5:
            await self.join()
        if self.chance.random() < 0.3:
            await self.leave()
        await self._while_it_lasts(0.5, 30)
        broker.refuses.difference_update(codes)
        self.last_lock_at = self.loop.time()

    async def _answer_late(self) -> None:
        """A broker answers one kind of requests late."""
        self.background(self._late(self.chance.choice(self.brokers), self.chance.choice(_CODES)))

    async def _late(self, broker: ModelBroker, code: RequestCode) -> None:
        broker.answers_late[code] = self.chance.choice(_LATE_S)
        if self.chance.random() < 0.5:
            await self.join()
        await self._while_it_lasts(0.5, 30)
        broker.answers_late.pop(code, None)
        self.last_lock_at = self.loop.time()

    async def _be_silent(self) -> None:
        """A server's machine is gone: no connect is answered, and connections end, or stay without an answer."""
        server = self.chance.choice((self.name_server, *self.brokers))
        if isinstance(server, ModelBroker):
            self._undo(server)
        self.background(self._silent(server))

    async def _silent(self, server: Any) -> None:
        address = server.address
        self.loop.net.silent.add(address)
        if self.chance.random() < 0.5:
            server.cut()
        else:
            server.faults = Faults(late_s=1e6)
        await self._while_it_lasts(0.5, 40)
        self.loop.net.silent.discard(address)
        server.faults = Faults()
        server.cut()
        self.last_lock_at = self.loop.time()

    async def _restart_and_cut(self) -> None:
        """A broker is killed, and connections end, within a moment."""
        await self.restart()
        await asyncio.sleep(self.chance.choice((0.11, 0.2, 3.1)))
        for _ in range(self.chance.choice((1, 3))):
            broker = self.chance.choice(self.brokers)
            self._undo(broker)
            broker.cut()
            await asyncio.sleep(self.chance.choice((0.0, 0.01, 0.5)))
        self.last_lock_at = self.loop.time()


class TroubledBroadcasts(Troubled, Broadcasts):
    """Broadcasting consumers with more troubles."""

    def _undo(self, broker: ModelBroker) -> None:
        for one in self.brokers:
            self.reference.undo(one.name)
