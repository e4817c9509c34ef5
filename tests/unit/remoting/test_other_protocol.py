"""Peers of other protocols, by their first bytes."""

from __future__ import annotations

import ssl
from http import HTTPMethod

import pytest

from reput.errors import RemotingDecodeError
from reput.formats.remoting import MAX_FRAME_SIZE
from reput.remoting.command import frame_size
from reput.remoting.other_protocol import grpc_over_tls, other_protocol

HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def client_hello(*protocols: str) -> bytes:
    """The first message of a client of TLS that names these protocols."""
    context = ssl.create_default_context()
    if protocols:
        context.set_alpn_protocols(protocols)
    sent = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="broker.example").do_handshake()
    return sent.read()


@pytest.mark.parametrize(
    ("begin", "told"),
    [
        (HTTP2, "this is HTTP/2, as of gRPC, which RocketMQ 5's own clients speak: .* RocketMQ's proxy"),
        (b"HTTP/1.1 400 Bad Request", "this is HTTP: neither a broker nor a name server answers there"),
        (client_hello(), "this is TLS, and the server has no tls.server.certPath$"),
        (client_hello("h2"), "this is TLS for HTTP/2, as of gRPC, .* RocketMQ's proxy"),
        (b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n", "this is HAProxy's PROXY line"),
        (b"\x15\x03\x01\x00\x02\x02\x28\x00", "this is an alert of TLS: set tls.enable=true"),
        *((f"{method} / HTTP/1.1\r\n".encode(), "this is HTTP, and this port speaks") for method in HTTPMethod),
    ],
)
def test_a_peer_of_another_protocol_is_told_in_place_of_the_length_of_a_frame(begin: bytes, told: str) -> None:
    with pytest.raises(RemotingDecodeError, match=f"^{told}"):
        frame_size(begin)
    assert int.from_bytes(begin[:4], "big") > MAX_FRAME_SIZE  # so no frame is taken for it


@pytest.mark.parametrize("begin", [b"\x00\x00\x00\x10\x00\x00\x00\x04", b"SSH-2.0-", b"\xff" * 8])
def test_nobody_is_taken_for_another_one(begin: bytes) -> None:
    assert other_protocol(begin) is None


def test_clients_of_http_are_answered_in_its_first_version() -> None:
    for begin in (HTTP2, b"GET / HTTP/1.1"):
        other = other_protocol(begin)
        assert other is not None
        head, _, body = other.answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert f"Content-Length: {len(body)}".encode() in head
        assert body == f"{other.reason}\n".encode()


def test_a_handshake_of_rocketmqs_clients_names_no_protocol() -> None:
    assert grpc_over_tls(client_hello()) == grpc_over_tls(client_hello("http/1.1")) == ""
    assert "RocketMQ's proxy" in grpc_over_tls(client_hello("h2", "http/1.1"))
