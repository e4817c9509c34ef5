"""Protocols that a peer speaks instead of RocketMQ's remoting protocol, by its first bytes, and the answers to them."""

from __future__ import annotations

from typing import NamedTuple

#: First bytes of TLS connections: a handshake, and an alert. A frame that begins so would have 350 MB and more.
TLS_HANDSHAKE, _TLS_ALERT = 0x16, 0x15
#: How a client of TLS says that it will speak HTTP/2 (ALPN, RFC 7301).
_ALPN_H2 = b"\x02h2"
#: First bytes of HTTP/2.
HTTP2 = b"PRI "
#: Before a record of TLS: its kind, a version, its size; and its most bytes.
_RECORD_HEAD_SIZE, _MOST_RECORD = 5, 16_384
_HTTP1 = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC")
_HTTP1_ANSWER, _PROXY = b"HTTP", b"PROX"

_GRPC = (
    "as of gRPC, which RocketMQ 5's own clients speak: give them the address of a broker of reput's, "
    "or of RocketMQ's proxy (docs/grpc.md)"
)


class OtherProtocol(NamedTuple):
    """Another protocol.

    Attributes:
        reason: What it is, and what its peer needs.
        answer: What may show in the peer's error; empty if nothing can. A client of gRPC tells that it talks to
            HTTP/1.1, and its status. GOAWAY of HTTP/2 would tell the reason, but grpcio then connects again without a
            pause, hundreds of times a second.
    """

    reason: str
    answer: bytes = b""


def other_protocol(begin: bytes | bytearray | memoryview) -> OtherProtocol | None:
    """The protocol that begins with these bytes, four at least; None for RocketMQ's, and for one that nobody knows."""
    first = bytes(begin[:4])
    if first == HTTP2:
        return _of_http(f"this is HTTP/2, {_GRPC}")
    if first in _HTTP1:
        return _of_http(
            "this is HTTP, and this port speaks RocketMQ's remoting protocol; a broker has pages at "
            "metricsPromExporterPort"
        )
    if first == _HTTP1_ANSWER:
        return OtherProtocol("this is HTTP: neither a broker nor a name server answers there")
    if first == _PROXY:
        return OtherProtocol("this is HAProxy's PROXY line, which this port does not take: leave send-proxy out")
    if first[0] == TLS_HANDSHAKE:
        return OtherProtocol(grpc_over_tls(begin) or "this is TLS, and the server has no tls.server.certPath")
    if first[0] == _TLS_ALERT:
        return OtherProtocol("this is an alert of TLS: set tls.enable=true, or ClientTls in a program, to talk it")
    return None


def grpc_over_tls(begin: bytes | bytearray | memoryview) -> str:
    """Protocol of a TLS handshake that names HTTP/2, as text; else empty: RocketMQ's clients name no protocol."""
    return f"this is TLS for HTTP/2, {_GRPC}" if _ALPN_H2 in bytes(begin) else ""


def offers_http2(begin: bytes) -> bool | None:
    """Whether a client of TLS names HTTP/2; None as long as its first record has not come whole."""
    size = int.from_bytes(begin[3:_RECORD_HEAD_SIZE])
    if size > _MOST_RECORD:
        return False
    if len(begin) < _RECORD_HEAD_SIZE + size:
        return None
    return _ALPN_H2 in begin


def _of_http(reason: str) -> OtherProtocol:
    body = f"{reason}\n".encode()
    head = f"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}"
    return OtherProtocol(reason, f"{head}\r\nConnection: close\r\n\r\n".encode() + body)
