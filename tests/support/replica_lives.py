"""Lives of a master and of its copy in one process and one loop, which a kill or a power cut may end at any moment."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import reput.broker.services
import reput.broker.slave.slave
import reput.replication.follower
import reput.replication.ha_service
import reput.replication.ha_stream
import reput.replication.master
import reput.store.dispatch.reput
from reput import MessageStore
from reput.broker.broker import BrokerController
from reput.broker.slave.slave import Slave
from reput.broker.state import BrokerState
from reput.errors import RemotingError, ReputError
from reput.events import Event
from reput.files import File, RecordLock
from reput.files.os_errors import sync_failure
from reput.replication.follower import Follower
from tests.support.broker import Client, controller_of
from tests.support.broker_ledger import STORE_KEYS
from tests.support.fake_master import log_of
from tests.support.faulty_files import FaultyFiles, Judge, Operation, no_objection
from tests.support.sockets import free_ports

#: The timer wheel has 38 MB.
_KEYS = STORE_KEYS | {"timer_wheel_enable": False}
#: Nobody listens there: a slave is told its master by its life.
_NO_NAME_SERVER = "127.0.0.1:9"
#: Tries of what others may disturb: a port that is taken in between, an operation that has begun.
_TRIES = 5
_logger = logging.getLogger("reput.broker")


def hurry() -> None:
    """Let replication in this process wait for less: a case has many breaks of connections."""
    for module, values in (
        (reput.replication.follower, {"HEARTBEAT_S": 0.05, "_WAIT_S": 0.02, "_RETRY_S": 0.01}),
        (reput.replication.ha_stream, {"SILENCE_S": 0.5}),
        (reput.replication.follower, {"_TOPICS_S": 0.1}),
        (reput.replication.ha_service, {"HEARTBEAT_S": 0.05, "SILENCE_S": 0.5}),
        (reput.replication.master, {"_ANSWER_S": 0.5}),
        (reput.broker.slave.slave, {"_COPY_S": 0.02}),
        (reput.broker.services, {"_DRAIN_S": 0.02}),
        (reput.store.dispatch.reput, {"RETRY_WAIT_S": 0.01}),
    ):
        for name, value in values.items():
            assert hasattr(module, name)
            setattr(module, name, value)


class Disk(FaultyFiles):
    """A disk whose machine may end: from then on each operation fails, and nothing more becomes durable.

    The process goes on, as it is the test's own. What it does to the files after the end is of no account: `left` has
    what the end has left.

    Attributes:
        at: Number of the operation at which the power is cut; None: it is not.
        fault: Judge of what else fails.
        is_over: Whether the machine has ended.
        has_lost_power: ... by a power cut.
    """

    def __init__(self, store: Path, left: Path, chance: random.Random) -> None:
        super().__init__(self._judge)
        self._store, self._left, self._chance = store, left, chance
        self._ending = threading.RLock()
        self.at: int | None = None
        self.fault: Judge = no_objection
        self.is_over = self.has_lost_power = False

    def _judge(self, operation: Operation) -> None:
        with self._ending:
            if self.at is not None and operation.number >= self.at:
                self.lose_power()
            if self.is_over:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            self.fault(operation)

    def lose_power(self) -> None:
        """Leave what was synced and, half of the times, some of the rest, torn and in any order."""
        with self._ending:
            if not self.is_over:
                self.is_over = self.has_lost_power = True
                self.cut_power(self._store, self._left, self._chance if self._chance.random() < 0.5 else None)

    def be_killed(self) -> None:
        """Leave what was written; the log last, to which nobody may append meanwhile."""
        with self._ending:
            self.is_over = True
        for tried in range(_TRIES):
            try:
                shutil.copytree(self._store, self._left, ignore=shutil.ignore_patterns("commitlog"))
            except (shutil.Error, FileNotFoundError):  # an operation that had begun
                if tried == _TRIES - 1:
                    raise
            else:
                if tried:  # by then it has ended
                    break
            shutil.rmtree(self._left)
        if (self._store / "commitlog").is_dir():
            shutil.copytree(self._store / "commitlog", self._left / "commitlog")

    def cut_power(
        self, path: Path, target: Path, chance: random.Random | None = None, written: dict[int, Path] | None = None
    ) -> None:
        """Leave of the log only what was synced.

        A torn record that nobody was answered for counts as whole where it shows no CRC, and is refused where it must
        have one (forceVerifyPropCRC).
        """
        super().cut_power(path, target, None if path.name == "commitlog" else chance, written)

    def bytes_are_durable(self, file: File) -> None:
        with self._ending:
            self._check_end(file.path)
            super().bytes_are_durable(file)

    def names_are_durable(self, path: str) -> None:
        with self._ending:
            self._check_end(path)
            super().names_are_durable(path)

    def text_is_durable(self, lock: RecordLock, text: bytes) -> None:
        with self._ending:
            self._check_end(lock.path)
            super().text_is_durable(lock, text)

    def _check_end(self, path: str) -> None:
        """A sync that had begun before the end is not done."""
        if self.is_over:
            raise sync_failure(OSError(errno.EIO, os.strerror(errno.EIO)), path)


class Life:
    """One life of a store; it is used in the loop's thread.

    Attributes:
        path: The store.
        disk: Of its machine.
        store: Open from the start on.
    """

    def __init__(self, path: Path, left: Path, seed: int, before: Disk | None = None, **keys: object) -> None:
        self.path, self._left, self._keys = path, left, _KEYS | keys
        self.disk = Disk(path, left, random.Random(seed))
        if before is not None:
            self.disk.goes_on_after(before)
        elif path.is_dir():
            self.disk.all_is_durable(path)
        self._is_stopped = False
        self.store: MessageStore

    @property
    def is_over(self) -> bool:
        """Whether its machine has ended."""
        return self.disk.is_over

    @property
    def end_offset(self) -> int:
        return self.store.max_commit_log_offset

    @property
    def log(self) -> bytes:
        """All bytes of its log."""
        return log_of(self.path, self.end_offset)[1] if self.end_offset else b""

    def lose_power(self) -> None:
        if not self._is_stopped:
            self.disk.lose_power()

    def kill(self, hang_up: Callable[[], None]) -> None:
        """End as SIGKILL does; `hang_up` cuts its connections: what it appends later is sent to nobody."""
        if not (self._is_stopped or self.is_over):
            with self.store._log._lock:
                self.disk.be_killed()
                hang_up()
                self._hang_up()

    def _hang_up(self) -> None:
        """Serve no slave any more."""

    async def stop(self) -> Path:
        """Stop clean, or put away what goes on after the end; where the store is then."""
        self._is_stopped = True
        try:
            await self._stop()
        except (ReputError, OSError):
            if not self.is_over and self.disk.fault is no_objection:
                raise
        return self._left if self.is_over else self.path

    async def _stop(self) -> None:
        raise NotImplementedError


class BrokerLife(Life):
    """A broker in this loop."""

    async def start(self, role: str, **keys: object) -> None:
        given = self._keys | {"broker_role": role} | keys
        for left in reversed(range(_TRIES)):
            ha = {} if role == "SLAVE" else {"ha_listen_port": free_ports(1)[0]}
            self._controller: BrokerController = controller_of(self.path, files=self.disk, **given | ha)
            try:
                await self._controller.start()
                break
            except RemotingError:
                if not left:
                    raise
        self.store = self.state.store

    async def follow(self, master: str, ha_address: str) -> None:
        """Start as a slave of the broker that answers and serves its log there."""
        await self.start("SLAVE", broker_id=1, namesrv_addr=_NO_NAME_SERVER)
        assert isinstance(self.state.slave, Slave)
        self.state.slave.master_is(master, ha_address)

    @property
    def state(self) -> BrokerState:
        return self._controller.state

    @property
    def address(self) -> str:
        return self._controller.address

    @property
    def ha_address(self) -> str:
        return self.state.registration.ha_address

    @property
    def has_ended(self) -> bool:
        """A slave tries again, whatever has stopped it."""
        return False

    async def client(self) -> Client:
        host, _, port = self.address.rpartition(":")
        return Client(*await asyncio.open_connection(host, int(port)))

    def _hang_up(self) -> None:
        if self.state.ha is not None:
            self.state.ha.close()

    async def _stop(self) -> None:
        await self._controller.stop()


class FollowerLife(Life):
    """A follower that acknowledges; `told` is called with the error that ends it, in its thread."""

    def __init__(self, *arguments: object, told: Callable[[str], None], **keys: object) -> None:
        super().__init__(*arguments, **keys)  # type: ignore[arg-type]
        self._told, self._flag = told, threading.Event()

    async def follow(self, master: str, ha_address: str) -> None:
        """Start to follow the broker that answers and serves its log there."""
        self.store = MessageStore.open(self.path, files=self.disk, **self._keys)
        follower = Follower(self.store, master, acknowledges=True, ha_address=ha_address)
        self._thread = threading.Thread(target=self._run, args=(follower,), daemon=True)
        self._thread.start()

    def _run(self, follower: Follower) -> None:
        try:
            follower.run(self._flag)
        except ReputError as error:
            if not self.is_over:
                self._told(str(error))

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    async def _stop(self) -> None:
        self._flag.set()
        await asyncio.to_thread(self._thread.join)
        await asyncio.to_thread(self.store.close)


class SlaveErrors(logging.Handler):
    """Tells what slaves of this process log where they refuse to copy; a context manager."""

    def __init__(self, told: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._tell = told

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.msg, Event) and record.msg.message == "the slave copies nothing":
            self._tell(record.msg.fields["reason"])

    def __enter__(self) -> None:
        self._before = _logger.level, _logger.propagate
        _logger.setLevel(logging.ERROR)
        _logger.propagate = False
        _logger.addHandler(self)

    def __exit__(self, *_: object) -> None:
        _logger.removeHandler(self)
        level, _logger.propagate = self._before
        _logger.setLevel(level)
