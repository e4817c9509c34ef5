"""TLS on the port of the plain protocol: both sides, files that are replaced, and peers that mean no good."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from reput.config.namesrv import NamesrvConfig
from reput.errors import ConfigError, RemotingError
from reput.events import Event
from reput.remoting.command import RemotingCommand
from reput.transport import server as server_module
from reput.transport.blocking_client import BlockingConnection
from reput.transport.client import RemotingClient
from reput.transport.connection import Connection
from reput.transport.server_tls import ServerTls
from reput.transport.tls import ClientTls
from tests.support.certificates import KEY_PASSWORD, Files, client_context, write_certificate
from tests.support.sockets import Peer, Serving, serving

ECHO = 10
SIZES = [0, 1, 100, 16_384, 65_536, 3_000_000]


def echo(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    return request.response(body=request.body)


def tls_of(files: Files, **keys: object) -> ServerTls:
    tls = ServerTls.of(NamesrvConfig.from_mapping(files.server_keys | keys))
    assert tls is not None
    return tls


@asynccontextmanager
async def serving_tls(
    files: Files, *, handlers: Any = None, keys: Any = None, **options: Any
) -> AsyncIterator[Serving]:
    """A server with a certificate."""
    async with serving(handlers or {ECHO: echo}, tls=tls_of(files, **(keys or {})), **options) as here:
        yield here


async def tls_peer(here: Serving, context: ssl.SSLContext | None = None) -> Peer:
    context = context or client_context()
    return Peer(*await asyncio.open_connection("127.0.0.1", here.port, ssl=context, limit=1 << 24))


async def asked(peer: Peer, body: bytes = b"x") -> bytes:
    peer.send(RemotingCommand(ECHO, 1, body=body))
    return (await peer.receive()).body


async def refused(here: Serving, context: ssl.SSLContext) -> None:
    """A client of TLS gets no answer: the error comes with the handshake, or with the first read after it."""
    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        await asked(await tls_peer(here, context))


async def test_tls_and_plain_clients_are_served_on_one_port(tmp_path: Path) -> None:
    async with serving_tls(write_certificate(tmp_path)) as here:
        for peer in (await tls_peer(here), await here.peer()):
            for size in SIZES:
                body = os.urandom(size)
                assert await asked(peer, body) == body
        assert len(here.server.connections) == 2
        assert not here.server._beginnings


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_both_versions_of_tls_are_spoken_and_many_frames_come_in_one_record(
    tmp_path: Path, version: ssl.TLSVersion
) -> None:
    context = client_context()
    context.minimum_version = context.maximum_version = version

    async with serving_tls(write_certificate(tmp_path)) as here:
        peer = await tls_peer(here, context)
        peer.send(*(RemotingCommand(ECHO, number, body=b"%d" % number) for number in range(3000)))
        for number in range(3000):
            answer = await peer.receive()
            assert (answer.opaque, answer.body) == (number, b"%d" % number)
        assert peer.writer.get_extra_info("ssl_object").version() == version.name.replace("_", ".")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_a_version_before_1_2_is_refused(tmp_path: Path) -> None:
    context = client_context()
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")

    async with serving_tls(write_certificate(tmp_path)) as here:
        await refused(here, context)


async def test_a_plain_connection_is_closed_where_tls_is_enforced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving_tls(write_certificate(tmp_path), keys={"tls.server.mode": "enforcing"}) as here:
        plain = await here.peer()
        plain.send(RemotingCommand(ECHO, 1, body=b"x"))
        assert await plain.ends() == b""
        assert not here.server.connections
        assert await asked(await tls_peer(here)) == b"x"
    assert "does not speak TLS" in caplog.text


HINT = (
    "; if the server takes TLS alone, set tls.enable=true (in a program tls=ClientTls()); "
    "if this is the broker's haListenPort, give its listenPort"
)


async def errors_of(address: str, tls: ClientTls | None) -> list[str]:
    """What both clients say where a request is not answered."""

    def block() -> None:
        connection = BlockingConnection(address, tls)
        [opaque] = connection.send(RemotingCommand(ECHO))
        connection.answer(opaque, 30)

    client = RemotingClient(tls=tls)
    told = []
    for asked in (client.call(address, RemotingCommand(ECHO), 30), asyncio.to_thread(block)):
        with pytest.raises(RemotingError) as caught:
            await asked
        told.append(str(caught.value))
    client.close()
    return told


async def test_a_plain_client_where_tls_is_enforced_is_told_what_to_set(tmp_path: Path) -> None:
    async with serving_tls(write_certificate(tmp_path), keys={"tls.server.mode": "enforcing"}) as here:
        told = await errors_of(here.address, None)
        assert told == [f"{here.address}: the connection ended before the answer came{HINT}"] * 2


async def test_a_connection_that_has_talked_says_nothing_of_tls_when_it_ends(tmp_path: Path) -> None:
    """It cannot be what lacks, after an answer or over TLS."""

    def hang_up(connection: Connection, request: RemotingCommand) -> None:
        connection.abort()

    async def ask(tls: ClientTls | None, files: Files) -> None:
        async with serving_tls(files, handlers={ECHO: echo, 11: hang_up}) as here:
            client = RemotingClient(tls=tls)
            if tls is None:
                await client.call(here.address, RemotingCommand(ECHO))
            with pytest.raises(RemotingError, match=r": the connection ended before the answer came$"):
                await client.call(here.address, RemotingCommand(11))

            def block() -> None:
                connection = BlockingConnection(here.address, tls)
                for code in (ECHO, 11) if tls is None else (11,):
                    [opaque] = connection.send(RemotingCommand(code))
                    connection.answer(opaque, 30)

            with pytest.raises(RemotingError, match=r": the connection ended before the answer came$"):
                await asyncio.to_thread(block)
            client.close()

    files = write_certificate(tmp_path)
    await ask(None, files)
    await ask(ClientTls(trust_cert_path=files.trust), files)


async def test_a_client_is_told_what_to_set_where_a_certificate_is_not_taken(tmp_path: Path) -> None:
    files = write_certificate(tmp_path)
    elsewhere = write_certificate(tmp_path, "elsewhere.example", name="elsewhere")
    stranger = write_certificate(tmp_path, name="stranger", of="strangers")
    mutual = MUTUAL | {"tls.server.trustCertPath": files.trust}
    trusting = ClientTls(trust_cert_path=files.trust)
    with_stranger = ClientTls(trust_cert_path=files.trust, cert_path=stranger.cert, key_path=stranger.key)

    async def ask(shown: Files, keys: Any, tls: ClientTls, expected: str) -> None:
        async with serving_tls(shown, keys=keys) as here:
            for told in await errors_of(here.address, tls):
                assert told.startswith(f"{here.address}: no TLS: ")
                assert expected in told

    await ask(files, {}, ClientTls(), "; name who signs it by tls.client.trustCertPath (in a program ClientTls(trust_")
    await ask(elsewhere, {}, trusting, "'127.0.0.1'; take an address that the certificate names")
    await ask(files, mutual, trusting, "; name the client's certificate by tls.client.certPath and tls.client.keyPath")
    await ask(files, mutual, with_stranger, "; the server does not know who signs the client's certificate")


def test_a_certificate_of_a_client_without_its_key_is_refused() -> None:
    with pytest.raises(ConfigError, match="cert_path is given, and key_path is not"):
        ClientTls(cert_path="a.pem")
    with pytest.raises(ConfigError, match="key_path is given, and cert_path is not"):
        ClientTls(key_path="a.pem")


async def test_a_client_of_grpc_is_named_where_there_is_tls(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    context = client_context()
    context.set_alpn_protocols(["h2"])
    async with serving_tls(write_certificate(tmp_path)) as here:
        peer = await tls_peer(here, context)
        peer.writer.write(b"PRI * HTTP/2.0\r\n\r\n")
        assert b"RocketMQ's proxy" in await peer.ends()
    reasons = [one.msg.fields["reason"] for one in caplog.records if isinstance(one.msg, Event)]
    assert ["this is TLS for HTTP/2, as of gRPC" in reasons[0], "this is HTTP/2, as of gRPC" in reasons[1]] == [
        True,
        True,
    ]


async def test_a_plain_client_of_http_is_named_where_tls_is_enforced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving_tls(write_certificate(tmp_path), keys={"tls.server.mode": "enforcing"}) as here:
        peer = await here.peer()
        peer.writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await peer.ends() == b""
    assert "tls.server.mode=enforcing; this is HTTP" in caplog.text


@pytest.mark.parametrize("keys", [{"tls.server.mode": "disabled"}, {}])
async def test_a_server_without_tls_says_why_it_closes_a_client_of_tls(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, keys: dict[str, str]
) -> None:
    files = write_certificate(tmp_path).server_keys if keys else {}
    assert ServerTls.of(NamesrvConfig.from_mapping(files | keys)) is None

    async with serving({ECHO: echo}) as here:
        await refused(here, client_context())
    assert "this is TLS, and the server has no tls.server.certPath" in caplog.text


async def test_what_a_server_asks_over_tls_is_answered(tmp_path: Path) -> None:
    files = write_certificate(tmp_path)
    async with serving_tls(files) as here:
        client = RemotingClient(None, tls=ClientTls(trust_cert_path=files.trust))
        assert (await client.call(here.address, RemotingCommand(ECHO, body=b"x"))).body == b"x"
        connection = await here.opened_connections.get()
        assert (await connection.call(RemotingCommand(77), 30)).code == 3
        client.close()
        await here.closed_connections.get()


async def test_a_client_refuses_a_server_of_another_authority_or_name_unless_it_is_told_to_trust_all(
    tmp_path: Path,
) -> None:
    files = write_certificate(tmp_path)
    stranger = write_certificate(tmp_path, of="strangers", name="stranger")
    elsewhere = write_certificate(tmp_path, "elsewhere.example", name="elsewhere")
    expired = write_certificate(tmp_path, name="expired", days=-1)

    async def ask(shown: Files, tls: ClientTls) -> bytes:
        async with serving_tls(shown) as here:
            client = RemotingClient(tls=tls)
            try:
                return (await client.call(here.address, RemotingCommand(ECHO, body=b"x"))).body
            finally:
                client.close()

    verifying = ClientTls(trust_cert_path=files.trust)
    assert await ask(files, verifying) == b"x"
    for shown, reason in ((stranger, "unable to get"), (elsewhere, "IP address mismatch"), (expired, "expired")):
        with pytest.raises(RemotingError, match=f"no TLS: .*{reason}"):
            await ask(shown, verifying)
        assert await ask(shown, ClientTls(auth_server=False)) == b"x"
    with pytest.raises(RemotingError, match="no TLS: "):  # whom this machine trusts is another
        await ask(files, ClientTls())


async def test_a_client_of_tls_tells_that_a_server_speaks_none(tmp_path: Path) -> None:
    with pytest.raises(RemotingError, match=r"127\.0\.0\.1:\d+: no TLS: .*the server may talk no TLS"):
        async with serving({ECHO: echo}) as here:
            await RemotingClient(tls=ClientTls(auth_server=False)).call(here.address, RemotingCommand(ECHO))


MUTUAL = {"tls.server.need.client.auth": "require"}


async def test_mutual_tls_takes_clients_of_the_right_authority_alone(tmp_path: Path) -> None:
    server = write_certificate(tmp_path)
    mine = write_certificate(tmp_path, name="mine")
    stranger = write_certificate(tmp_path, name="stranger", of="strangers")
    expired = write_certificate(tmp_path, name="expired", days=-1)
    keys = MUTUAL | {"tls.server.trustCertPath": server.trust}

    async with serving_tls(server, keys=keys) as here:
        assert await asked(await tls_peer(here, client_context(certificate=mine))) == b"x"
        await refused(here, client_context())
        await refused(here, client_context(certificate=stranger))
        await refused(here, client_context(certificate=expired))
        client = RemotingClient(tls=ClientTls(trust_cert_path=server.trust, cert_path=mine.cert, key_path=mine.key))
        assert (await client.call(here.address, RemotingCommand(ECHO, body=b"x"))).body == b"x"
        client.close()


async def test_optional_client_certificates_are_right_or_absent(tmp_path: Path) -> None:
    server = write_certificate(tmp_path)
    stranger = write_certificate(tmp_path, name="stranger", of="strangers")
    keys = {"tls.server.need.client.auth": "optional", "tls.server.trustCertPath": server.trust}

    async with serving_tls(server, keys=keys) as here:
        assert await asked(await tls_peer(here)) == b"x"
        await refused(here, client_context(certificate=stranger))


# -- files


async def test_replaced_certificates_are_shown_to_new_connections_and_old_ones_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_RELOAD_S", 0.001)
    files = write_certificate(tmp_path)

    def serial(peer: Peer) -> object:
        return peer.writer.get_extra_info("peercert")["serialNumber"]

    async with serving_tls(files) as here:
        old = await tls_peer(here)
        write_certificate(tmp_path)
        new = await tls_peer(here)
        while serial(new) == serial(old):
            new.close()
            new = await tls_peer(here)
        assert await asked(old) == await asked(new) == b"x"


def test_files_that_do_not_belong_together_change_nothing_until_they_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = write_certificate(tmp_path)
    tls = tls_of(files)
    before = tls.context
    other = write_certificate(tmp_path, name="other")
    key = Path(files.key).read_bytes()
    Path(files.key).write_bytes(Path(other.key).read_bytes())
    tls.reload()
    assert tls.context is before
    assert "new certificates are not used" in caplog.text
    Path(files.key).unlink()
    tls.reload()
    assert tls.context is before
    Path(files.key).write_bytes(key)
    tls.reload()
    assert tls.context is not before
    now = tls.context
    tls.reload()
    assert tls.context is now  # nothing was changed


def test_a_key_with_a_password_needs_it_and_no_error_tells_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files, other = write_certificate(tmp_path, encrypted=True), write_certificate(tmp_path, name="other")
    tls_of(files, **{"tls.server.keyPassword": KEY_PASSWORD})
    with pytest.raises(ConfigError, match="not the key of the certificate in"):
        tls_of(files, **{"tls.server.keyPassword": KEY_PASSWORD, "tls.server.certPath": other.cert})
    wrong = KEY_PASSWORD + "!"
    for keys in ({}, {"tls.server.keyPassword": wrong}):
        state = "wrong" if keys else "missing"
        with pytest.raises(ConfigError, match=rf"its password, tls\.server\.keyPassword, is {state}$") as caught:
            tls_of(files, **keys)
        assert KEY_PASSWORD not in str(caught.value)
    config = NamesrvConfig.from_mapping(files.server_keys | {"tls.server.keyPassword": KEY_PASSWORD})
    assert KEY_PASSWORD not in repr(config)
    assert KEY_PASSWORD not in repr(ClientTls(key_password=KEY_PASSWORD))


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"tls.server.certPath": "a"}, "tls.server.certPath is given, and tls.server.keyPath is not"),
        ({"tls.client.keyPath": "a"}, "tls.client.keyPath is given, and tls.client.certPath is not"),
        ({"tls.server.mode": "enforcing"}, "enforcing needs tls.server.certPath"),
        ({"tls.server.need.client.auth": "require"}, "needs tls.server.trustCertPath"),
        ({"tls.server.mode": "maybe"}, "tls.server.mode=maybe: expected disabled or permissive or enforcing"),
    ],
)
def test_keys_that_contradict_each_other_are_told(keys: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        NamesrvConfig.from_mapping(keys)


def test_files_that_are_missing_or_none_are_told_with_their_key(tmp_path: Path) -> None:
    files, other = write_certificate(tmp_path), write_certificate(tmp_path, name="other")
    nothing = str(tmp_path / "nothing.pem")
    text = tmp_path / "text.pem"
    text.write_text("no certificate")
    for keys, expected in (
        ({"tls.server.certPath": nothing}, f"tls.server.certPath={nothing}, .*: No such file"),
        ({"tls.server.certPath": str(text)}, f"tls.server.certPath={text}: no certificate in PEM$"),
        ({"tls.server.certPath": files.key}, f"tls.server.certPath={files.key}: no certificate in PEM$"),
        ({"tls.server.keyPath": files.cert}, f"tls.server.keyPath={files.cert}: no private key in PEM"),
        (
            {"tls.server.keyPath": other.key},
            f"tls.server.keyPath={other.key}: not the key of the certificate in tls.ser",
        ),
        (MUTUAL | {"tls.server.trustCertPath": nothing}, f"tls.server.trustCertPath={nothing}: No such file"),
        (MUTUAL | {"tls.server.trustCertPath": str(text)}, f"tls.server.trustCertPath={text}: no certificates in PEM"),
    ):
        with pytest.raises(ConfigError, match=expected):
            tls_of(files, **keys)


# -- peers that mean no good


async def test_garbage_and_half_handshakes_end_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_CHECK_S", 0.001)
    monkeypatch.setattr(server_module, "_HANDSHAKE_S", 0.0)

    async with serving_tls(write_certificate(tmp_path)) as here:
        garbage = await here.peer()
        garbage.writer.write(b"\x16" + os.urandom(4000))
        await garbage.ends()
        half = await here.peer()
        half.writer.write(b"\x16\x03\x01\x02\x00")
        assert await half.ends() == b""
        assert not here.server._beginnings
        assert not here.server.connections


async def test_a_handshake_in_single_bytes_is_done(tmp_path: Path) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")

    async with serving_tls(write_certificate(tmp_path)) as here:
        peer = await here.peer()
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                for byte in outgoing.read():
                    peer.writer.write(bytes([byte]))
                    await peer.writer.drain()
                incoming.write(await peer.reader.read(1))
        peer.writer.write(outgoing.read())
        await here.opened_connections.get()


async def test_no_more_handshakes_than_are_allowed_wait_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_module, "_MOST_HANDSHAKES", 2)
    monkeypatch.setattr(server_module, "_HANDSHAKE_S", 60)

    async with serving_tls(write_certificate(tmp_path)) as here:
        halves = [await here.peer() for _ in range(3)]
        for half in halves:
            half.writer.write(b"\x16\x03\x01\x02\x00")
        done, _ = await asyncio.wait(
            [asyncio.ensure_future(half.ends()) for half in halves], return_when=asyncio.FIRST_COMPLETED
        )
        assert len(done) == 1
        assert await asked(await here.peer()) == b"x"  # plain ones are not in the way
    assert "too many handshakes" in caplog.text


async def test_sockets_that_say_nothing_count_as_connections_and_end_as_idle_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_CHECK_S", 0.001)

    async with serving_tls(write_certificate(tmp_path), max_connections=2, max_idle_s=1000.0) as here:
        silent, _other = await here.peer(), await here.peer()
        while len(here.server._beginnings) < 2:
            await asyncio.sleep(0)
        assert await (await here.peer()).ends() == b""
        for one in here.server._beginnings:
            if one.remote.endswith(f":{silent.writer.get_extra_info('sockname')[1]}"):
                one.since -= 1001
        assert await silent.ends() == b""
        assert len(here.server._beginnings) == 1


async def test_bytes_that_are_no_record_end_a_connection(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with serving_tls(write_certificate(tmp_path)) as here:
        peer = await tls_peer(here)
        assert await asked(peer) == b"x"
        sock = peer.writer.get_extra_info("socket")
        with os.fdopen(os.dup(sock.fileno()), "wb") as raw:
            raw.write(b"garbage in place of a record" * 3)
        with contextlib.suppress(ssl.SSLError):  # the reason
            await peer.ends()
        await here.closed_connections.get()
    assert "no TLS" in caplog.text


async def test_a_peer_that_reads_nothing_is_not_read_and_goes_on_when_it_does(tmp_path: Path) -> None:
    async with serving_tls(write_certificate(tmp_path)) as here:
        peer = Peer(*await asyncio.open_connection("127.0.0.1", here.port, ssl=client_context(), limit=1 << 16))
        connection = await here.opened_connections.get()
        body = os.urandom(1 << 20)
        sent = 40
        peer.send(*(RemotingCommand(ECHO, number, body=body) for number in range(sent)))
        while not connection.is_paused:
            await asyncio.sleep(0)
        for number in range(sent):
            answer = await peer.receive()
            assert (answer.opaque, answer.body) == (number, body)


async def test_a_close_sends_what_was_written_and_says_that_it_ends(tmp_path: Path) -> None:
    async with serving_tls(write_certificate(tmp_path)) as here:
        peer = await tls_peer(here)
        connection = await here.opened_connections.get()
        connection.write(bytes(3 << 20))
        connection.close()
        assert await peer.ends() == bytes(3 << 20)
        assert await here.closed_connections.get() is connection


async def test_a_client_of_this_process_needs_no_network(tmp_path: Path) -> None:
    async with serving_tls(write_certificate(tmp_path), keys={"tls.server.mode": "enforcing"}) as here:
        client = RemotingClient(own_servers={"here:1": here.server.join})
        assert (await client.call("here:1", RemotingCommand(ECHO, body=b"x"))).body == b"x"
        (connection,) = here.server.connections
        assert connection.remote == "127.0.0.1:0"
        client.close()


def test_no_log_has_the_password_of_a_key(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    files = write_certificate(tmp_path, encrypted=True)
    tls = tls_of(files, **{"tls.server.keyPassword": KEY_PASSWORD})
    Path(files.key).write_bytes(b"broken")
    tls.reload()
    assert "new certificates are not used" in caplog.text
    assert KEY_PASSWORD not in caplog.text
