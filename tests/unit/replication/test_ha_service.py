"""A store's log on an HA port: what slaves get, and who is sent away."""

from __future__ import annotations

import logging
import os
import re
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from reput import Message, MessageStore
from reput.config.broker import BrokerConfig
from reput.errors import ConfigError, RemotingError
from reput.formats.replication import FRAME_HEADER, HEARTBEAT_S, REPORT
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand, encode_command
from reput.replication import ha_service
from reput.replication.ha_service import HAService
from reput.replication.ha_stream import HAStream
from reput.replication.master import Master
from tests.support.fake_master import log_of

FILE_SIZE = 1 << 16


def put_large(store: MessageStore, count: int) -> None:
    store.put_messages([Message("orders", bytes([number % 251]) * 700) for number in range(count)])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "master", mapped_file_size_commit_log=FILE_SIZE) as opened:
        put_large(opened, 300)
        yield opened


@pytest.fixture
def service(store: MessageStore) -> Iterator[HAService]:
    served = HAService(store, "127.0.0.1", 0)
    served.start()
    yield served
    served.close()


def connect(service: HAService) -> HAStream:
    return HAStream(f"127.0.0.1:{service.port}")


def receive(stream: HAStream, offset: int, end: int) -> bytes:
    """The bytes from an offset up to another; each frame must be the next one, of one file."""
    parts = []
    while offset < end:
        for at, body in stream.frames(60):
            assert at == offset
            assert at // FILE_SIZE == (at + len(body) - 1) // FILE_SIZE
            parts.append(bytes(body))
            offset += len(body)
        stream.release()
    return b"".join(parts)


@pytest.mark.parametrize("first", [0, 1, 5000, FILE_SIZE])
def test_a_slave_gets_the_log_from_where_it_asks_an_empty_one_from_its_begin(
    store: MessageStore, service: HAService, first: int
) -> None:
    end, stream = store.max_commit_log_offset, connect(service)
    stream.report(first)
    assert receive(stream, first, end) == log_of(Path(store.path), end)[1][first:]
    stream.close()


def test_an_append_wakes_it(store: MessageStore, service: HAService) -> None:
    stream, end = connect(service), store.max_commit_log_offset
    stream.report(end)
    for _ in range(20):
        put_large(store, 1)
        service.wake()
        following = store.max_commit_log_offset
        assert receive(stream, end, following) == log_of(Path(store.path), following)[1][end:]
        end = following
    stream.close()


def test_reports_acknowledge_and_the_last_one_of_several_counts(store: MessageStore, service: HAService) -> None:
    stream, end = connect(service), store.max_commit_log_offset
    stream.report(0)
    receive(stream, 0, end)
    while service.slaves[0].sent_offset < end:  # it notes what it has sent
        pass
    [slave] = service.slaves
    assert (slave.requested_offset, slave.sent_offset, slave.acknowledged_offset) == (0, end, 0)
    stream._socket.sendall(REPORT.pack(100) + REPORT.pack(end) + REPORT.pack(7)[:3])
    while service.slaves[0].acknowledged_offset != end:
        pass
    stream._socket.sendall(REPORT.pack(7)[3:])  # a smaller one takes nothing back
    stream.close()
    while service.slaves:
        pass


def test_the_first_report_acknowledges_too_and_who_has_asked_for_nothing_is_not_in_sync(
    store: MessageStore, service: HAService
) -> None:
    end, told = store.max_commit_log_offset, threading.Semaphore(0)
    service.on_acknowledged = told.release
    streams = [connect(service) for _ in range(3)]
    while len(service.slaves) < 3:
        pass
    assert (service.count_in_sync(1 << 20), service.acknowledged) == (0, [0, 0, 0])
    for number, stream in enumerate(streams[:2]):
        stream.report(end - number)
        assert told.acquire(timeout=60)
    while service.count_in_sync(2) < 2:
        pass
    assert (service.count_in_sync(1), service.acknowledged) == (1, [end, end - 1, 0])  # one lacks a byte
    assert not told.acquire(blocking=False)
    for stream in streams:
        stream.close()


def test_a_negative_report_is_no_request(store: MessageStore, service: HAService) -> None:
    stream, end = connect(service), store.max_commit_log_offset
    stream.report(-1)
    stream.report(end - 10)
    assert len(receive(stream, end - 10, end)) == 10
    stream.close()


def test_a_slow_slave_stops_nobody(store: MessageStore, service: HAService) -> None:
    put_large(store, 20_000)
    end = store.max_commit_log_offset
    slow, quick = connect(service), connect(service)
    slow.report(0)  # and reads nothing
    quick.report(0)
    assert len(receive(quick, 0, end)) == end
    while max(slave.sent_offset for slave in service.slaves) < end:  # it notes what it has sent
        pass
    assert min(slave.sent_offset for slave in service.slaves) < end
    slow.close()
    quick.close()


