"""Callers: the client and the user of each call (`DefaultAuthenticationContextBuilder`)."""

from __future__ import annotations

import logging

from reput.broker.grpc.client_channel import Caller, CallGate
from reput.broker.grpc.clients import Clients, check_client_id
from reput.events import Event
from reput.remoting.acl import SIGNATURE
from reput.remoting.grpc.grpc_codes import Code
from reput.service.grpc.statuses import RefusedCallError
from reput.transport.grpc_call import GrpcCall

logger = logging.getLogger("reput.broker")

_CREDENTIAL = "Credential"


class Callers:
    """Finds out who calls.

    Args:
        clients: Knows the clients.
        gate: Knows the users; None: nobody asks.
    """

    def __init__(self, clients: Clients, gate: CallGate | None) -> None:
        self._clients, self._gate = clients, gate

    def of(self, call: GrpcCall) -> Caller:
        """The client and the user of a call; raises RefusedCallError if they are not told, or not proven."""
        if self._gate is None:
            return Caller(self._clients.channel(call, ""), call)
        check_client_id(call)
        user, why = self._proven(call, self._gate)
        if why is not None:
            logger.warning(Event("call refused", client=call.connection.remote, user=user[:64], reason=why))
            raise RefusedCallError(Code.UNAUTHORIZED, why)
        return Caller(self._clients.channel(call, user), call, user, self._gate)

    @staticmethod
    def _proven(call: GrpcCall, gate: CallGate) -> tuple[str, str | None]:
        """The user that a call names, and why it is not proven: the signature is of the call's date alone."""
        authorization = call.metadata.get("authorization", "")
        if not authorization:
            return "", "username cannot be null."
        date_time = call.metadata.get("x-mq-date-time", "")
        if not date_time:
            return "", "datetime is null."
        _, _, rest = authorization.partition(" ")
        parts = dict(part.strip().partition("=")[::2] for part in rest.split(","))
        if not {_CREDENTIAL, SIGNATURE} <= parts.keys():
            return "", "authentication header is incorrect."
        user = parts[_CREDENTIAL].partition("/")[0]
        return user, gate.prove(user, date_time, parts[SIGNATURE])
