"""HttpServer: answers GET and HEAD of a few paths, for monitoring."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from reput.errors import RemotingError
from reput.transport.server import not_bound

logger = logging.getLogger("reput.transport")

#: Bytes of a request's head, connections at once, and seconds for a whole request and its answer.
_MOST_HEAD, _MOST_CONNECTIONS, _WITHIN_S = 8192, 32, 10.0


@dataclass(frozen=True, slots=True)
class Page:
    """Answer to a path."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK


class HttpServer:
    """Serves pages that are made when they are asked for; each connection has one request."""

    def __init__(self) -> None:
        self._pages: Mapping[str, Callable[[], Awaitable[Page]]] = {}
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def bind(self, host: str, port: int) -> int:
        """Take a port, on which nobody is served before `listen`; returns it, a free one if 0 was asked for.

        Raises RemotingError if the port is taken, or the address is not this machine's.
        """
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=_MOST_HEAD, start_serving=False)
        except OSError as error:
            raise not_bound(host, port, error) from None
        return int(self._server.sockets[0].getsockname()[1])

    async def listen(self, pages: Mapping[str, Callable[[], Awaitable[Page]]]) -> None:
        """Serve whoever connects. pages: Makes the page of a path."""
        assert self._server is not None
        self._pages = pages
        await self._server.start_serving()

    async def stop(self) -> None:
        """Close the port and all connections."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if len(self._tasks) <= _MOST_CONNECTIONS:
                with contextlib.suppress(OSError, TimeoutError):
                    async with asyncio.timeout(_WITHIN_S):
                        method, path = await _request(reader)
                        page = await self._page(method, path)
                        writer.write(_head(page) + (b"" if method == "HEAD" else page.body))
                        await writer.drain()
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _page(self, method: str, path: str) -> Page:
        if not method:
            return _text(HTTPStatus.BAD_REQUEST)
        if method not in ("GET", "HEAD"):
            return _text(HTTPStatus.METHOD_NOT_ALLOWED)
        make = self._pages.get(path)
        if make is None:
            return _text(HTTPStatus.NOT_FOUND, f"; there is {', '.join(self._pages)}")
        try:
            return await make()
        except (OSError, ValueError, RemotingError) as error:
            logger.exception("a page could not be made")
            return _text(HTTPStatus.INTERNAL_SERVER_ERROR, f": {error}")


async def _request(reader: asyncio.StreamReader) -> tuple[str, str]:
    """Method and path of a request; the method is empty if its head is none."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return "", ""
    method, _, rest = head.decode("latin-1").partition(" ")
    return method, rest.partition(" ")[0].partition("?")[0]


def _text(status: HTTPStatus, more: str = "") -> Page:
    return Page(f"{status.phrase}{more}\n".encode(), status=status)


def _head(page: Page) -> bytes:
    return (
        f"HTTP/1.1 {page.status.value} {page.status.phrase}\r\nContent-Type: {page.content_type}\r\n"
        f"Content-Length: {len(page.body)}\r\nConnection: close\r\n\r\n"
    ).encode()
