"""ClientChannel: a gRPC client as the broker's processors see it: a connection whose commands are objects."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple, Protocol

from reput.broker.appends.loop_dispatch import LoopDispatch
from reput.broker.appends.room_waiters import RoomWaiters
from reput.errors import RemotingError, RemotingTimeoutError, ReputError, WouldWaitError
from reput.events import Event
from reput.files import NeverWaiting
from reput.formats.java import INT32_MAX
from reput.remoting.acl import ACCESS_KEY
from reput.remoting.codes import LanguageCode, ResponseCode
from reput.remoting.command import RemotingCommand, decode_command, frame_size
from reput.remoting.grpc.grpc_codes import Code
from reput.remoting.grpc.grpc_interface import TelemetryCommand
from reput.remoting.grpc.grpc_parts import Settings
from reput.remoting.grpc.protobuf import encode
from reput.service.access.policies import Need
from reput.service.grpc.statuses import RefusedCallError
from reput.transport.grpc_call import CallConnection, GrpcCall
from reput.transport.requests import Requests

logger = logging.getLogger("reput.broker")


class CommandPath(NamedTuple):
    """Way of a command to its processor; `room`: makes room in the log, if a send needs it."""

    requests: Requests
    dispatch: LoopDispatch
    room: RoomWaiters


class ClientEvents(NamedTuple):
    """Functions that a channel calls: for what nobody answers, for a question, and when it is given up."""

    told: Callable[[ClientChannel, RemotingCommand], TelemetryCommand | None]
    asked: Callable[[ClientChannel, RemotingCommand], TelemetryCommand | None]
    aborted: Callable[[ClientChannel], None]


class ClientChannel:
    """A client, by its id, or the calls of a connection whose client is not known by settings.

    Args:
        ways: To the processors.
        events: Of the channel.
        client_id: "" of a connection's calls.
        connection: The last one that the client has used.
        language: Of the client.

    Attributes:
        client_id, connection, language: As given.
        user: Whose client it is; "" where nobody asks.
        settings, settings_size: As the client has sent them, None before, and their bytes.
        telemetry: The client's stream; None while it has none.
        is_open: False once the client is forgotten.
        last_heartbeat_ms: Time of its last settings or heartbeat.
    """

    protocol, is_proven = "grpc", True

    def __init__(
        self,
        ways: CommandPath,
        events: ClientEvents,
        client_id: str,
        connection: CallConnection,
        language: LanguageCode,
    ) -> None:
        self._ways, self._events = ways, events
        self.client_id, self.language = client_id, language
        self.user, self.settings_size = "", 0
        self.settings: Settings | None = None
        self.telemetry: GrpcCall | None = None
        self.is_open = True
        self.last_heartbeat_ms = 0
        self._opaques = count(1)
        self._answers: dict[int, asyncio.Future[RemotingCommand]] = {}
        self._calls: dict[int, asyncio.Future[RemotingCommand]] = {}
        self.use(connection)

    def use(self, connection: CallConnection) -> None:
        """Know the connection over which the client came last."""
        self.connection, self.remote = connection, connection.remote
        self.remote_host, self.host = connection.remote_host, connection.host

    def __str__(self) -> str:
        return self.remote

    # -- requests of the client

    def command(self, code: int, fields: dict[str, str], body: bytes = b"") -> RemotingCommand:
        """A request of this client."""
        return RemotingCommand(code, next(self._opaques) & INT32_MAX, 0, None, fields, body, language=self.language)

    def take(self, command: RemotingCommand) -> RemotingCommand | asyncio.Future[RemotingCommand]:
        """The broker's answer to a request, or what will be the answer."""
        try:
            answer = self._take(command)
        except WouldWaitError as error:
            self.connection.hold()  # what comes after it is not to overtake it
            return asyncio.ensure_future(self._take_with_room(command, error.room))
        return self._later(command) if answer is None else answer

    def _take(self, command: RemotingCommand) -> RemotingCommand | None:
        self._ways.dispatch.turns += 1
        with NeverWaiting():
            answer = self._ways.requests.take(self, command)
        return decode_command(answer) if isinstance(answer, bytes) else answer

    def _later(self, command: RemotingCommand) -> asyncio.Future[RemotingCommand]:
        future = self._answers[command.opaque] = asyncio.get_running_loop().create_future()
        return future

    async def _take_with_room(self, command: RemotingCommand, size: int) -> RemotingCommand:
        connection = self.connection
        try:
            while True:
                await self._ways.room.make(size)
                try:
                    answer = self._take(command)
                    break
                except WouldWaitError as error:  # others have taken it
                    size = error.room
        except ReputError as error:
            return command.response(ResponseCode.SYSTEM_ERROR, str(error))
        finally:
            connection.go_on()
        return await self._later(command) if answer is None else answer

    def forget(self, command: RemotingCommand) -> None:
        """Wait no more for the answer to a request."""
        future = self._answers.pop(command.opaque, None)
        if future is not None:
            future.cancel()

    # -- as a Channel

    @property
    def is_choked(self) -> bool:
        """Whether the client cannot be told anything: it has no stream, or reads nothing of it."""
        return self.telemetry is None or self.telemetry.is_over or self.telemetry.is_choked

    def answer(self, answer: RemotingCommand | bytes) -> None:
        """Hand an answer, or frames of some, to the calls that wait for them."""
        if isinstance(answer, RemotingCommand):
            future = self._answers.pop(answer.opaque, None)
            if future is not None and not future.done():
                future.set_result(answer)
            return
        rest = memoryview(answer)
        while rest:
            size = frame_size(rest)
            frame, rest = rest[:size], rest[size:]
            self.answer(decode_command(frame))

    def send_one_way(self, command: RemotingCommand) -> None:
        """Tell the client something, if its protocol has it."""
        told = self._events.told(self, command)
        if told is not None:
            self._tell(told)

    def _tell(self, command: TelemetryCommand) -> None:
        if self.telemetry is not None and not self.is_choked:
            self.telemetry.send(encode(command))

    async def call(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """The client's answer to a question that its protocol has; raises as `Connection.call`."""
        command.opaque = opaque = next(self._opaques) & INT32_MAX
        asked = self._events.asked(self, command)
        if asked is None or self.is_choked:
            why = "has no stream" if asked is not None else f"is not asked for {int(command.code)}"
            raise RemotingError(f"{self.remote}: the gRPC client {self.client_id} {why}")
        future: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        self._calls[opaque] = future
        self._tell(asked)
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            reason = f"{self.remote}: no answer to request {int(command.code)} in {timeout_s:.3g} s"
            raise RemotingTimeoutError(reason) from None
        finally:
            del self._calls[opaque]

    def answered(self, command: RemotingCommand) -> None:
        """Hand an answer of the client to the call that waits for it."""
        future = self._calls.get(command.opaque)
        if future is not None and not future.done():
            future.set_result(command)

    def abort(self) -> None:
        """Forget the client."""
        if self.is_open:
            self.is_open = False
            self._events.aborted(self)


class CallGate(Protocol):
    """Access control of calls (`reput.broker.access`)."""

    def prove(self, name: str, content: str, signature: str) -> str | None:
        """Reason why a call is not of the user that it names; None if it is."""

    def why_not(self, name: str, needs: Iterable[Need], source_ip: str) -> str | None:
        """Reason why a user may not do what needs this; None if it may."""


@dataclass(slots=True)
class Caller:
    """A call, and who calls. `user`: proven; "" where nobody asks who it is, and there is no `gate`."""

    channel: ClientChannel
    call: GrpcCall
    user: str = ""
    gate: CallGate | None = None

    def require(self, *needs: Need) -> None:
        """Raise RefusedCallError unless who calls may do this."""
        why = None if self.gate is None else self.gate.why_not(self.user, needs, self.call.connection.remote_host[0])
        if why is not None:
            logger.warning(Event("call refused", client=self.channel.remote, user=self.user, reason=why))
            raise RefusedCallError(Code.UNAUTHORIZED, why)

    @property
    def left_ms(self) -> float:
        """Milliseconds until the call's deadline."""
        return (self.call.deadline - asyncio.get_running_loop().time()) * 1000

    def command(self, code: int, fields: dict[str, str], body: bytes = b"") -> RemotingCommand:
        """A request of the remoting protocol on behalf of the caller."""
        if self.user:
            fields[ACCESS_KEY] = self.user
        return self.channel.command(code, fields, body)

    async def request(self, code: int, fields: dict[str, str], body: bytes = b"") -> RemotingCommand:
        """The broker's answer to a request."""
        answer = self.channel.take(self.command(code, fields, body))
        return answer if isinstance(answer, RemotingCommand) else await answer
