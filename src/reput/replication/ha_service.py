"""HAService: serves the log of a store to slaves and followers, RocketMQ's and ours (`DefaultHAService`).

A thread accepts, and each connection has a thread, so a slow slave stops nobody. A connection sleeps until a record is
appended (`wake`), where RocketMQ's looks every 100 ms.

Bytes are sent as they lie in the map, up to the confirm offset: under SYNC_FLUSH what is on the disk, so that no slave
ever has what its master loses by a power cut.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import NamedTuple

from reput.errors import RemotingError
from reput.events import Event
from reput.formats.remoting import HEADER_SIZE_MASK, LENGTH_SIZE, TYPE_SHIFT
from reput.formats.replication import FRAME_HEADER, HEARTBEAT_S, MAX_FRAME_SIZE, REPORT, SILENCE_S
from reput.store.message_store import MessageStore

logger = logging.getLogger("reput.replication")

#: Bytes of a frame at the most: larger than RocketMQ's 32 KiB, since a slave reports once a frame.
_FRAME_BYTES = 256 << 10
assert _FRAME_BYTES + FRAME_HEADER.size <= MAX_FRAME_SIZE
#: Each connection has a thread; further ones are closed.
_MOST_CONNECTIONS = 256
#: A connection that asks for nothing for so long is closed: a slave asks at once, one of 4.9 after a heartbeat's time.
_FIRST_REPORT_S = 2 * HEARTBEAT_S
#: 64 PiB; letters and TLS make larger numbers.
_NO_LOG_IS_SO_LONG = 1 << 56
#: After a connection that could not be accepted: the process has too many files or threads.
_RETRY_S = 1.0


class HAConnection(NamedTuple):
    """A connection of a slave or a follower.

    Attributes:
        address: Its address, "host:port".
        requested_offset: Where it has begun; None before its first report.
        sent_offset: Commit log offset after the last byte that was sent.
        acknowledged_offset: Up to where it has said that it has the log.
    """

    address: str
    requested_offset: int | None
    sent_offset: int
    acknowledged_offset: int

    def is_in_sync(self, end_offset: int, max_gap: int) -> bool:
        """Whether it lacks less than `max_gap` bytes of a log of this end, that is whether it could soon have all."""
        return self.requested_offset is not None and end_offset - self.acknowledged_offset < max_gap


def _is_offset(number: int) -> bool:
    """Whether a first report may be one: not the begin of a request to a broker, nor a text, nor TLS.

    A request begins with its length and that of its header, whose first byte is 0 or 1: so does the offset of a log
    of gibibytes in one case of millions.
    """
    length, header = number >> 32, number & 0xFFFF_FFFF
    is_request = header >> TYPE_SHIFT <= 1 and LENGTH_SIZE + (header & HEADER_SIZE_MASK) <= length
    return number < _NO_LOG_IS_SO_LONG and not is_request


def _nobody() -> None:
    """Nobody waits for acknowledgements."""


class HAService:
    """The HA port of a store.

    Args:
        store: Of the master; its log is only read.
        host: The address to listen at.
        port: 0 takes a free one.
        slaves: The networks from which slaves and followers connect; None: from anywhere.

    Attributes:
        port: Where it listens, after `start`.
        on_acknowledged: Called in the thread of a connection after its slave has acknowledged more.
    """

    def __init__(
        self, store: MessageStore, host: str, port: int, slaves: Sequence[IPv4Network | IPv6Network] | None = None
    ) -> None:
        self._store, self._host, self.port, self._known = store, host, port, slaves
        self._connections: set[_Connection] = set()
        self._changing = threading.Lock()
        self._closing = threading.Event()
        self.on_acknowledged: Callable[[], None] = _nobody

    def start(self) -> None:
        """Listen; raises RemotingError if the port is taken."""
        try:
            self._server = socket.create_server((self._host, self.port))
        except (OSError, OverflowError) as error:
            raise RemotingError(f"{self._host}:{self.port}: the HA port cannot be taken: {error}") from None
        self.port = self._server.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name="reput-ha-accept", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Tell the connections that the log has grown; cheap enough for every turn of a loop."""
        for connection in self._connections:
            connection.wake()

    @property
    def slaves(self) -> list[HAConnection]:
        """All connections."""
        with self._changing:
            return [connection.slave for connection in self._connections]

    @property
    def acknowledged(self) -> list[int]:
        """Up to where each connection has acknowledged the log, the largest offset first: the second is of two slaves.

        Connections are counted, not machines, as by RocketMQ's `GroupTransferService`.
        """
        return sorted([connection.acknowledged for connection in self._connections], reverse=True)

    def count_in_sync(self, max_gap: int) -> int:
        """Connections of slaves that lack less than `max_gap` bytes of the log (`inSyncReplicasNums`)."""
        end = self._store.max_commit_log_offset
        return sum(connection.slave.is_in_sync(end, max_gap) for connection in self._connections)

    def is_known(self, host: str) -> bool:
        """Whether a slave may connect from an address."""
        if self._known is None:
            return True
        address = ip_address(host.partition("%")[0])
        address = getattr(address, "ipv4_mapped", None) or address  # as a socket for IPv6 tells one of IPv4
        return any(address in network for network in self._known)

    def close(self) -> None:
        """Close the port and all connections, and wait for their threads."""
        self._closing.set()
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()
        with self._changing:
            connections = list(self._connections)
        for connection in connections:
            connection.close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                accepted, (host, port, *_) = self._server.accept()
                if self.is_known(host):
                    self._begin(accepted, f"{host}:{port}")
                else:
                    accepted.close()
                    logger.warning(Event("sent away: the address is not in haSlaveAddresses", slave=f"{host}:{port}"))
            except (OSError, RuntimeError) as error:  # RuntimeError: there is no thread to be had
                if not self._closing.is_set():
                    logger.warning(Event("a slave cannot be accepted", error=error))
                self._closing.wait(_RETRY_S)

    def _begin(self, accepted: socket.socket, address: str) -> None:
        with ExitStack() as undo:
            undo.callback(accepted.close)
            if len(self._connections) >= _MOST_CONNECTIONS and not self._make_room():
                logger.warning(Event("a slave is sent away: too many connections", slave=address))
                return
            connection = _Connection(self, self._store, accepted, address)
            with self._changing:
                self._connections = {*self._connections, connection}  # replaced, as `wake` takes no lock
            undo.callback(self.ended, connection)
            connection.thread.start()
            undo.pop_all()

    def _make_room(self) -> bool:
        """End the oldest connection that has asked for nothing: a slave asks at once; False if there is none."""
        idle = [one for one in self._connections if one.slave.requested_offset is None]
        if idle:
            oldest = min(idle, key=lambda one: one.begun)
            self.ended(oldest)
            oldest.shutdown()
        return bool(idle)

    def ended(self, connection: _Connection) -> None:
        """Forget a connection."""
        with self._changing:
            self._connections = self._connections - {connection}


