"""Acks of popped messages (`AckMessageProcessor`)."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from reput.broker.pop.pop_checks import topic_refusal
from reput.broker.pop.revive_messages import ReviveMessages
from reput.broker.state import BrokerState
from reput.formats.pop_messages import Ack, CheckPointKey
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.extra_info import ExtraInfo, decode_extra_info
from reput.remoting.header import decode_header
from reput.remoting.pop_headers import AckMessageRequestHeader
from reput.transport.connection import Connection
from reput.transport.requests import Answer, Handler


class AckMessageProcessor:
    """Takes ACK_MESSAGE."""

    def __init__(self, state: BrokerState, revive: ReviveMessages) -> None:
        self._state = state
        self._revive = revive

    def handlers(self) -> dict[int, Handler]:
        """The requests that it takes."""
        return {RequestCode.ACK_MESSAGE: self.ack}

    def ack(self, connection: Connection, command: RemotingCommand) -> Answer | Coroutine[Any, Any, Answer]:
        """Take one ack: success says nothing about whether the message was still invisible."""
        state, header = self._state, decode_header(AckMessageRequestHeader, command.ext_fields)
        topic = state.topics.select_topic_config(header.topic)
        if topic is None:
            return command.response(*topic_refusal(header.topic))
        if not 0 <= header.queue_id < topic.read_queue_nums:
            remark = (
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] topicConfig.readQueueNums:"
                f"[{topic.read_queue_nums}] consumer:[/{connection.remote}]"
            )
            return command.response(ResponseCode.MESSAGE_ILLEGAL, remark)
        info = decode_extra_info(header.extra_info)
        low = state.store.min_offset(header.topic, header.queue_id)
        high = state.store.max_offset(header.topic, header.queue_id)
        if not low <= header.offset <= high:
            remark = (
                f"offset is illegal, key:{header.topic}@{header.queue_id}, commit:{header.offset}, store:{low}~{high}"
            )
            return command.response(ResponseCode.NO_MESSAGE, remark)
        return self._ack(command, header, info)

    async def _ack(self, command: RemotingCommand, header: AckMessageRequestHeader, info: ExtraInfo) -> Answer:
        if not 0 <= info.revive_qid < self._state.config.revive_queue_num:
            return command.response()  # nobody reads there
        ack = Ack(ack_key(header.topic, header.consumer_group, header.queue_id, info), (header.offset,))
        end = await self._revive.append_ack(ack, info.revive_qid, info.pop_time + info.invisible_time)
        await self._state.appends.safe(end)
        return command.response()


def ack_key(topic: str, group: str, queue_id: int, info: ExtraInfo) -> CheckPointKey:
    """What the check point of a handle and its acks have in common."""
    return CheckPointKey(topic, group, queue_id, info.ck_queue_offset, info.pop_time, info.broker_name)
