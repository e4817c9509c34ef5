"""Two name servers and a broker, one of them in trouble at any moment: requests end in time, and go on after it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest

from reput.client import Message, MessageClientExt, Producer, PushConsumer
from reput.errors import ReputError
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from reput.transport.connection import Connection
from tests.support.patience import impatient
from tests.support.virtual.name_servers import ModelNameServer
from tests.support.virtual.net import VirtualLoop
from tests.support.virtual.peers import play
from tests.support.virtual.servers import Faults, ModelBroker, Server

NAME_SERVERS, BROKER = ("10.0.0.101:9876", "10.0.0.102:9876"), "10.0.0.1:10911"
TROUBLES = "away", "silent", "slow", "refusing"
#: A send has three attempts of three seconds, and asks for its route again: a name server may take three, too.
SEND_S = 3 * (3.0 + 3.0) + 1.0
TROUBLE_S = 40.0


class Cluster:
    """The three peers."""

    def __init__(self, loop: VirtualLoop, chance: random.Random) -> None:
        self.loop = loop
        self.broker = ModelBroker(loop, "broker-a", BROKER, chance, "g", ("orders",))
        servers = [ModelNameServer(loop, address, chance, [self.broker], 1) for address in NAME_SERVERS]
        self.peers: tuple[Server, ...] = (*servers, self.broker)

    def start(self) -> None:
        for peer in self.peers:
            peer.start()

    def begin(self, trouble: str, peer: Server) -> None:
        if trouble == "slow":
            peer.faults = Faults(late_s=8.0)
        elif trouble == "refusing":
            peer.faults = Faults(refused=1.0)
        elif trouble == "silent":  # connections stay, and nothing comes of them
            self.loop.net.silent.add(peer.address)
            peer.faults = Faults(late_s=1e6)
        else:
            peer.kill()

    def end(self, trouble: str, peer: Server) -> None:
        peer.faults = Faults()
        self.loop.net.silent.discard(peer.address)
        if trouble == "silent":
            peer.cut()
        elif trouble == "away":
            peer.start()


@pytest.fixture
def chance() -> random.Random:
    return random.Random(7)


@pytest.fixture
def runner(chance: random.Random) -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(chance)) as runner:
        yield runner


@pytest.mark.parametrize("moment_s", [0.0, 10.0, 29.9])
@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("number", range(3))
def test_requests_end_in_time_and_go_on_after_it(
    runner: asyncio.Runner,
    chance: random.Random,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    trouble: str,
    moment_s: float,
) -> None:
    impatient(3.0, monkeypatch)  # as in the product

    async def history() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        cluster = Cluster(loop, chance)
        cluster.start()
        peer = cluster.peers[number]
        if not moment_s:
            cluster.begin(trouble, peer)
        seen: set[bytes] = set()

        async def handle(message: MessageClientExt) -> None:
            seen.add(message.body)

        namesrv = ";".join(NAME_SERVERS)
        producer = Producer(namesrv, group="p")
        consumer = PushConsumer(namesrv, group="g", topics={"orders": "*"}, on_message=handle, consume_from="first")
        await started(consumer)
        await producer.start()
        begun, sent, failed = loop.time(), set[bytes](), 0
        trouble_at, healed_at = begun + moment_s, begun + moment_s + TROUBLE_S
        has_begun, is_healed = not moment_s, False
        for turn in range(80):
            if not has_begun and loop.time() >= trouble_at:
                has_begun = True
                cluster.begin(trouble, peer)
            if not is_healed and loop.time() >= healed_at:
                is_healed = True
                cluster.end(trouble, peer)
                await asyncio.sleep(1.0)
            body, since = b"%d" % turn, loop.time()
            try:
                await producer.send(Message("orders", body))
                sent.add(body)
            except ReputError:
                failed += 1
                assert has_begun, "a send fails though all are there"
                assert not is_healed, "a send fails though all are there"
            assert loop.time() - since <= SEND_S
            await asyncio.sleep(1.0)
        assert is_healed
        if number < 2:
            assert not failed, "the other name server answers"
        until = loop.time() + 35.0
        while not sent <= seen and loop.time() < until:
            await asyncio.sleep(0.1)
        assert sent <= seen
        since = loop.time()
        await consumer.close()
        await producer.close()
        assert loop.time() - since <= SEND_S

    runner.run(history())


async def started(consumer: PushConsumer) -> None:
    """Start it, as often as it takes: it ends in time, and a second start works after one that has failed."""
    loop = asyncio.get_running_loop()
    while True:
        since = loop.time()
        try:
            return await consumer.start()
        except ReputError:
            await asyncio.sleep(1.0)
        finally:
            assert loop.time() - since <= SEND_S


#: Histories, the last ones with faults that were found; `make campaign` has thousands.
_SEEDS = (*range(6), 34, 222)


@pytest.mark.parametrize("seed", _SEEDS)
def test_peers_are_away_silent_slow_or_refuse_at_any_moment(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Before a request, or between it and its answer: see `tests/support/virtual/peers.py`, and its bounds."""
    impatient(3.0, monkeypatch)  # as in the product
    counts = play(seed)
    assert counts["messages sent"]
    assert counts["questions of the broker"]


def heard(broker: ModelBroker) -> list[float]:
    """Times of heartbeats that come to a broker, from now on."""
    times: list[float] = []

    def arrives(_: Connection, command: RemotingCommand) -> bool:
        if command.code == RequestCode.HEART_BEAT:
            times.append(asyncio.get_running_loop().time())
        return True

    broker.arrives = arrives
    return times


def test_a_heartbeat_over_a_new_connection_waits_for_no_other_broker(
    runner: asyncio.Runner, chance: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(3.0, monkeypatch)  # as in the product

    async def act() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        cluster = Cluster(loop, chance)
        cluster.start()
        other = ModelBroker(loop, "broker-b", "10.0.0.2:10911", chance, "g", ("orders",))
        other.start()
        for name_server in cluster.peers[:2]:
            assert isinstance(name_server, ModelNameServer)
            name_server.add(other)

        async def handle(_: MessageClientExt) -> None: ...

        async with PushConsumer(
            ";".join(NAME_SERVERS), group="g", topics={"orders": "*"}, on_message=handle, consume_from="first"
        ):
            await asyncio.sleep(2)
            times = heard(cluster.broker)
            other.answers_late[RequestCode.HEART_BEAT] = 1e6
            other.cut()  # pulls are tried again 3 s later, and then a heartbeat waits for its answer
            await asyncio.sleep(1)
            cluster.broker.cut()
            await asyncio.sleep(0.5)
            assert not cluster.broker.connections
            while not cluster.broker.connections:
                await asyncio.sleep(0.1)
            await asyncio.sleep(1)
            assert times, "no heartbeat within a second"

    runner.run(act())


def test_a_heartbeat_goes_over_a_connection_at_once_that_could_not_be_made_for_long(
    runner: asyncio.Runner, chance: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(3.0, monkeypatch)  # as in the product

    async def act() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        cluster = Cluster(loop, chance)
        for name_server in cluster.peers[:2]:
            name_server.start()
        async with Producer(";".join(NAME_SERVERS), group="p") as producer:
            with pytest.raises(ReputError):
                await producer.send(Message("orders", b"x"))
            await asyncio.sleep(20)
            times = heard(cluster.broker)
            cluster.broker.start()
            await producer.send(Message("orders", b"x"))
            await asyncio.sleep(1)
            assert times, "no heartbeat within a second"

    runner.run(act())
