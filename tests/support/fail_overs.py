"""A fail-over at any moment, under load of all kinds, and what must come at the new master."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from reput import read_log
from reput.errors import RemotingError
from reput.formats.message_id import decode_message_id
from reput.formats.record_layout import SysFlag
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from reput.transport.blocking_client import BlockingConnection
from tests.support.asking import WITHIN_S, call, request, until
from tests.support.broker import Client, make_topic, messages_of, pull_command, send_command
from tests.support.master_and_slave import Pair
from tests.support.pop import handle_fields, handles, pop_command

#: Short times, so that in each moment something is under way.
SHORT = {
    "message_delay_level": "1s 2s", "timer_precision_ms": 100, "timer_flush_interval_ms": 50,
    "timer_roll_window_slot": 8, "revive_interval": 100, "flush_delay_offset_interval": 100,
    "transaction_time_out": 300, "transaction_check_interval": 200, "transaction_op_batch_interval": 50,
    "transaction_check_max": 10_000,
}  # fmt: skip
KINDS: dict[str, dict[str, str]] = {
    "plain": {}, "level": {"DELAY": "1"}, "timer": {"TIMER_DELAY_MS": "350"}, "rolled": {"TIMER_DELAY_MS": "2500"},
    "popped": {}, "half": {"TRAN_MSG": "true", "PGROUP": "payers"},
}  # fmt: skip
Work = Callable[[BlockingConnection], None]
INVISIBLE_MS, ANSWER_S = 500, 5
_COMMIT = int(SysFlag.TRANSACTION_COMMIT)


class Load:
    """Sends of each kind, a consumer that pops and acknowledges some, and commits of some half messages.

    Attributes:
        sent: By kind, the bodies that were answered SEND_OK.
        acked: Those that the consumer has acknowledged, whether or not that was answered.
        lag: How many of those that were answered SEND_OK the slave did not have.
    """

    def __init__(self, address: str, chance: random.Random) -> None:
        self._address, self._chance = address, chance
        self._is_over = threading.Event()
        self.sent: dict[str, set[bytes]] = {kind: set() for kind in KINDS}
        self.acked: set[bytes] = set()
        self.lag = 0

    def __enter__(self) -> Load:
        works: list[Work] = [self._consume, *(partial(self._send, kind) for kind in KINDS)]
        self._pool = ThreadPoolExecutor(len(works))
        self._tasks = [self._pool.submit(self._work, work) for work in works]
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._pool.shutdown()
        for task in self._tasks:
            task.result()

    def _work(self, work: Work) -> None:
        connection = BlockingConnection(self._address)
        try:
            while not self._is_over.is_set():
                work(connection)
        except RemotingError:  # the master is closed
            pass
        finally:
            connection.close()

    def _send(self, kind: str, connection: BlockingConnection) -> None:
        body = b"%s-%d" % (kind.encode(), len(self.sent[kind]))
        is_half = kind == "half"
        unique_key = {"UNIQ_KEY": body.decode()} if is_half else {}
        flag = int(SysFlag.TRANSACTION_PREPARED) if is_half else 0
        born = int(time.time() * 1000)  # transactions of long ago are given up
        properties = KINDS[kind] | unique_key
        answer = ask(connection, send_command(kind, body, properties=properties, sysFlag=flag, bornTimestamp=born))
        if answer.code == 0:
            self.sent[kind].add(body)
            if is_half and self._chance.random() < 0.5:
                ask(connection, _commit_of(answer, body))

    def _consume(self, connection: BlockingConnection) -> None:
        answer = ask(connection, pop_command("popped", invisible_ms=INVISIBLE_MS, maxMsgNums=4))
        for message, topic, handle in handles(answer) if answer.code == 0 else ():
            if self._chance.random() < 0.5:
                self.acked.add(message.body)
                ask(connection, request(RequestCode.ACK_MESSAGE, **handle_fields(topic, handle)))


def _commit_of(answer: RemotingCommand, body: bytes) -> RemotingCommand:
    """The end of the transaction of a half message whose send was answered so."""
    fields = answer.ext_fields or {}
    _, offset = decode_message_id(fields["msgId"])
    return request(
        RequestCode.END_TRANSACTION, producerGroup="payers", commitOrRollback=_COMMIT, msgId=body.decode(),
        tranStateTableOffset=fields["queueOffset"], commitLogOffset=offset,
    )  # fmt: skip


def ask(connection: BlockingConnection, command: RemotingCommand) -> RemotingCommand:
    [opaque] = connection.send(command)
    return connection.answer(opaque, ANSWER_S)


def fail_over(pair: Pair, seed: int, role: str) -> Load:
    """Lose the slave at a moment under load, as a machine that stops, and its master with it.

    Returns:
        The load, with only those messages that the slave has: of a SYNC_MASTER these must be all.
    """
    chance = random.Random(seed)
    with pair.start("master", role) as master:
        slave = pair.slave()
        for kind in KINDS:
            make_topic(master.address, kind, 1)
        until(lambda: call(master.address, send_command("plain", b"first")).code == 0)  # a SYNC_MASTER has a slave
        with Load(master.address, chance) as load:
            threading.Event().wait(chance.uniform(0.3, 2.0))  # the moment, not a synchronisation
            slave.close()
    has = {body.as_py() for batch in read_log(pair.path("slave"), ["body"]) for body in batch["body"]}
    for kind, sent in load.sent.items():
        assert role == "ASYNC_MASTER" or sent <= has, f"{kind}: the slave lacks {sorted(sent - has)}"
        load.lag += len(sent - has)
        load.sent[kind] = sent & has
    return load


def check_all_come(pair: Pair, load: Load) -> int:
    """Make the slave the master, and return once all messages have come; their number."""
    with pair.start("slave") as promoted:
        asyncio.run(_until_all_come(promoted.address, load))
    return sum(map(len, load.sent.values()))


async def _until_all_come(address: str, load: Load) -> None:
    """Consume as a client whose producer commits all that it is asked."""
    host, _, port = address.rpartition(":")
    client = Client(*await asyncio.open_connection(host, int(port)))
    await client.heartbeat("payer", producers=["payers"])
    commits = asyncio.create_task(_commit_what_is_asked(client))
    lost = {kind: sent - load.acked for kind, sent in load.sent.items()}
    offsets = dict.fromkeys(KINDS, 0)
    try:
        async with asyncio.timeout(WITHIN_S):
            while any(lost.values()):
                for kind in KINDS:
                    command = pop_command(kind) if kind == "popped" else pull_command(kind, offsets[kind])
                    answer = await client.begin_all([command])[0]
                    if answer.code == 0:
                        come = messages_of(answer)
                        lost[kind] -= {message.body for message in come}
                        offsets[kind] += len(come)
    except TimeoutError:
        raise AssertionError(f"these do not come at the new master: {lost}") from None
    finally:
        commits.cancel()
        await client.leave()


async def _commit_what_is_asked(client: Client) -> None:
    while True:
        asked = await client.requests.get()
        if asked.code == RequestCode.CHECK_TRANSACTION_STATE:
            given = asked.ext_fields or {}
            half = {name: given[name] for name in ("tranStateTableOffset", "commitLogOffset", "msgId")}
            await client.ask(
                RequestCode.END_TRANSACTION, producerGroup="payers", commitOrRollback=_COMMIT,
                fromTransactionCheck=True, **half,
            )  # fmt: skip
