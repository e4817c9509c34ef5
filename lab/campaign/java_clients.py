"""Kills and power cuts of a broker to which RocketMQ's own Java clients send all kinds of messages at once."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.campaign.cases import Part
from lab.campaign.soak.broker import KEYS, ClientsChild, free_ports
from lab.campaign.soak.ledger import Ledger
from lab.campaign.soak.load import SoakedStore
from reput.jobs.audit.job import audit
from reput.jobs.runner import LocalRunner
from tests.support.broker_load import broker_process
from tests.support.kinds.lives import Death, broker_on_disk

#: Lives that end by a kill or a power cut: after a first one, in which the clients find the broker, and before a last
#: one, in which all that was promised comes.
_DEATHS = 3
_FIRST_ANSWERS = 200
_CASES = 20
#: Messages a second, besides those of other kinds.
_RATE = 100
#: Seconds of the longest life, of the last deliveries, of an end, between two looks.
_MOST_S, _DRAIN_S, _END_S, _LOOK_S = 60, 120, 60, 0.05
#: Acknowledgements of the last life before nobody sends any more.
_LAST_ANSWERS = 50


class _Served:
    """A store whose broker has the same ports in all lives: clients wait there for the next one.

    `role`, `namesrv` and `ledger` are as `ClientsChild` asks for them.
    """

    def __init__(self, path: Path, chance: random.Random) -> None:
        self.path, self.role, self.ledger = path, "broker", Ledger(path)
        self._ports = free_ports(chance)
        self.namesrv = f"127.0.0.1:{self._ports[1]}"
        options = SoakedStore(self.role, "SYNC_FLUSH", is_killed=True).options
        self._keys = options | KEYS | {"brokerName": self.role}

    @contextmanager
    def process(self) -> Iterator[subprocess.Popen[str]]:
        """`reput broker`."""
        port, namesrv_port = self._ports
        with broker_process(self.path, log_level="warning", port=port, namesrv_port=namesrv_port, **self._keys) as (
            process,
            _,
        ):
            yield process

    @contextmanager
    def process_on_disk(self, left: Path, death: Death) -> Iterator[subprocess.Popen[str]]:
        """A broker whose power is cut; then the store is what the disk had."""
        port, namesrv_port = self._ports
        keys = self._keys | {"listen_port": port, "namesrv_port": namesrv_port}
        with broker_on_disk(self.path, left, death, keys) as (process, _):
            yield process
        if left.is_dir():
            shutil.rmtree(self.path, ignore_errors=True)
            left.rename(self.path)


def run(folder: Path, seed: int) -> Counter[str]:
    """One store, whose broker dies three times, and clients that live on; after each death the log is compared."""
    chance = random.Random(seed)
    broker, counts = _Served(folder / "store", chance), Counter[str]()
    clients = ClientsChild(broker, folder, _RATE)
    try:
        for death in [Death("kill", answers=_FIRST_ANSWERS), *(_drawn_death(chance) for _ in range(_DEATHS))]:
            if death.way == "kill":
                with broker.process() as process:
                    _let_live(process, clients, broker.ledger.acknowledged + death.answers, death.moment_s)
            else:
                with broker.process_on_disk(folder / "left", death) as process:
                    _let_live(process, clients)
            _check(broker, clients)
            counts[f"{death.way}s"] += 1
        with broker.process() as process:
            _finish(process, broker, clients)
        _check(broker, clients)
    finally:
        clients.kill()
    audited = audit(broker.path, runner=LocalRunner())
    assert audited.is_clean, f"{len(audited.findings)} findings, the worst one: {audited.findings[0]}"
    return counts + clients.counts + Counter({"acknowledged messages": broker.ledger.acknowledged})


def _drawn_death(chance: random.Random) -> Death:
    if chance.random() < 0.4:
        return Death("kill", chance.randrange(1, 1500), chance.uniform(0, 1.5))
    seed = chance.choice((0, chance.randrange(1, 1 << 30)))
    in_start = chance.random() < 0.1
    most = 60 if in_start else chance.choice((300, 1500, 5000))
    return Death("power cut", operation=chance.randrange(1, most), in_start=in_start, seed=seed)


def _let_live(
    process: subprocess.Popen[str], clients: ClientsChild, answers: int | None = None, moment_s: float = 0.0
) -> None:
    """Send until the broker's power is cut; or until it has acknowledged a number of messages in all, and is killed."""
    deadline = time.monotonic() + _MOST_S
    while process.poll() is None:
        clients.listen()
        is_late = time.monotonic() >= deadline
        if is_late or (answers is not None and clients.broker.ledger.acknowledged >= answers):
            time.sleep(0 if is_late else moment_s)
            process.kill()
            process.wait()
        time.sleep(_LOOK_S)


def _finish(process: subprocess.Popen[str], broker: _Served, clients: ClientsChild) -> None:
    """A life in which all that was promised comes, and a clean stop."""
    answers = broker.ledger.acknowledged + _LAST_ANSWERS
    deadline = time.monotonic() + _DRAIN_S
    is_sending = True
    while is_sending or clients.missing():
        assert time.monotonic() < deadline, f"{len(clients.missing())} messages are missing, as {clients.missing()[:1]}"
        assert process.poll() is None, f"the broker ended by itself with {process.returncode}"
        clients.listen()
        if is_sending and broker.ledger.acknowledged >= answers:
            clients.stop_sending()
            is_sending = False
        time.sleep(_LOOK_S)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=_END_S)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors, errors


def _check(broker: _Served, clients: ClientsChild) -> None:
    """Check that the log has what clients were told, and that they have seen nothing that must not be."""
    clients.listen()
    assert not clients.failures, clients.failures[0]
    broker.ledger.check()


_FIGURES = (
    *("kills", "power cuts", "acknowledged messages", "consumed by Java clients", "dead letters"),
    *("timed messages answered", "messages popped", "transactions checked"),
)
PART = Part(
    "java", "kills and power cuts of a broker under all kinds of messages of Java clients", _CASES, run, _FIGURES
)
