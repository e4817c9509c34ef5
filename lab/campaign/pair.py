"""Pair: a master and its copy, the network between them, and what the master's clients know."""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Self

from reput.errors import RemotingError, ReplicationError
from reput.formats.message import Message
from reput.formats.message_batch import encode_batch
from reput.jobs.runner import LocalRunner
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.replication.rejoin import Rejoin, rejoin
from tests.support.broker import send_command, with_topic
from tests.support.broker_ledger import STORE_KEYS, Ledger, body_of
from tests.support.proxy import AtByte, Proxy, no_change, proxy_to
from tests.support.replica_lives import BrokerLife, Disk, FollowerLife, Life, SlaveErrors

_TOPIC, _QUEUES = "orders", 3
#: For anything that must come: longer than any wait of a broker.
_MOST_S, _LOOK_S = 60.0, 0.002
#: Starts that one fault may need.
_STARTS = 5
#: More than a record of these messages takes, and a blank record before a record that does not fit.
_RECORD = 4096
#: What no file may tell any more after a power cut.
_SIZES = {name: STORE_KEYS[name] for name in ("mapped_file_size_consume_queue", "max_hash_slot_num", "max_index_num")}
_NO_SLAVE_HAS_IT = (ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE)
#: What an error says where two logs do not go together.
OTHER_LOG = "has lost its last records|is another log|goes on at|the next byte is"


def _is_answered(master: Life, begun: list[asyncio.Future[RemotingCommand]]) -> bool:
    return master.is_over or all(answer.done() for answer in begun)