@pytest.mark.parametrize(
    "reports",
    [lambda end: [end + 1], lambda end: [end, end + 1], lambda end: [1, 1 << 40]],
    ids=["ahead", "acknowledges what it was not sent", "a stranger"],
)
def test_a_slave_that_cannot_be_one_is_sent_away(store: MessageStore, service: HAService, reports) -> None:  # type: ignore[no-untyped-def]
    with socket.create_connection(("127.0.0.1", service.port), 60) as connection:
        first, *later = reports(store.max_commit_log_offset)
        connection.sendall(REPORT.pack(first))
        if later and first == 1:
            assert connection.recv(FRAME_HEADER.size)
        while later and not (service.slaves and service.slaves[0].requested_offset is not None):
            pass
        for offset in later:
            connection.sendall(REPORT.pack(offset))
        with suppress(ConnectionError):  # or a reset, where bytes of ours were not read
            while connection.recv(1 << 20):
                pass
    while service.slaves:
        pass


def test_a_slave_whose_next_byte_is_gone_is_sent_away(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "master", mapped_file_size_commit_log=FILE_SIZE) as store:
        writer = store.replica_writer()
        writer.begin_at(FILE_SIZE)
        put_large(store, 3)
        service = HAService(store, "127.0.0.1", 0)
        service.start()
        with socket.create_connection(("127.0.0.1", service.port), 60) as connection:
            connection.sendall(REPORT.pack(5))
            assert connection.recv(1) == b""
        stream = connect(service)
        stream.report(0)
        assert receive(stream, FILE_SIZE, store.max_commit_log_offset)
        stream.close()
        service.close()


def test_a_slave_whose_next_byte_is_deleted_meanwhile_is_sent_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys = {"mapped_file_size_commit_log": FILE_SIZE, "file_reserved_time": 1, "delete_commit_log_files_interval": 0}
    with MessageStore.open(tmp_path / "master", **keys) as store, caplog.at_level(logging.INFO):
        put_large(store, 20_000)
        store.wait_dispatched()
        service = HAService(store, "127.0.0.1", 0)
        service.start()
        slow = connect(service)
        slow.report(0)
        while not any(slave.sent_offset for slave in service.slaves):
            pass
        for path in (tmp_path / "master" / "commitlog").iterdir():
            os.utime(path, (0, 0))
        while store.delete_expired().commit_log_files:
            pass
        first = store.min_commit_log_offset
        with suppress(RemotingError):
            receive(slow, 0, first)
        slow.close()
        while service.slaves:
            pass
        service.close()
    told = re.search(r"its next byte is (\d+), and the log begins at (\d+) now", caplog.text)
    assert told is not None
    assert int(told[1]) < int(told[2]) <= first  # it may come to that byte while files are still being deleted


