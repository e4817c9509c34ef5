"""Requests to a broker that another thread or process runs: the test's thread waits for what it is told."""

from __future__ import annotations

import time
from collections.abc import Callable

from reput.remoting.command import RemotingCommand
from reput.transport.blocking_client import BlockingConnection
from reput.transport.tls import ClientTls
from tests.support.broker import texts

#: After so long without what a test waits for it has failed.
WITHIN_S = 90
#: Between two looks: a look is a connection and a request, and what it waits for needs the processor.
_PAUSE_S = 0.02


def request(code: int, body: bytes = b"", **fields: object) -> RemotingCommand:
    """A request; `fields` as Java writes them."""
    return RemotingCommand(code, ext_fields=texts(fields), body=body)


def call(address: str, command: RemotingCommand, tls: ClientTls | None = None) -> RemotingCommand:
    """The answer to a request, whatever it is."""
    connection = BlockingConnection(address, tls)
    try:
        [opaque] = connection.send(command)
        return connection.answer(opaque, WITHIN_S)
    finally:
        connection.close()


def ask(address: str, code: int, body: bytes = b"", **fields: object) -> RemotingCommand:
    """The answer to `request`, which is to succeed."""
    answer = call(address, request(code, body, **fields))
    assert answer.code == 0, answer
    return answer


def until(holds: Callable[[], object]) -> None:
    """Return once something holds."""
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(_PAUSE_S)