class Pair:
    """See the module.

    Attributes:
        chance: Draws.
        role: Of the master.
        is_slave: Whether the copy is a slave, and not a follower.
        is_synced: Whether both sync before they acknowledge.
        requires_crc: Whether each record must have a CRC of all of it.
        master, copy: Their lives now.
        remoting, ha: The network between both.
        ledger: What the master's clients know.
        errors: What has stopped the copy since its start.
        counts: What there was.
    """

    master: BrokerLife
    copy: BrokerLife | FollowerLife
    remoting: Proxy
    ha: Proxy

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self._folder = folder
        self._numbers = itertools.count()
        self.role = chance.choice(("SYNC_MASTER", "SYNC_MASTER", "ASYNC_MASTER"))
        self.is_slave = chance.random() < 0.5
        self.is_synced = chance.random() < 0.7
        self.requires_crc = chance.random() < 0.5
        flush = "SYNC_FLUSH" if self.is_synced else "ASYNC_FLUSH"
        self._keys = {
            "flush_disk_type": flush, "enabled_append_prop_crc": self.requires_crc,
            "force_verify_prop_crc": self.requires_crc,
        }  # fmt: skip
        self.ledger = Ledger()
        self.errors: list[str] = []
        self._past = b""
        self._ends: list[Callable[[], None]] = []
        copy = "slave" if self.is_slave else "follower"
        self.counts = Counter({f"{self.role}, {flush}": 1, f"copy: {copy}": 1})

    # -- lives

    @classmethod
    @asynccontextmanager
    async def begin(cls, folder: Path, seed: int) -> AsyncIterator[Self]:
        """Both run, with some messages; at the end both are stopped, and compared with each other and the ledger."""
        pair = cls(folder, seed)
        async with AsyncExitStack() as stack:
            stack.enter_context(SlaveErrors(pair.errors.append))
            pair.remoting, pair.ha = [await stack.enter_async_context(proxy_to("127.0.0.1:9")) for _ in range(2)]
            await pair.start_master(folder / "master")
            await pair.start_copy(folder / "copy")
            await pair.load(2)
            await pair.meet()
            yield pair
            stores = [await pair.master.stop(), await pair.copy.stop()]
        logs = [{path.name: path.read_bytes() for path in (store / "commitlog").iterdir()} for store in stores]
        common = logs[0].keys() & logs[1].keys()  # a next file may have been made
        assert [logs[0][name] for name in common] == [logs[1][name] for name in common], "the files differ"
        for number, store in enumerate(stores):
            pair.ledger.check(store, folder / f"check-{number}", is_clean=False)
        pair.counts["acknowledged messages"] = len(pair.ledger.acknowledged)

    def new_path(self) -> Path:
        """A folder that is not there yet."""
        return self._folder / f"{next(self._numbers)}"

    async def start_master(self, path: Path, before: Disk | None = None) -> None:
        """Start a master on a store. before: the disk of its last life, where the machine lives on."""
        self.master = BrokerLife(path, self.new_path(), self.chance.getrandbits(30), before, **self._keys)
        await self.master.start(self.role, slave_timeout=300)
        self.remoting.target, self.ha.target = self.master.address, self.master.ha_address
        if _TOPIC not in self.master.store.topics:
            client = await self.master.client()
            await with_topic(client, _TOPIC, _QUEUES)
            await client.leave()
            self.ledger.topics[_TOPIC] = _QUEUES

    async def start_copy(self, path: Path, before: Disk | None = None) -> None:
        """Start a copy, as `start_master`."""
        self.errors.clear()
        arguments = path, self.new_path(), self.chance.getrandbits(30), before
        self.copy = (
            BrokerLife(*arguments, **self._keys)
            if self.is_slave
            else FollowerLife(*arguments, told=self.errors.append, **self._keys)
        )
        await self.copy.follow(self.remoting.address, self.ha.address)

    async def stop_master(self) -> Path:
        """Stop it, or put it away after its end; where its store is."""
        self._past = self.master.log
        return await self.master.stop()

    async def stop_copy(self) -> Path:
        """Stop it, or put it away after its end; where its store is. It has what a SYNC_MASTER has acknowledged."""
        store = await self.copy.stop()
        may_lose = self.copy.disk.has_lost_power and not self.is_synced
        if self.role == "SYNC_MASTER" and not may_lose:
            self.ledger.check(store, self.new_path(), is_clean=False)
        return store

    async def start_master_again(self) -> bool:
        """Start it with what its end has left; whether that may lack the end of its log."""
        may_lose = self.master.disk.has_lost_power and not self.is_synced
        await self.start_master(await self.stop_master())
        if may_lose:
            self.forget()
        return may_lose

    async def start_copy_again(self) -> None:
        """Start it with what its end has left, or its stop."""
        is_over, before = self.copy.is_over, self.copy.disk
        await self.start_copy(await self.copy.stop(), None if is_over else before)

    def forget(self) -> None:
        """Forget what clients know of messages behind the end of the master's log, which was not to keep them."""
        ledger, end = self.ledger, self.master.end_offset
        ledger.acknowledged = [one for one in ledger.acknowledged if one.commit_log_offset < end]
        ledger.seen = {(one.topic, one.queue_id, one.queue_offset): one.key for one in ledger.acknowledged}

    # -- the network

    def hang_up(self) -> None:
        """Cut all connections between the two."""
        self.remoting.cut()
        self.ha.cut()

    def hold(self) -> None:
        """Let nothing pass."""
        for proxy in (self.remoting, self.ha):
            proxy.hold()

    def heal(self) -> None:
        """Let the network be as it was."""
        for proxy in (self.remoting, self.ha):
            proxy.change, proxy.piece, proxy.delay_s = no_change, 65_536, 0.0
            proxy.go_on()

    # -- the load

    async def load(self, bursts: int) -> None:
        """Send bursts of messages, until all are answered or the master has ended."""
        master, ledger, chance = self.master, self.ledger, self.chance
        client = await master.client()
        for _ in range(bursts):
            keys = [f"k-{next(self._numbers)}" for _ in range(chance.randrange(1, 30))]
            ledger.sent.update(keys)
            queue_id = chance.randrange(_QUEUES)
            if chance.random() < 0.3:
                body = encode_batch([Message(_TOPIC, body_of(key), keys=[key]) for key in keys])
                code = RequestCode.SEND_BATCH_MESSAGE
                sent = [(keys, send_command(_TOPIC, body, code=code, batch=True, queueId=queue_id))]
            else:
                sent = [
                    ([key], send_command(_TOPIC, body_of(key), properties={"KEYS": key}, queueId=queue_id))
                    for key in keys
                ]
            begun = client.begin_all([command for _, command in sent])
            assert await self.until(partial(_is_answered, master, begun)), "a send is not answered"
            for (names, _), answer in zip(sent, begun, strict=True):
                if master.is_over:  # the answers that came before count, and no other one
                    break
                if answer.result().code not in _NO_SLAVE_HAS_IT:
                    ledger.acknowledge(_TOPIC, names, answer.result())
        await client.leave()

    async def until(self, condition: Callable[[], bool]) -> bool:
        """Whether a condition comes true."""
        deadline = time.monotonic() + _MOST_S
        while not condition():
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(_LOOK_S)
        return True

    # -- what must hold

    def _is_equal(self) -> bool:
        has_topics = _TOPIC in self.copy.store.topics  # they come a little later than the log
        return has_topics and self.copy.end_offset == self.master.end_offset and self.copy.log == self.master.log

    def check_errors(self, allowed: str) -> None:
        """Nothing else has stopped the copy than what may."""
        wrong = [error for error in self.errors if not (allowed and re.search(allowed, error))]
        assert not wrong, wrong[0]

    async def meet(self, allowed: str = "", *, may_differ: bool = False) -> None:
        """Both run and hear each other: the copy becomes equal, or says why it cannot, and appends nothing.

        Args:
            allowed: What an error may say that stops it once.
            may_differ: Whether the master's log may be another one than the copy's.
        """
        if not self.master.log.startswith(self.copy.log):
            assert may_differ, "the copy has bytes that its master has not"
            self.counts["other logs told"] += 1
            assert await self.until(lambda: any(re.search(OTHER_LOG, error) for error in self.errors)), "not told"
            assert self._past.startswith(self.copy.log), "bytes of two logs are in one"
            await self.start_copy(await self.rejoined(await self.copy.stop()))
        for _ in range(_STARTS):
            if not await self.until(lambda: self._is_equal() or self.copy.has_ended):
                ends = f"{self.copy.end_offset}, and the master at {self.master.end_offset}"
                raise AssertionError(f"the copy stays at {ends}: {self.errors[-1:]}")
            self.check_errors(allowed)
            if self._is_equal():
                self.errors.clear()
                return
            self.counts["copies started again"] += 1
            await self.start_copy_again()
        raise AssertionError(f"the copy stops again and again: {self.errors}")

    async def rejoined(self, store: Path) -> Path:
        """A store that has only what its new master has, too; a new one where that is nothing."""
        logs = b"".join(path.read_bytes() for path in sorted((store / "commitlog").iterdir())), self.master.log
        differs = (at for at, (ours, theirs) in enumerate(zip(*logs, strict=False)) if ours != theirs)
        common = next(differs, min(map(len, logs)))
        try:
            done = await self._rejoin(store)
        except ReplicationError:
            assert common < _RECORD, f"{common} bytes are common, and were given up"
            return self.new_path()
        assert done.common_offset <= common < done.common_offset + _RECORD, (done.common_offset, common)
        assert done.repair is not None
        assert done.repair.is_fine, done.repair.findings[0]
        self.counts["stores rejoined"] += 1
        return store

    async def _rejoin(self, store: Path) -> Rejoin:
        """Let a store rejoin; again where the master does not answer in the short time that `hurry` leaves it."""
        tried = partial(rejoin, store, self.master.address, apply=True, runner=LocalRunner(), **_SIZES)
        for _ in range(_STARTS - 1):
            with suppress(RemotingError):
                return await asyncio.to_thread(tried)
        return await asyncio.to_thread(tried)

    # -- ends of lives

    async def die(self, *lives: Life, power_cuts: bool = True) -> None:
        """Load, and end lives at a moment of it; with `power_cuts` maybe by one."""
        for life in lives:
            is_kill = not power_cuts or self.chance.random() < 0.5
            end = partial(life.kill, self.hang_up) if is_kill else life.lose_power
            self.counts["kills" if is_kill else "power cuts"] += 1
            self._arm(life, end, by_disk=not is_kill)
            self._ends.append(end)
        await self.load(self.chance.randrange(1, 8))
        for end in self._ends:  # those whose moment has not come
            end()
        self._ends.clear()
        self.heal()

    def _arm(self, life: Life, end: Callable[[], None], *, by_disk: bool) -> None:
        """Draw the moment: an operation of the disk, a byte of the protocol, or any."""
        chance, later = self.chance, asyncio.get_running_loop().call_later
        moments = ["disk", "disk", "byte", "time"] if by_disk else ["byte", "byte", "time"]
        match chance.choice(moments):
            case "disk":
                life.disk.at = len(life.disk.operations) + chance.randrange(chance.choice((5, 50)))
            case "byte":
                is_cut, delay_s = chance.random() < 0.5, chance.choice((0, 0, 0.001, 0.005))

                def act(data: bytes, position: int) -> tuple[bytes, bool]:
                    later(delay_s, end)
                    return (data[:position], True) if is_cut else (data, False)

                self.ha.change = AtByte(chance.random() < 0.3, self.byte(), act)
            case _:
                later(chance.uniform(0, 0.05), end)

    def byte(self) -> int:
        """Number of a byte of one direction: in what a connection begins with, or later."""
        return self.chance.randrange(self.chance.choice((30, 500, 20_000)))
