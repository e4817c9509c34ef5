"""Transactions of a producer: half messages, their ends, and the broker's questions (`TransactionMQProducer`)."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeVar

from reput.client.instance.client_instance import ClientInstance
from reput.client.instance.message_client_ext import MessageClientExt, decode_messages
from reput.client.instance.namespaces import Namespace
from reput.client.instance.peer_log import peers
from reput.client.instance.send_result import SendResult, SendStatus
from reput.client.program_errors import goes_on
from reput.config.arguments import refusal
from reput.errors import ReputError
from reput.events import Event
from reput.formats.message import Message
from reput.formats.message_id import decode_message_id
from reput.formats.properties import PGROUP, TRAN_MSG
from reput.formats.record_layout import SysFlag
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import decode_header, encode_header
from reput.remoting.queue_tables import QueueKey
from reput.remoting.transaction_headers import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from reput.transport.channel import Channel

if TYPE_CHECKING:
    from reput.client.instance.traces import Traces

logger = logging.getLogger("reput.client")

_M = TypeVar("_M")


class LocalTransactionState(IntEnum):
    """Outcome of a local transaction; the values are the values of the wire."""

    #: The producer does not know it yet: the broker asks later.
    UNKNOW = 0
    COMMIT_MESSAGE = SysFlag.TRANSACTION_COMMIT
    ROLLBACK_MESSAGE = SysFlag.TRANSACTION_ROLLBACK


#: Tells how the transaction of a half message ended.
CheckTransaction = Callable[[MessageClientExt], Awaitable[LocalTransactionState] | LocalTransactionState]


@dataclass(frozen=True, slots=True)
class TransactionSendResult:
    """A half message that was stored, and what became of it."""

    half: SendResult
    state: LocalTransactionState


class Transactions:
    """The ends of a producer's transactions.

    Args:
        client: Asks brokers.
        group: The producer's group: a broker asks any of its members.
        check: Tells how a transaction ended.
        namespace: Of group and topics.

    Attributes:
        traces: Gets each end; None for no traces.
    """

    def __init__(self, client: ClientInstance, group: str, check: CheckTransaction, namespace: Namespace) -> None:
        self._client = client
        self._group = group
        self._check = check
        self._namespace = namespace
        self.traces: Traces | None = None

    def half_properties(self) -> dict[str, str]:
        """The properties of a half message."""
        return {TRAN_MSG: "true", PGROUP: self._group}

    async def run(
        self,
        message: Message,
        half: SendResult,
        execute: Callable[[Message], Awaitable[LocalTransactionState] | LocalTransactionState],
    ) -> TransactionSendResult:
        """Run the local transaction of a half message that is stored, and tell the broker how it ended."""
        state = LocalTransactionState.UNKNOW
        try:
            if half.status is SendStatus.SEND_OK:
                state = await state_of(execute, message)
            else:  # it may get lost
                state = LocalTransactionState.ROLLBACK_MESSAGE
        finally:
            await self._end(message, half, state)
        return TransactionSendResult(half, state)

    async def _end(self, message: Message, half: SendResult, state: LocalTransactionState) -> None:
        """Tell the broker how a transaction ended; if that fails, the broker asks later."""
        transaction_id = half.transaction_id or half.message_id
        header = EndTransactionRequestHeader(
            self._group, half.queue_offset, decode_message_id(half.offset_message_id)[1], int(state), half.message_id,
            topic=self._namespace.wrap(message.topic), transaction_id=transaction_id,
        )  # fmt: skip
        address = self._client.routes.master(half.queue.broker_name)
        try:
            if address is not None:
                await self._client.api.one_way(address, _end_command(header, half.queue.broker_name))
                if self.traces is not None:
                    self.traces.ended(
                        message, half.message_id, address, transaction_id, state.name, is_from_check=False
                    )
        except ReputError as error:
            peers.failed("the outcome of a transaction was not sent", error, id=half.message_id)

    def asked(self, connection: Channel, command: RemotingCommand) -> None:
        """Take CHECK_TRANSACTION_STATE."""
        self._client.spawn(self._answer(connection, command))

    async def _answer(self, connection: Channel, command: RemotingCommand) -> None:
        header = decode_header(CheckTransactionStateRequestHeader, command.ext_fields)
        broker_name = (command.ext_fields or {}).get("bname", "")
        queue = QueueKey(header.topic or "", broker_name, 0)
        messages = decode_messages(command.body, queue, None, self._namespace)
        if not messages:
            return
        (message,) = messages
        try:
            state = await state_of(self._check, message)
        except BaseException as error:
            if goes_on(error):
                raise
            logger.error(Event("a check of a transaction failed", id=message.message_id), exc_info=error)
            state = LocalTransactionState.UNKNOW
        ended = EndTransactionRequestHeader(
            message.properties.get(PGROUP, self._group), header.tran_state_table_offset, header.commit_log_offset,
            int(state), message.unique_key or header.msg_id or "", from_transaction_check=True,
            topic=self._namespace.wrap(message.topic),
            transaction_id=header.transaction_id,
        )  # fmt: skip
        connection.send_one_way(self._client.api.prepared(_end_command(ended, broker_name)))
        if self.traces is not None:
            self.traces.ended(
                message, message.message_id, self._client.routes.master(broker_name) or "",
                header.transaction_id or message.message_id, state.name, is_from_check=True,
            )  # fmt: skip


async def state_of(
    function: Callable[[_M], Awaitable[LocalTransactionState] | LocalTransactionState], message: _M
) -> LocalTransactionState:
    """Outcome that a coroutine function, or a plain one, returns for a message; None is UNKNOW, as Java's null.

    Raises ConfigError for what is none, as True; the broker asks later.
    """
    found: Any = function(message)
    state = await found if inspect.isawaitable(found) else found
    if state is None:
        return LocalTransactionState.UNKNOW
    if not isinstance(state, LocalTransactionState):  # False would be UNKNOW, by its number
        raise refusal(
            "outcome of a transaction", state, "COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW, of LocalTransactionState"
        )
    return state


def _end_command(header: EndTransactionRequestHeader, broker_name: str) -> RemotingCommand:
    fields = encode_header(header) | {"bname": broker_name}
    return RemotingCommand(RequestCode.END_TRANSACTION, ext_fields=fields)
