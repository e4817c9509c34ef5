"""MQClientAPI: the requests of producers and consumers to brokers, and what their answers mean (`MQClientAPIImpl`)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from reput.client.instance.peer_log import peers
from reput.client.instance.send_request import SendRequest
from reput.client.instance.send_result import SendResult, SendStatus
from reput.errors import AccessDeniedError, MQBrokerError, RemotingCommandError, RemotingError
from reput.formats.properties import MSG_REGION, TRACE_ON
from reput.remoting.codes import LanguageCode, RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import decode_header, encode_header
from reput.remoting.queue_tables import QueueKey
from reput.remoting.send_headers import SendMessageResponseHeader

if TYPE_CHECKING:
    from reput.client.instance.session_credentials import SessionCredentials

_H = TypeVar("_H")

#: How long a broker may take for what needs no disk, and for offsets.
_CALL_S = 3.0
_STATUS_OF: dict[int, SendStatus] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}
#: How the remarks begin of brokers that do not know a user, or do not let it: of ACL 1.0 (code 1) and 2.0 (16). The
#: codes have other reasons, too: a topic that nobody may write.
_DENIED = {
    ResponseCode.SYSTEM_ERROR: re.compile(r"org\.apache\.rocketmq\.acl\.common\.AclException"),
    ResponseCode.NO_PERMISSION: re.compile(
        r"User:|username |check signature |(?i:(?:the |create |parse )?auth(?:entication|orization))"
    ),
}


class Remoting(Protocol):
    """Maker of connections: `RemotingClient`, or `BlockingClient`, over which nothing waits for a loop."""

    async def call(self, address: str, command: RemotingCommand, timeout_s: float = 3.0) -> RemotingCommand:
        """The answer to a request; raises RemotingError if there is none in time."""

    async def send_one_way(self, address: str, command: RemotingCommand) -> None:
        """Send a request that nobody answers; raises RemotingError if the server cannot be reached."""


class MQClientAPI:
    """Asks brokers by their addresses.

    Every method raises RemotingError if a broker cannot be reached or does not answer in time, and MQBrokerError
    if it refuses, AccessDeniedError among these.

    Args:
        remoting: Makes the connections.
        credentials: Sign each request; None for none.
    """

    def __init__(self, remoting: Remoting, credentials: SessionCredentials | None = None) -> None:
        self._remoting = remoting
        self._credentials = credentials

    async def call(
        self, address: str, code: int, header: Any = None, body: bytes = b"", timeout_s: float = _CALL_S
    ) -> RemotingCommand:
        """The answer of success to a request."""
        fields = None if header is None else encode_header(header)
        return checked(address, await self.ask(address, RemotingCommand(code, ext_fields=fields, body=body), timeout_s))

    async def ask(self, address: str, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """The answer to a request, whatever it is."""
        try:
            answer = await self._remoting.call(address, self.prepared(command), timeout_s)
        except RemotingError as error:
            error.peer = address
            peers.silent(address)
            raise
        peers.answered(address)
        return answer

    async def one_way(self, address: str, command: RemotingCommand) -> None:
        """Send a request that nobody answers."""
        try:
            await self._remoting.send_one_way(address, self.prepared(command))
        except RemotingError as error:
            error.peer = address
            peers.silent(address)
            raise

    def prepared(self, command: RemotingCommand) -> RemotingCommand:
        """A request as it is sent: with its language, and signed."""
        command.language = LanguageCode.PYTHON
        if self._credentials is not None:
            self._credentials.sign(command)
        return command

    async def send(
        self, address: str, group: str, queue: QueueKey, request: SendRequest, timeout_s: float
    ) -> list[SendResult]:
        """Send a message or a batch; a result for each message."""
        command = request.unsigned(group, queue) if self._credentials is None else request.command(group, queue)
        answer = await self.ask(address, command, timeout_s)
        status = send_status(address, answer)
        header = answer.cached_header or decoded(address, SendMessageResponseHeader, answer.ext_fields)
        offset_ids = header.msg_id.split(",") if request.is_batch else [header.msg_id]
        if len(offset_ids) != len(request.ids):  # an inner batch is one record
            offset_ids = [header.msg_id] * len(request.ids)
        stored = queue if header.queue_id == queue.queue_id else queue._replace(queue_id=header.queue_id)
        fields = answer.ext_fields or {}
        region_id, is_traced = fields.get(MSG_REGION) or "DefaultRegion", fields.get(TRACE_ON) != "false"
        return [
            SendResult(
                status, one, stored, header.queue_offset + i, offset_ids[i], header.transaction_id,
                header.recall_handle, region_id, is_traced,
            )
            for i, one in enumerate(request.ids)
        ]  # fmt: skip

    async def heartbeat(self, address: str, body: bytes) -> int:
        """Say who is there; returns the broker's version (`MQVersion`)."""
        return (await self.call(address, RequestCode.HEART_BEAT, body=body)).version

    async def unregister(self, address: str, client_id: str, *, producer: str | None, consumer: str | None) -> None:
        """Leave a group."""
        from reput.remoting.consumer_headers import UnregisterClientRequestHeader  # here: it takes 10 ms

        await self.call(
            address, RequestCode.UNREGISTER_CLIENT, UnregisterClientRequestHeader(client_id, producer, consumer)
        )


def checked(address: str, answer: RemotingCommand, *codes: int) -> RemotingCommand:
    """An answer of success, or of another of these codes; raises MQBrokerError for each other one."""
    if answer.code != ResponseCode.SUCCESS and answer.code not in codes:
        raise refusal(address, answer)
    return answer


def send_status(address: str, answer: RemotingCommand) -> SendStatus:
    """The status of a send by its answer; raises MQBrokerError if the message is not stored."""
    status = _STATUS_OF.get(answer.code)
    if status is None:
        raise refusal(address, answer)
    return status


def refusal(address: str, answer: RemotingCommand) -> MQBrokerError:
    """The error of an answer that refuses a request."""
    remark = answer.remark or ""
    denied = answer.code in _DENIED and _DENIED[ResponseCode(answer.code)].match(remark)
    kind = AccessDeniedError if denied else MQBrokerError
    return kind(address, answer.code, remark)


def unreadable(address: str, reason: str) -> RemotingError:
    """The error of an answer that is none."""
    error = RemotingError(f"{address}: an answer that cannot be read: {reason}")
    error.peer = address
    return error


def decoded(address: str, kind: type[_H], ext_fields: dict[str, str] | None) -> _H:
    """The header of an answer; raises RemotingError if it lacks what it must have."""
    try:
        return decode_header(kind, ext_fields)
    except RemotingCommandError as error:
        raise unreadable(address, error.remark) from None
