"""GrpcCalls: the calls of RocketMQ 5's clients by their paths (`GrpcMessagingApplication`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeVar

from reput.broker.grpc.acks import Acks
from reput.broker.grpc.callers import Callers
from reput.broker.grpc.client_channel import Caller
from reput.broker.grpc.clients import Clients
from reput.broker.grpc.receives import Receives
from reput.broker.grpc.routes import Routes
from reput.broker.grpc.sends import Sends
from reput.broker.grpc.transactions import TransactionCalls
from reput.errors import RemotingDecodeError, ReputError
from reput.events import Event
from reput.remoting.grpc.grpc_codes import Code
from reput.remoting.grpc.grpc_interface import (
    SERVICE,
    AckMessageRequest,
    AckMessageResponse,
    ChangeInvisibleDurationRequest,
    ChangeInvisibleDurationResponse,
    EndTransactionRequest,
    ForwardMessageToDeadLetterQueueRequest,
    HeartbeatRequest,
    NotifyClientTerminationRequest,
    QueryAssignmentRequest,
    QueryAssignmentResponse,
    QueryRouteRequest,
    QueryRouteResponse,
    RecallMessageRequest,
    RecallMessageResponse,
    ReceiveMessageRequest,
    SendMessageRequest,
    SendMessageResponse,
    StatusResponse,
)
from reput.remoting.grpc.grpc_parts import Status
from reput.remoting.grpc.protobuf import Fields, decode, encode
from reput.service.grpc.statuses import RefusedCallError
from reput.transport.grpc_call import CallConnection, GrpcCall, GrpcError, GrpcStatus, Streamed, Unary

logger = logging.getLogger("reput.broker")
_RequestT = TypeVar("_RequestT", bound=Fields)
#: A call that is answered by one message, at once or later.
_Take = Callable[[Caller, _RequestT], "Fields | Coroutine[Any, Any, Fields]"]

#: Bytes of a request: a send of the largest body, with its properties.
_MOST_MESSAGE = 5 << 20


class CallTakers(NamedTuple):
    """Takers of the calls, each of its own."""

    callers: Callers
    clients: Clients
    routes: Routes
    sends: Sends
    receives: Receives
    acks: Acks
    transactions: TransactionCalls


class GrpcCalls:
    """Owner of the gRPC calls of a broker's connections; `serve` lets it answer them.

    Attributes:
        most_message: Bytes of a request.
    """

    most_message = _MOST_MESSAGE

    def __init__(self) -> None:
        self._methods: dict[str, Unary | Streamed] = {}
        self._clients: Clients | None = None
        self._callers: Callers | None = None

    def serve(self, parts: CallTakers) -> None:
        """Answer calls from now on."""
        self._callers, self._clients = parts.callers, parts.clients
        clients, routes, sends, acks = parts.clients, parts.routes, parts.sends, parts.acks
        self._unary("QueryRoute", QueryRouteRequest, QueryRouteResponse, routes.query_route)
        self._unary("QueryAssignment", QueryAssignmentRequest, QueryAssignmentResponse, routes.query_assignment)
        self._unary("Heartbeat", HeartbeatRequest, StatusResponse, clients.heartbeat)
        self._unary(
            "NotifyClientTermination", NotifyClientTerminationRequest, StatusResponse,
            clients.notify_client_termination,
        )  # fmt: skip
        self._unary("SendMessage", SendMessageRequest, SendMessageResponse, sends.send_message)
        self._unary("RecallMessage", RecallMessageRequest, RecallMessageResponse, sends.recall_message)
        self._unary("AckMessage", AckMessageRequest, AckMessageResponse, acks.ack_message)
        self._unary(
            "ChangeInvisibleDuration", ChangeInvisibleDurationRequest, ChangeInvisibleDurationResponse,
            acks.change_invisible_duration,
        )  # fmt: skip
        self._unary(
            "ForwardMessageToDeadLetterQueue", ForwardMessageToDeadLetterQueueRequest, StatusResponse,
            acks.forward_message_to_dead_letter_queue,
        )  # fmt: skip
        self._unary("EndTransaction", EndTransactionRequest, StatusResponse, parts.transactions.end_transaction)
        self._methods[f"/{SERVICE}/ReceiveMessage"] = Unary(self._receive(parts.callers, parts.receives))
        self._methods[f"/{SERVICE}/Telemetry"] = Streamed(self._telemetry(parts.callers, clients))

    # -- owner of the calls

    def opened(self, connection: CallConnection) -> None:
        """Called by the server."""

    def method(self, path: str) -> Unary | Streamed | None:
        """Called by a connection: the method of a path."""
        return self._methods.get(path)

    def read(self, connection: CallConnection) -> None:
        """Called by a connection."""

    def closed(self, connection: CallConnection) -> None:
        """Called by the server."""
        if self._clients is not None:
            self._clients.connection_closed(connection)

    # -- methods

    def _unary(
        self,
        name: str,
        request_kind: type[_RequestT],
        response_kind: Callable[[Status], Fields],
        take: _Take[_RequestT],
    ) -> None:
        callers = self._callers
        assert callers is not None

        def begin(call: GrpcCall, data: bytes) -> Coroutine[Any, Any, None] | None:
            request = _decoded(request_kind, data)
            try:
                answer = take(callers.of(call), request)
            except Exception as error:
                answer = response_kind(_status_of(name, error))
            if isinstance(answer, Fields):
                call.answer(encode(answer))
                return None
            return later(call, answer)

        async def later(call: GrpcCall, work: Coroutine[Any, Any, Fields]) -> None:
            try:
                answer = await work
            except Exception as error:
                answer = response_kind(_status_of(name, error))
            call.answer(encode(answer))

        self._methods[f"/{SERVICE}/{name}"] = Unary(begin)

    @staticmethod
    def _receive(callers: Callers, receives: Receives) -> Callable[[GrpcCall, bytes], Coroutine[Any, Any, None]]:
        async def receive(call: GrpcCall, data: bytes) -> None:
            request = _decoded(ReceiveMessageRequest, data)
            try:
                await receives.receive_message(callers.of(call), request)
            except Exception as error:
                receives.refuse(call, _status_of("ReceiveMessage", error))

        return receive

    @staticmethod
    def _telemetry(callers: Callers, clients: Clients) -> Callable[[GrpcCall], Coroutine[Any, Any, None]]:
        async def telemetry(call: GrpcCall) -> None:
            try:
                caller = callers.of(call)
            except RefusedCallError as error:
                raise GrpcError(GrpcStatus.INVALID_ARGUMENT, str(error)) from None
            await clients.telemetry(caller)

        return telemetry


def _decoded(kind: type[_RequestT], data: bytes) -> _RequestT:
    try:
        return decode(kind, data)
    except RemotingDecodeError as error:
        raise GrpcError(GrpcStatus.INTERNAL, str(error)) from None


def _status_of(name: str, error: Exception) -> Status:
    """Status of a call that has failed."""
    if isinstance(error, RefusedCallError):
        return error.status
    if not isinstance(error, ReputError):  # a bug
        logger.error(Event("call failed", call=name), exc_info=error)
    return Status(Code.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")
