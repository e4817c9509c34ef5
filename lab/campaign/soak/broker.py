"""A broker of a soak and its Java clients, as the process that watches them starts, hears, kills and replaces them."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Protocol

from lab.campaign.soak.children import ROOT, Child, StoreChild, module
from lab.campaign.soak.ledger import Deliveries, Ledger
from lab.campaign.soak.load import GROUPS, KINDS, SoakedStore
from lab.campaign.soak.telling import Acknowledgement
from tests.support.rocketmq.apache import classes_command

#: Below those that a kernel gives to clients: one of them would take the port of a broker that was killed.
_PORTS = range(20_000, 30_000)
_STOP_S = 60
_JAVA_OPTIONS = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_VERSION = "5.3.3"
#: Of the brokers. Producers are asked soon how a transaction ended: a run waits for it at its end. Consumers that ask
#: get POP.
KEYS = {
    "transactionTimeOut": 2_000, "transactionCheckInterval": 5_000, "transactionCheckMax": 100,
    "defaultMessageRequestMode": "POP", "mappedFileSizeTimerLog": 1 << 20,
}  # fmt: skip


class Broker(Protocol):
    """Broker for Java clients: its name in the figures, its address, and the messages that it has acknowledged."""

    role: str
    namesrv: str
    ledger: Ledger


class BrokerChild(StoreChild):
    """`reput broker` on a store; all its lives have the same ports. What it prints is what it tells.

    Attributes:
        namesrv: Where clients find it.
    """

    def __init__(self, store: SoakedStore, folder: Path, chance: random.Random) -> None:
        port, namesrv_port = free_ports(chance)
        self.namesrv = f"127.0.0.1:{namesrv_port}"
        keys = store.options | KEYS | {"bindAddress": "127.0.0.1", "brokerIP1": "127.0.0.1", "brokerName": store.name}
        settings = [word for name, value in keys.items() for word in ("--set", f"{name}={value}")]
        ports = ["--port", str(port), "--namesrv-port", str(namesrv_port)]
        super().__init__(store, folder, module("reput"), ["broker", str(folder / store.name), *ports, *settings])

    def _popen(self, errors: IO[bytes]) -> subprocess.Popen[bytes]:
        with self._told.open("wb") as output:
            return subprocess.Popen([*self._command, *self._arguments], cwd=ROOT, stdout=output, stderr=errors)

    def stop(self) -> None:
        """SIGTERM: it stops by itself, clean."""
        self._process.send_signal(signal.SIGTERM)
        ended = self._process.wait(_STOP_S)
        self._hear()
        if ended != 0:
            self.failures.append(f"{self.role}: stopped with {ended}: {self._last_words()}")

    def listen(self) -> None:
        """As of every child; and an error that it has logged with a traceback is a failure."""
        if b"Traceback" in self._errors.read_bytes():
            self.failures.append(f"{self.role}: {self._last_words()}")
            self._errors.write_bytes(b"")  # told once
        super().listen()


class ClientsChild(Child):
    """A JVM with producers and consumers of one broker (lab/interop/, `SoakClients`)."""

    def __init__(self, broker: Broker, folder: Path, rate: float) -> None:
        self.broker = broker
        self._deliveries = {group: Deliveries() for group in GROUPS}
        self._kinds = {group: Deliveries() for group in KINDS}
        self._keys_promised: set[tuple[str, str]] = set()
        home = folder / f"{broker.role} clients"
        home.mkdir()
        command = classes_command(_VERSION, home, _JAVA_OPTIONS)
        arguments = [broker.namesrv, str(rate), broker.role]
        super().__init__(f"{broker.role}-clients", folder, [*command, "reput.interop.SoakClients"], arguments)

    def _acknowledged(self, acknowledgement: Acknowledgement) -> None:
        self.broker.ledger.add(acknowledgement)
        for deliveries in self._deliveries.values():
            deliveries.acknowledged(acknowledgement.key)

    def _promised(self, group: str, key: str) -> None:
        self._keys_promised.add((group, key))
        self._kinds[group].acknowledged(key)

    def _consumed(self, group: str, key: str) -> None:
        if group in self._kinds:
            self._kinds[group].consumed(key, is_acknowledged=(group, key) in self._keys_promised)
            return
        self._deliveries[group].consumed(key, is_acknowledged=key in self.broker.ledger.entries)

    def stop_sending(self) -> None:
        """From now on it only consumes."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def missing(self) -> list[str]:
        """Messages that a group has not got, though they are in the log; retention may have taken others."""
        entries = self.broker.ledger.entries.keys()
        waiting = {group: deliveries.waiting & entries for group, deliveries in self._deliveries.items()}
        waiting |= {group: deliveries.waiting for group, deliveries in self._kinds.items()}
        return [f"{key} has not come to {group}" for group, keys in waiting.items() for key in sorted(keys)]


def free_ports(chance: random.Random) -> Sequence[int]:
    """Two that nobody listens on."""
    found: list[int] = []
    while len(found) < 2:
        port = chance.choice(_PORTS)
        with socket.socket() as tried:
            if port not in found and tried.connect_ex(("127.0.0.1", port)):
                found.append(port)
    return found
