"""Request: the header block of a call, and whether it is one (RFC 9113, 8.2 and 8.3)."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import NamedTuple

from reput.transport.hpack import Entry

_PSEUDO = frozenset((":method", ":scheme", ":path", ":authority"))
_NEEDED = (":method", ":scheme", ":path")
#: Fields of HTTP/1.1 alone.
_OF_HTTP1 = frozenset(("connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"))
_CHECKED = _OF_HTTP1 | {"te"}
_TYPE = "application/grpc"


class Request(NamedTuple):
    """A header block.

    Attributes:
        path: The method's; empty in trailers.
        metadata: The fields, but for those of HTTP/2's own; the last value of each name.
        size: Of all fields, with `FIELD_OVERHEAD` for each.
        is_request: It may begin a stream.
        is_trailer: It may end one.
        http_status: For what is a request, and no call of gRPC; else 0.
    """

    path: str
    metadata: dict[str, str]
    size: int
    is_request: bool
    is_trailer: bool
    http_status: int


def read_request(entries: Iterable[Entry]) -> Request:
    """The request of a block's fields."""
    pseudo: dict[str, str] = {}
    metadata: dict[str, str] = {}
    total, is_right = 0, True
    for name, value, size in entries:
        total += size
        if name[:1] == ":":
            is_right = is_right and not metadata and name in _PSEUDO and name not in pseudo
            pseudo[name] = value
        else:
            if not name or (name in _CHECKED and (name != "te" or value != "trailers")):
                is_right = False
            metadata[name] = value
    path = pseudo.get(":path", "")
    is_request = is_right and bool(path) and all(name in pseudo for name in _NEEDED)
    return Request(
        path, metadata, total, is_request, is_right and not pseudo, _http_status(pseudo, metadata) if is_request else 0
    )


def _http_status(pseudo: dict[str, str], metadata: dict[str, str]) -> int:
    if pseudo[":method"] != "POST":
        return HTTPStatus.METHOD_NOT_ALLOWED
    kind = metadata.get("content-type", "")
    if not kind.startswith(_TYPE) or kind[len(_TYPE) : len(_TYPE) + 1] not in ("", "+", ";"):
        return HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    return 0