def test_a_connection_that_cannot_be_accepted_does_not_close_the_port(
    service: HAService, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failed = threading.Event()
    make_pair = socket.socketpair

    def too_many() -> tuple[socket.socket, socket.socket]:
        if failed.is_set():
            return make_pair()
        failed.set()
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("reput.replication.ha_service._RETRY_S", 0)
    monkeypatch.setattr(socket, "socketpair", too_many)
    connect(service).close()
    failed.wait(60)
    stream = connect(service)
    stream.report(1)
    assert receive(stream, 1, 100)
    stream.close()
    assert "a slave cannot be accepted" in caplog.text


def test_connections_are_bounded(service: HAService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reput.replication.ha_service._MOST_CONNECTIONS", 1)
    kept = connect(service)
    kept.report(1)
    assert receive(kept, 1, 100)
    with socket.create_connection(("127.0.0.1", service.port), 60) as refused:
        assert refused.recv(1) == b""
    kept.close()
    while service.slaves:
        pass
    again = connect(service)
    again.report(1)
    assert receive(again, 1, 100)
    again.close()


def test_connections_that_ask_for_nothing_keep_no_slave_out(
    service: HAService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reput.replication.ha_service._MOST_CONNECTIONS", 2)
    idle = [socket.create_connection(("127.0.0.1", service.port), 60) for _ in range(2)]
    streams = [connect(service), connect(service)]
    for stream, one in zip(streams, idle, strict=True):  # the oldest goes first
        stream.report(1)
        assert receive(stream, 1, 100)
        assert one.recv(1) == b""
        one.close()
    with socket.create_connection(("127.0.0.1", service.port), 60) as refused:  # no place is a slave's no more
        assert refused.recv(1) == b""
    for stream in streams:
        stream.close()


@pytest.mark.parametrize("data", [b"", b"\0" * 7, struct.pack(">q", -1)])
def test_a_connection_that_does_not_ask_in_time_is_closed_whatever_else_it_sends(
    service: HAService, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    monkeypatch.setattr("reput.replication.ha_service._FIRST_REPORT_S", 0.05)
    with socket.create_connection(("127.0.0.1", service.port), 60) as idle:
        idle.sendall(data)
        assert idle.recv(1) == b""


def told_at_the_end(caplog: pytest.LogCaptureFixture) -> str:
    """The line of a connection that has ended; its thread writes it last."""
    while True:
        for record in caplog.records:
            if "has gone" in (line := record.getMessage()):
                return line


@pytest.mark.parametrize(
    "sent",
    [
        encode_command(RemotingCommand(RequestCode.GET_BROKER_CONFIG)),
        encode_command(RemotingCommand(RequestCode.SEND_MESSAGE_V2, 1, ext_fields={"a": "x" * 300}, body=b"y" * 5000)),
        b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n",
        bytes.fromhex("160301020001000103"),  # TLS
    ],
    ids=["a request", "a message", "HTTP", "TLS"],
)
def test_who_is_no_slave_is_told_so_in_the_log(
    store: MessageStore, service: HAService, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    caplog.set_level("INFO", "reput.replication")
    with socket.create_connection(("127.0.0.1", service.port), 60) as connection:
        connection.sendall(sent)
        with suppress(ConnectionError):
            assert connection.recv(1) == b""
    gone = told_at_the_end(caplog)
    end = store.max_commit_log_offset
    assert f"what came is no report of a slave: expected 8 bytes with an offset of 0 to {end}" in gone
    assert "is the HA port given in place of the broker's own port, listenPort?" in gone


@pytest.mark.parametrize("gibibytes", [1, 4, 93, 429, 3000])
def test_a_slave_that_is_ahead_is_no_stranger(
    service: HAService, caplog: pytest.LogCaptureFixture, gibibytes: int
) -> None:
    caplog.set_level("INFO", "reput.replication")
    ahead = (gibibytes << 30) + 777
    with socket.create_connection(("127.0.0.1", service.port), 60) as connection:
        connection.sendall(REPORT.pack(ahead))
        assert connection.recv(1) == b""
    assert f"it has {ahead} bytes of a log that ends at" in told_at_the_end(caplog)


def test_who_asks_the_ha_port_as_a_broker_is_told_of_the_ports(service: HAService) -> None:
    master = Master(f"127.0.0.1:{service.port}")
    with pytest.raises(RemotingError, match=r"; if this is the broker's haListenPort, give its listenPort$"):
        master.config()
    master.close()


def test_a_slave_of_rocketmq_49_which_asks_after_a_heartbeat_s_time_comes_in_time() -> None:
    assert ha_service._FIRST_REPORT_S >= HEARTBEAT_S + 3  # its loop looks each second, on a busy machine later


@pytest.mark.parametrize(
    ("host", "listed", "is_slave"),
    [
        ("127.0.0.1", None, True), ("127.0.0.1", "127.0.0.1", True), ("127.0.0.1", "10.0.0.6, 127.0.0.0/8", True),
        ("127.0.0.1", "127.0.0.2,10.0.0.0/8", False), ("127.0.0.1", "2001:db8::/32", False),
        ("::ffff:127.0.0.1", "127.0.0.1", True), ("::ffff:127.0.0.1", "127.0.0.2", False), ("::1", "::1", True),
        ("fe80::1%eth0", "fe80::/10", True),
    ],
)  # fmt: skip
def test_who_may_be_a_slave(store: MessageStore, host: str, listed: str | None, *, is_slave: bool) -> None:
    """A socket for IPv6 tells an address of IPv4 as ::ffff:127.0.0.1."""
    networks = BrokerConfig(ha_slave_addresses=listed).ha_slave_networks
    assert HAService(store, "127.0.0.1", 0, networks).is_known(host) == is_slave


@pytest.mark.parametrize(("listed", "is_slave"), [("127.0.0.1", True), ("10.0.0.0/8", False)])
def test_where_slaves_are_listed_others_are_sent_away_and_named_in_the_log(
    store: MessageStore, caplog: pytest.LogCaptureFixture, listed: str, *, is_slave: bool
) -> None:
    service = HAService(store, "127.0.0.1", 0, BrokerConfig(ha_slave_addresses=listed).ha_slave_networks)
    service.start()
    try:
        with suppress(RemotingError):
            stream = connect(service)
            stream.report(0)
            assert receive(stream, 0, 100)
            stream.close()
            assert is_slave
    finally:
        service.close()
    told = [one for one in caplog.messages if "not in haSlaveAddresses slave=127.0.0.1:" in one]
    assert bool(told) != is_slave


@pytest.mark.parametrize("text", ["", "host", "10.0.0.1/8", "10.0.0.1;10.0.0.2"])
def test_a_list_of_slaves_has_addresses_and_networks(text: str) -> None:
    with pytest.raises(ConfigError, match="haSlaveAddresses="):
        BrokerConfig(ha_slave_addresses=text)
