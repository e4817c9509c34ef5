"""A fail-over at any moment, under load of all kinds, and what must come at the new master."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from reput import read_log
from reput.errors import RemotingError
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from reput.transport.blocking_client import BlockingConnection
from tests.support.asking import call, request, until
from tests.support.broker import make_topic, messages_of, pull_command, send_command
from tests.support.master_and_slave import Pair
from tests.support.pop import handle_fields, handles, pop_command

#: Short times, so that in each moment something is under way.
SHORT = {
    "message_delay_level": "1s 2s", "timer_precision_ms": 100, "timer_flush_interval_ms": 50,
    "timer_roll_window_slot": 8, "revive_interval": 100, "flush_delay_offset_interval": 100,
}  # fmt: skip
KINDS: dict[str, dict[str, str]] = {
    "plain": {}, "level": {"DELAY": "1"}, "timer": {"TIMER_DELAY_MS": "350"}, "rolled": {"TIMER_DELAY_MS": "2500"},
    "popped": {},
}  # fmt: skip
Work = Callable[[BlockingConnection], None]
INVISIBLE_MS, ANSWER_S = 500, 5


class Load:
    """Sends of each kind, and a consumer that pops and acknowledges some.

    Attributes:
        sent: By kind, the bodies that were answered SEND_OK.
        acked: Those that the consumer has acknowledged, whether or not that was answered.
    """

    def __init__(self, address: str, chance: random.Random) -> None:
        self._address, self._chance = address, chance
        self._is_over = threading.Event()
        self.sent: dict[str, set[bytes]] = {kind: set() for kind in KINDS}
        self.acked: set[bytes] = set()

    def __enter__(self) -> Load:
        self._pool = ThreadPoolExecutor()
        works: list[Work] = [partial(self._send, kind) for kind in KINDS]
        self._tasks = [self._pool.submit(self._work, work) for work in (*works, self._consume)]
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
        if ask(connection, send_command(kind, body, properties=KINDS[kind])).code == 0:
            self.sent[kind].add(body)

    def _consume(self, connection: BlockingConnection) -> None:
        answer = ask(connection, pop_command("popped", invisible_ms=INVISIBLE_MS, maxMsgNums=4))
        for message, topic, handle in handles(answer) if answer.code == 0 else ():
            if self._chance.random() < 0.5:
                self.acked.add(message.body)
                ask(connection, request(RequestCode.ACK_MESSAGE, **handle_fields(topic, handle)))


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
        load.sent[kind] = sent & has
    return load


def check_all_come(pair: Pair, load: Load) -> int:
    """Make the slave the master, and return once all messages have come; their number."""
    with pair.start("slave") as promoted:
        come: dict[str, set[bytes]] = {kind: set() for kind in KINDS}
        offsets = dict.fromkeys(KINDS, 0)

        def lost() -> dict[str, set[bytes]]:
            for kind in KINDS:
                command = pop_command(kind) if kind == "popped" else pull_command(kind, offsets[kind])
                answer = call(promoted.address, command)
                if answer.code == 0:
                    come[kind] |= {message.body for message in messages_of(answer)}
                    offsets[kind] += len(messages_of(answer))
            return {kind: left for kind, sent in load.sent.items() if (left := sent - come[kind] - load.acked)}

        until(lambda: not lost())
    return sum(map(len, load.sent.values()))
