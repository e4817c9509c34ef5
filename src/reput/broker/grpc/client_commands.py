"""Questions of the broker to clients, as commands of their telemetry streams, and the answers (`ProxyChannel`)."""

from __future__ import annotations

from typing import Any

from reput.broker.grpc.client_channel import ClientChannel
from reput.broker.grpc.transactions import TransactionCalls
from reput.formats.message_ext import MessageExt
from reput.formats.remoting import RESPONSE_FLAG
from reput.remoting.body import encode_body
from reput.remoting.client_call_headers import GetConsumerRunningInfoRequestHeader
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.grpc.grpc_codes import Code
from reput.remoting.grpc.grpc_interface import PrintThreadStackTraceCommand, TelemetryCommand, VerifyMessageCommand
from reput.remoting.header import decode_header
from reput.service.grpc.delivered_messages import delivered_message

_RESULTS = {Code.OK: "CR_SUCCESS", Code.FAILED_TO_CONSUME_MESSAGE: "CR_LATER", Code.MESSAGE_CORRUPTED: "CR_RETURN_NULL"}
_MOST_DIGITS = 10


class ClientCommands:
    """Puts into telemetry what the protocol has of the broker's questions; a client hears nothing of the others.

    Args:
        transactions: Knows half messages.
        most_body: Bytes of the largest body that is decompressed for clients.
    """

    def __init__(self, transactions: TransactionCalls, most_body: int) -> None:
        self._transactions, self._most_body = transactions, most_body

    def told(self, channel: ClientChannel, command: RemotingCommand) -> TelemetryCommand | None:
        """The command for what nobody answers; None for what these clients do not hear."""
        if command.code != RequestCode.CHECK_TRANSACTION_STATE:
            return None
        return self._transactions.question(command, self._most_body)

    def asked(self, channel: ClientChannel, command: RemotingCommand) -> TelemetryCommand | None:
        """The command for a question; None for what these clients are not asked."""
        nonce = str(command.opaque)
        if command.code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
            record = MessageExt(command.body)
            message = delivered_message(record, record.topic, None, record.reconsume_times, self._most_body)
            return TelemetryCommand(verify_message_command=VerifyMessageCommand(nonce, message))
        if command.code != RequestCode.GET_CONSUMER_RUNNING_INFO:
            return None
        header = decode_header(GetConsumerRunningInfoRequestHeader, command.ext_fields)
        if not header.jstack_enable:
            return None
        return TelemetryCommand(print_thread_stack_trace_command=PrintThreadStackTraceCommand(nonce))

    @staticmethod
    def answer(command: TelemetryCommand) -> RemotingCommand | None:
        """The answer that a client's command is; None for one that answers nothing."""
        trace, verified = command.thread_stack_trace, command.verify_message_result
        told = trace or verified
        if told is None or not (told.nonce.isascii() and told.nonce.isdigit() and len(told.nonce) <= _MOST_DIGITS):
            return None
        code = Code.OK if command.status is None else command.status.code
        remark = None if command.status is None else command.status.message
        body: dict[str, Any]
        if trace is not None:
            if code != Code.OK:
                return _answer(told.nonce, ResponseCode.SYSTEM_ERROR, remark, {})
            body = {"jstack": trace.thread_stack_trace or ""}
        else:
            result = _RESULTS.get(code, "CR_LATER")  # type: ignore[call-overload]
            body = {
                "autoCommit": True, "consumeResult": result, "order": False, "remark": "from gRPC client",
                "spentTimeMills": 0,
            }  # fmt: skip
        return _answer(told.nonce, ResponseCode.SUCCESS, None, body)


def _answer(nonce: str, code: int, remark: str | None, body: dict[str, Any]) -> RemotingCommand:
    return RemotingCommand(code, int(nonce), RESPONSE_FLAG, remark, body=encode_body(body))
