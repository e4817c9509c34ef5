"""Clients of a cluster whose peers are away, silent, slow or refuse at moments that a seed draws, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary, WeakSet

from reput.client import LocalTransactionState, Message, MessageClientExt, Producer
from reput.client.instance import client_instance, name_servers
from reput.errors import ReputError
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from reput.transport.client import RemotingClient
from reput.transport.connection import Connection
from tests.support.virtual.half_messages import TransactionBroker
from tests.support.virtual.name_servers import ModelNameServer
from tests.support.virtual.net import VirtualLoop
from tests.support.virtual.peer_clients import GROUP, NAME_SERVERS, TOPIC, Member, Transactions
from tests.support.virtual.quiet import COMMIT_S, LOCK_S, QUIET_S
from tests.support.virtual.runs import no_errors
from tests.support.virtual.servers import RETRY_S, Faults, Server
from tests.support.virtual.slaves import ModelSlave

#: A send has three attempts of three seconds, and asks for its route again: each name server may take three, too.
SEND_S = 3 * (3.0 + 3.0) + 1.0
#: A request begins to succeed so many seconds after its peer is back.
SETTLED_S = 1.0
#: A new connection to a broker has brought a heartbeat after so many seconds.
HEARTBEAT_S = 1.0
#: While one of two name servers is in trouble, and nobody else, all takes so many seconds at most: a send, a start, and
#: from a send until the message is handled.
UNHARMED_S = 5.0
#: Beyond its own timeout a request may take so long: turns of the loop.
_TURNS_S = 0.01
#: A trouble that waits for a request begins without it after so many seconds.
_WAIT_S = 30.0

_STATES = "away", "silent", "slow", "refusing", "cut"
#: What peers are asked, with the answer to a question of the broker's: a trouble begins before it, or behind it.
_OF_BROKER = (
    RequestCode.SEND_MESSAGE_V2, RequestCode.END_TRANSACTION, RequestCode.PULL_MESSAGE, RequestCode.HEART_BEAT,
    RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ, RequestCode.GET_CONSUMER_LIST_BY_GROUP, RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.CHECK_TRANSACTION_STATE,
)  # fmt: skip
_OF_SLAVE = RequestCode.PULL_MESSAGE, RequestCode.HEART_BEAT, RequestCode.UPDATE_CONSUMER_OFFSET
_OF_NAME_SERVER = (RequestCode.GET_ROUTEINFO_BY_TOPIC,)


@dataclass
class _Wait:
    """A trouble that begins when a peer is asked something: before the request is handled, or behind it."""

    code: int
    is_behind: bool
    begin: Callable[[], None]


class Peers:
    """Two name servers, a master with transactions, its slave, and a second member of a group; and their clients.

    Attributes:
        broken: What must not be.
        counts: What was done.
    """

    def __init__(self, loop: VirtualLoop, chance: random.Random) -> None:
        self.loop, self.chance = loop, chance
        self.broken: list[str] = []
        self.counts: Counter[str] = Counter()
        self.kind = chance.choice(("concurrent", "orderly", "pull"))
        #: Only name servers are in trouble, one at a time.
        self.is_harmless = chance.random() < 0.2
        self.master = TransactionBroker(loop, "broker-a", "10.0.0.1:10911", chance, GROUP, (TOPIC,))
        queues = chance.choice((1, 2, 4))
        self.name_servers = [ModelNameServer(loop, one, chance, [self.master], queues) for one in NAME_SERVERS]
        self.slave = ModelSlave(
            loop, self.master, "10.0.1.1:10911", chance, lambda: any(one.knows for one in self.name_servers)
        )
        for name_server in self.name_servers:
            name_server.slaves["broker-a"] = self.slave
        self.servers: dict[str, Server] = {
            "name server 1": self.name_servers[0], "name server 2": self.name_servers[1],
            "master": self.master, "slave": self.slave,
        }  # fmt: skip
        self.troubled: dict[str, list[list[float]]] = {name: [] for name in (*self.servers, "member")}
        self.members: list[Member] = []
        self.number = 0
        self.is_quiet = False  # nothing is sent any more
        self.over = asyncio.Event()
        self.sent: dict[bytes, float] = {}
        self.seen: set[bytes] = set()
        self.outcomes: dict[bytes, LocalTransactionState] = {}
        self.transactions = Transactions(self)
        self._waits: dict[str, _Wait] = {}
        self._beaten: WeakSet[Connection] = WeakSet()
        self._opened: WeakKeyDictionary[Connection, float] = WeakKeyDictionary()
        self._calls: dict[object, tuple[float, int, str]] = {}
        for name, server in self.servers.items():
            server.arrives = self._arrives(name, server)
            server.leaves = self._leaves(name)
        self.master.asks = lambda: self._leaves("master")(None, RemotingCommand(RequestCode.CHECK_TRANSACTION_STATE))

    def broke(self, text: str) -> None:
        self.broken.append(f"{self.loop.time() - 1000:.3f} s: {text}")

    # -- troubles

    def _arrives(self, name: str, server: Server) -> Callable[[Connection, RemotingCommand], bool]:
        def arrives(connection: Connection, command: RemotingCommand) -> bool:
            if command.code in (RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT):
                self._beaten.add(connection)
            self._begin_at(name, command.code, is_behind=False)
            return server.is_up

        return arrives

    def _leaves(self, name: str) -> Callable[[Any, RemotingCommand], None]:
        return lambda _, command: self._begin_at(name, command.code, is_behind=True)

    def _begin_at(self, name: str, code: int, *, is_behind: bool) -> None:
        wait = self._waits.get(name)
        if wait is not None and (wait.code, wait.is_behind) == (code, is_behind):
            del self._waits[name]
            self.counts[f"{RequestCode(code).name} {'and its answer' * is_behind or 'is lost'}"] += 1
            wait.begin()

    async def trouble(self, name: str) -> None:
        """Let one peer be in trouble, from a moment on that comes soon, for a while."""
        chance, begun = self.chance, asyncio.Event()
        state = chance.choice(_STATES)
        since = self.troubled[name]

        def begin() -> None:
            if not begun.is_set():
                since.append([self.loop.time(), 1e9])
                self.counts[f"{name.rstrip(' 12')} {state}"] += 1
                self.begin(name, state)
                begun.set()

        codes = {"master": _OF_BROKER, "slave": _OF_SLAVE}.get(name, _OF_NAME_SERVER)
        if name != "member" and chance.random() < 0.7:
            self._waits[name] = _Wait(chance.choice(codes), chance.random() < 0.5, begin)
            with suppress(TimeoutError):
                async with asyncio.timeout(_WAIT_S):
                    await begun.wait()
            self._waits.pop(name, None)
        begin()
        if state != "cut":
            await asyncio.sleep(chance.choice((0.2, 4.0, 35.0)) * chance.uniform(0.5, 1.5))
        self.end(name, state)
        since[-1][1] = self.loop.time()

    def begin(self, name: str, state: str) -> None:
        """Begin a trouble at once, perhaps between a request and its answer."""
        if name == "member":
            self.members[-1].begin(state)
            return
        server = self.servers[name]
        if state == "slow":
            server.faults = Faults(late_s=self.chance.choice((2.0, 8.0)))
        elif state == "refusing":
            server.faults = Faults(refused=self.chance.choice((0.5, 1.0)))
        elif state == "silent":  # connections stay, and nothing comes of them
            self.loop.net.silent.add(server.address)
            server.faults = Faults(late_s=1e6)
        elif state == "cut":
            server.cut()
        else:
            server.kill()
            if self.chance.random() < 0.5:
                self._register(server, is_there=False)

    def end(self, name: str, state: str) -> None:
        """The peer is back."""
        if name == "member":
            self.members[-1].end(state)
            return
        server = self.servers[name]
        server.faults = Faults()
        self.loop.net.silent.discard(server.address)
        if state == "silent":
            server.cut()
        elif state == "away":
            server.start()
            self._register(server, is_there=True)

    def _register(self, server: Server, *, is_there: bool) -> None:
        """Let name servers know a broker, or forget it."""
        for one in self.name_servers:
            if server is self.master:
                (one.knows.add if is_there else one.knows.discard)("broker-a")
            elif isinstance(server, ModelSlave):
                one.slaves.pop("broker-a", None)
                if is_there:
                    one.slaves["broker-a"] = server

    def may_fail(self, since: float) -> bool:
        """Whether a send that has begun then may fail now: its broker was in trouble, or all name servers."""
        now = self.loop.time()
        harmed = [
            any(begin <= now and since - SETTLED_S <= end for begin, end in self.troubled[name])
            for name in ("master", "name server 1", "name server 2")
        ]
        return harmed[0] or (harmed[1] and harmed[2])

    # -- what clients do

    async def sends(self) -> None:
        """Send messages: each send ends in time, and fails only if it may."""
        async with Producer(";".join(NAME_SERVERS), group="p") as producer:
            while not self.is_quiet:
                self.number += 1
                body, since = b"%d" % self.number, self.loop.time()
                try:
                    await producer.send(Message(TOPIC, body))
                    self.sent[body] = self.loop.time()
                    self.counts["messages sent"] += 1
                except ReputError as error:
                    self.counts["sends that failed"] += 1
                    if not self.may_fail(since):
                        self.broke(f"a send fails though all are there: {error}")
                self.ends_in_time("a send", since)
                await asyncio.sleep(self.chance.choice((0.05, 0.5, 1.5)))
            await self.over.wait()
            begun = self.loop.time()
        self.ends_in_time("the end of a producer", begun)

    def ends_in_time(self, what: str, since: float) -> None:
        if (seconds := self.loop.time() - since) > (UNHARMED_S if self.is_harmless else SEND_S):
            self.broke(f"{what} takes {seconds:.1f} s")

    async def handle(self, message: MessageClientExt) -> None:
        """A message is handled."""
        self.seen.add(message.body)
        if self.outcomes.get(message.body) is LocalTransactionState.ROLLBACK_MESSAGE:
            self.broke(f"{message.body!r} was rolled back, and is handled")

    # -- the history

    async def history(self) -> None:
        """Play one history."""
        chance = self.chance
        for server in self.servers.values():
            server.start()
        background = [self.loop.create_task(work) for work in (
            self.slave.copy_all(), self.master.ask_all(), self._watch_connections(), self._watch_lag(),
        )]  # fmt: skip
        at_once = 1 if self.is_harmless else chance.choice((1, 2, 4))
        begun = [self.loop.create_task(self._troubles()) for _ in range(at_once)]
        working = [self.loop.create_task(work) for work in (self.sends(), self.transactions.run())]
        self.members.append(Member(self))
        await asyncio.sleep(chance.uniform(0, 20))
        self.members.append(Member(self))
        await asyncio.gather(*begun, self.transactions.is_last_life.wait())
        await self._check_quiet()
        self.over.set()
        await asyncio.gather(*working, *(member.leave() for member in self.members))
        await asyncio.sleep(SEND_S)
        self._check_calls()
        for task in background:
            task.cancel()
        ended = await asyncio.gather(*background, return_exceptions=True)
        self.broken += [repr(end) for end in ended if isinstance(end, Exception)]

    async def _troubles(self) -> None:
        """Some troubles, one after the other; a peer has one at a time."""
        names = ["name server 1", "name server 2"] if self.is_harmless else [*self.troubled, "master", "master"]
        pause_s = self.chance.choice((0.0, 15.0))  # or clients begin while a peer is in trouble
        for _ in range(self.chance.choice((2, 3, 5))):
            await asyncio.sleep(self.chance.uniform(0, pause_s))
            pause_s = 15.0
            name = self.chance.choice(names)
            is_free = all(end < self.loop.time() for _, end in self.troubled[name]) and name not in self._waits
            if is_free and (name != "member" or len(self.members) == 2):
                await self.trouble(name)

    async def _check_quiet(self) -> None:
        """Check that all is as if nothing had happened, a while after the last trouble."""
        await asyncio.sleep(QUIET_S)
        alive = {one.client_id for one in self.members}
        for name, broker in (("master", self.master), ("slave", self.slave)):
            if broker.members.keys() != alive:
                self.broke(f"the {name} knows {len(broker.members)} members of {len(alive)}, or others")
        if len(self.master.producers) != 2:
            self.broke(f"the master knows {len(self.master.producers)} of 2 producers")
        self.is_quiet = True
        limit = QUIET_S + (LOCK_S if self.kind == "orderly" else 0.0)
        await self._until(lambda: self.sent.keys() <= self.seen and self._are_transactions_over(), limit)
        if missing := sorted(self.sent.keys() - self.seen, key=int):
            self.broke(f"{missing[:5]} were sent, and are not handled")
        if not self._are_transactions_over():
            self.broke(f"transactions have no end, or are not handled: {sorted(self.master.halves)[:5]}")
        await self._until(self._is_committed, RETRY_S + COMMIT_S)
        if not self._is_committed():
            ends = {queue: len(records) for queue, records in self.master.records.items()}
            self.broke(f"all is handled, and not committed: {self.master.offsets} of {ends}")

    def _are_transactions_over(self) -> bool:
        """Whether all have an end, and the messages of those that were committed are handled."""
        stored = [body for body in self.master.stored if self.outcomes[body] is LocalTransactionState.COMMIT_MESSAGE]
        return not self.master.halves and self.seen.issuperset(stored)

    def _is_committed(self) -> bool:
        """Whether the group's offsets are the ends of its queues, and nothing is to come again."""
        master = self.master
        return not master.retries and all(
            master.offsets.get(queue) == len(records)
            for queue, records in master.records.items()
            if not queue.topic.startswith("%DLQ%")
        )

    async def _until(self, holds: Callable[[], bool], limit_s: float) -> None:
        until = self.loop.time() + limit_s
        while not holds() and self.loop.time() < until:
            await asyncio.sleep(0.2)

    # -- what holds all the time

    async def _watch_connections(self) -> None:
        """Each connection to a broker brings a heartbeat at once: before it, the broker does not know who is there."""
        while True:
            await asyncio.sleep(0.1)
            for broker in (self.master, self.slave):
                for connection in broker.connections:
                    since = self._opened.setdefault(connection, self.loop.time())
                    is_late = self.loop.time() > since + HEARTBEAT_S
                    if is_late and connection.is_open and connection not in self._beaten:
                        self._beaten.add(connection)
                        self.broke(f"a connection to {broker.address} has brought no heartbeat")

    async def _watch_lag(self) -> None:
        """With one name server of two, all goes on."""
        while self.is_harmless:
            await asyncio.sleep(1.0)
            late = [
                body for body, at in self.sent.items() if body not in self.seen and self.loop.time() > at + UNHARMED_S
            ]
            if late and self.members and self.members[0].is_started:
                self.broke(f"one name server is in trouble, and {late[:3]} are not handled")
                return

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Watch all requests of clients, and let name servers be silent by the loop's time."""
        plain = RemotingClient.call

        async def call(
            client: RemotingClient, address: str, command: RemotingCommand, timeout_s: float = 3.0
        ) -> RemotingCommand:
            key, until = object(), self.loop.time() + timeout_s
            self._calls[key] = until, command.code, address
            try:
                return await plain(client, address, command, timeout_s)
            finally:
                del self._calls[key]
                self.counts["requests"] += 1
                if self.loop.time() > until + _TURNS_S:
                    self.broke(f"request {command.code} to {address} has ended {self.loop.time() - until:.1f} s late")

        clock = SimpleNamespace(monotonic=self.loop.time)
        with patch.object(RemotingClient, "call", call), patch.object(name_servers, "time", clock):
            yield

    def _check_calls(self) -> None:
        for until, code, address in self._calls.values():
            if self.loop.time() > until + _TURNS_S:
                self.broke(f"request {code} to {address} has no end")


def play(seed: int) -> Counter[str]:
    """One history; raises AssertionError with what was broken."""
    chance = random.Random(f"peers {seed}")
    random.seed(seed)

    async def history() -> Peers:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        peers = Peers(loop, chance)
        with peers.in_place():
            await peers.history()
        return peers

    with (
        no_errors() as errors,
        patch.object(client_instance, "_RANDOM", random.Random(seed)),
        patch("reput.transport.connection._TURN_S", 60.0),  # the machine's time has no part in it
        asyncio.Runner(loop_factory=lambda: VirtualLoop(chance)) as runner,
    ):
        peers = runner.run(history())
    broken = peers.broken + errors.found
    assert not broken, f"{peers.kind} {seed}: {len(broken)} broken: " + "; ".join(broken[:5])
    return peers.counts