class _Connection:
    """The thread of one slave."""

    def __init__(self, service: HAService, store: MessageStore, accepted: socket.socket, address: str) -> None:
        self._service, self._store, self._socket, self._address = service, store, accepted, address
        self._woken, self._waker = socket.socketpair()
        for one in (self._woken, self._waker):
            one.setblocking(False)
        self._sleeps = False
        self.begun = time.monotonic()
        self._reports, self._heard = b"", 0
        self._requested: int | None = None
        self._sent = self.acknowledged = 0
        self.thread = threading.Thread(target=self._run, name=f"reput-ha-{address}", daemon=True)

    @property
    def slave(self) -> HAConnection:
        return HAConnection(self._address, self._requested, self._sent, self.acknowledged)

    def wake(self) -> None:
        """Let the thread look again, if it sleeps."""
        if self._sleeps:
            with suppress(OSError):  # it is full, so it wakes already; or the thread has ended
                self._waker.send(b"\0")

    def shutdown(self) -> None:
        """End the connection; its thread ends soon."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the connection, and wait for its thread."""
        self.shutdown()
        self.thread.join()

    def _run(self) -> None:
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.settimeout(SILENCE_S)
            logger.info(Event("a slave has connected", slave=self._address))
            reason: object = self._serve()
        except OSError as error:
            reason = error.strerror or error
        finally:
            self._service.ended(self)
            for one in (self._socket, self._woken, self._waker):
                one.close()
        logger.info(Event("a slave has gone", slave=self._address, acknowledged=self.acknowledged, reason=reason))

    def _serve(self) -> str:
        """Send what there is, and hear what comes; returns why it ended."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        heard = sent = self.begun
        while True:
            self._sleeps = True  # before the look: an append after it wakes
            has_more = self._requested is not None and self._sent < self._store.confirm_offset
            now = time.monotonic()
            if self._requested is None:
                wait_s = self.begun + _FIRST_REPORT_S - now
            else:
                wait_s = 0.0 if has_more else min(sent + HEARTBEAT_S, heard + SILENCE_S) - now
            events = dict(poll.poll(max(wait_s, 0) * 1000))
            self._sleeps = False
            if self._woken.fileno() in events:
                self._woken.recv(4096)
            now = time.monotonic()
            if self._socket.fileno() in events:
                reports = self._heard
                if refusal := self._hear():
                    return refusal
                if self._heard > reports:  # a byte now and then says nothing
                    heard = now
            if self._requested is None:
                if now - self.begun >= _FIRST_REPORT_S:
                    return f"it has asked for nothing in {_FIRST_REPORT_S:g} s"
                continue
            if now - heard > SILENCE_S:
                return f"silent for {SILENCE_S:g} s"
            first = self._store.min_commit_log_offset
            if self._send():
                sent = time.monotonic()
            elif self._sent < first:
                return f"it was too slow: its next byte is {self._sent}, and the log begins at {first} now"
            elif now - sent >= HEARTBEAT_S:
                self._socket.sendall(FRAME_HEADER.pack(self._sent, 0))
                sent = now

    def _hear(self) -> str:
        """Take the last whole report of what has come; returns why the slave must go, or an empty text."""
        received = self._socket.recv(4096)
        if not received:
            return "it has closed the connection"
        self._reports += received
        whole = len(self._reports) // REPORT.size * REPORT.size
        if not whole:
            return ""
        self._heard += 1
        if self._requested is None and not _is_offset(*REPORT.unpack_from(self._reports)):
            return (
                "what came is no report of a slave: expected 8 bytes with an offset of 0 to "
                f"{self._store.confirm_offset}; is the HA port given in place of the broker's own port, listenPort?"
            )
        (offset,) = REPORT.unpack_from(self._reports, whole - REPORT.size)
        self._reports = self._reports[whole:]
        if self._requested is None:
            return self._begin(offset)
        if offset > self._sent:
            return f"it acknowledges {offset}, and was sent {self._sent}"
        self._acknowledge(offset)
        return ""

    def _acknowledge(self, offset: int) -> None:
        if offset > self.acknowledged:
            self.acknowledged = offset
            self._service.on_acknowledged()

    def _begin(self, offset: int) -> str:
        """Go to where the first report asks to begin; an empty slave gets the whole log, and not the newest file."""
        if offset < 0:  # an acknowledgement, and no request
            return ""
        first, end = self._store.min_commit_log_offset, self._store.confirm_offset
        if offset > end:
            return f"it has {offset} bytes of a log that ends at {end}: it is ahead, or of another master"
        if 0 < offset < first:
            return f"it asks for {offset}, and the log begins at {first}"
        self._requested = self._sent = offset or first
        self._acknowledge(offset)  # it may have got it over a connection that broke before it said so
        return ""

    def _send(self) -> bool:
        """Send a frame, if there is something to send."""
        data = self._store.commit_log_data(self._sent, _FRAME_BYTES)
        if not len(data):
            return False
        self._socket.sendall(FRAME_HEADER.pack(self._sent, len(data)), socket.MSG_MORE)
        self._socket.sendall(data)
        self._sent += len(data)
        return True
