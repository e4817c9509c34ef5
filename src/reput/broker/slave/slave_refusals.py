"""Refusals of a slave: of requests that would put a message, or change something that is copied from the master.

The codes are for the answers: what they leave out, the log refuses (`LoopWriter.take_copies_only`).
"""

from __future__ import annotations

from reput.config.broker import BrokerConfig
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand

#: `SendMessageProcessor.rejectRequest`, and requests of POP, which put check points.
_PUTS = frozenset(
    (
        RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2,
        RequestCode.POP_MESSAGE, RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    )
)  # fmt: skip
_PULLS = frozenset((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE))
#: `EndTransactionProcessor`, `RecallMessageProcessor`.
_ENDS = frozenset((RequestCode.END_TRANSACTION, RequestCode.RECALL_MESSAGE, RequestCode.RESUME_CHECK_HALF_MESSAGE))
#: `AdminBrokerProcessor.validateSlave`, and what else the next copy would undo.
_CHANGES = frozenset(
    (
        RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.SET_MESSAGE_REQUEST_MODE, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    )
)  # fmt: skip
_BUSY = "[REJECTREQUEST]system busy, start flow control for a while"
#: What RocketMQ leaves out: the slave is not busy, and never will be read.
_UNREAD = "it is a slave that gives no messages: slaveReadEnable=false"
_FROM_MASTER = "Can't modify topic or subscription group from slave broker, please execute it from master broker."


def slave_refusal(config: BrokerConfig, command: RemotingCommand) -> RemotingCommand | None:
    """The answer to a request that a slave does not take, with RocketMQ's codes and remarks; None for one it takes."""
    code = command.code
    if code in _PUTS:
        return command.response(ResponseCode.SYSTEM_BUSY, _BUSY)
    if code in _PULLS and not config.slave_read_enable:
        return command.response(ResponseCode.SYSTEM_BUSY, f"{_BUSY}; {_UNREAD}")
    if code in _ENDS:
        return command.response(ResponseCode.SLAVE_NOT_AVAILABLE, "the broker is a slave")
    if code in _CHANGES:
        return command.response(ResponseCode.SYSTEM_ERROR, _FROM_MASTER)
    return None
