"""Name servers that are stood for by their answers."""

from __future__ import annotations

from typing import Any

from reput.errors import RemotingError
from reput.remoting.body import encode_body
from reput.remoting.command import RemotingCommand


class NameServerAnswers:
    """Connections to name servers that answer with these bodies, refuse with a code and a remark, or do not (None)."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def call(self, address: str, command: RemotingCommand, timeout_s: float = 3.0) -> RemotingCommand:
        self.asked.append(address)
        answer = self.answers[address]
        if answer is None:
            raise RemotingError(f"{address}: no connection")
        return command.response(*answer) if isinstance(answer, tuple) else command.response(body=encode_body(answer))

    async def send_one_way(self, address: str, command: RemotingCommand) -> None:
        raise NotImplementedError
