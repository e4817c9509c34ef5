"""AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue, and the same by the broker itself."""

from __future__ import annotations

from reput.broker.clock import BrokerClock
from reput.broker.grpc.client_channel import Caller, ClientChannel
from reput.broker.grpc.routes import consumer_needs
from reput.remoting.acl import ACCESS_KEY
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.extra_info import ORDER_REVIVE_QID
from reput.remoting.grpc.grpc_codes import Code
from reput.remoting.grpc.grpc_interface import (
    AckMessageRequest,
    AckMessageResponse,
    AckMessageResultEntry,
    ChangeInvisibleDurationRequest,
    ChangeInvisibleDurationResponse,
    ForwardMessageToDeadLetterQueueRequest,
    StatusResponse,
)
from reput.remoting.grpc.grpc_parts import Status, to_ms
from reput.service.grpc.message_checks import check_invisible_time, checked_group, checked_topic
from reput.service.grpc.receipt_handles import ReceiptHandle, ReceiptHandles, check_not_expired, decode_handle
from reput.service.grpc.statuses import RefusedCallError, ok, overall, refused

#: Messages of one ack; clients ack one.
_MOST_ENTRIES = 1024
#: Below 0: to the dead letters.
_TO_DEAD_LETTERS = "-1"


class Acks:
    """Ends, or changes, the invisible time of messages.

    Args:
        clock: The time of messages.
        handles: Of the messages that are renewed: a call has the handle of the receive, not the newest one.
    """

    def __init__(self, clock: BrokerClock, handles: ReceiptHandles[ClientChannel]) -> None:
        self._clock, self._handles = clock, handles

    # -- calls

    async def ack_message(self, caller: Caller, request: AckMessageRequest) -> AckMessageResponse:
        """Ack messages, each by itself."""
        topic, group = _names(caller, request)
        if len(request.entries) > _MOST_ENTRIES:
            text = f"{len(request.entries)} messages in one ack: at most {_MOST_ENTRIES}"
            raise RefusedCallError(Code.BAD_REQUEST, text)
        entries = []
        for one in request.entries:
            try:
                handle = self._current(caller, group, one.message_id, one.receipt_handle)
                answer = await self.ack(caller.channel, caller.user, group, topic, handle)
                is_done = answer.code == ResponseCode.SUCCESS
                status = ok() if is_done else Status(Code.INTERNAL_SERVER_ERROR, "ack failed: status is abnormal")
            except RefusedCallError as error:
                status = error.status
            entries.append(AckMessageResultEntry(one.message_id, one.receipt_handle, status))
        return AckMessageResponse(overall([one.status for one in entries], "ack message result is empty"), entries)

    async def change_invisible_duration(
        self, caller: Caller, request: ChangeInvisibleDurationRequest
    ) -> ChangeInvisibleDurationResponse:
        """Change the invisible time of a message; 0 makes it visible at once."""
        (topic, group), ms = _names(caller, request), to_ms(request.invisible_duration)
        check_invisible_time(ms, 0)
        handle = self._current(caller, group, request.message_id, request.receipt_handle)
        changed = await self.change(caller.channel, caller.user, group, topic, handle, ms)
        if changed is None:
            text = "changeInvisibleDuration failed: status is abnormal"
            raise RefusedCallError(Code.INTERNAL_SERVER_ERROR, text)
        return ChangeInvisibleDurationResponse(ok(), changed.text)

    async def forward_message_to_dead_letter_queue(
        self, caller: Caller, request: ForwardMessageToDeadLetterQueueRequest
    ) -> StatusResponse:
        """Put a message that its group cannot consume to the dead letters, and ack it."""
        topic, group = _names(caller, request)
        handle = self._current(caller, group, request.message_id, request.receipt_handle)
        answer = await self.to_dead_letters(caller.channel, caller.user, group, topic, handle, request.message_id)
        if answer.code != ResponseCode.SUCCESS:
            raise refused(answer.code, answer.remark)
        return StatusResponse(Status(Code.OK, answer.remark or str(int(answer.code))))

    def _current(self, caller: Caller, group: str, message_id: str, text: str) -> ReceiptHandle:
        handle = self._handles.take(caller.channel, group, message_id, decode_handle(text))
        check_not_expired(handle, self._clock.now_ms())
        return handle

    # -- the same without a call

    async def ack(
        self, channel: ClientChannel, user: str, group: str, topic: str, handle: ReceiptHandle
    ) -> RemotingCommand:
        """Ack a message on behalf of a user."""
        return await _request(channel, user, RequestCode.ACK_MESSAGE, _fields(group, topic, handle))

    async def change(
        self, channel: ClientChannel, user: str, group: str, topic: str, handle: ReceiptHandle, ms: int
    ) -> ReceiptHandle | None:
        """Make a message invisible for so long from now on; its new handle, None where the broker refuses."""
        fields = _fields(group, topic, handle) | {"invisibleTime": str(ms)}
        answer = await _request(channel, user, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)
        if answer.code != ResponseCode.SUCCESS:
            return None
        told = answer.ext_fields or {}
        is_in_order = handle.text.split(" ", 4)[3] == str(ORDER_REVIVE_QID)
        text = handle.changed(told["popTime"], told["invisibleTime"], told["reviveQid"], is_in_order=is_in_order)
        return decode_handle(text)

    async def to_dead_letters(
        self, channel: ClientChannel, user: str, group: str, topic: str, handle: ReceiptHandle, message_id: str
    ) -> RemotingCommand:
        """Put a message to the dead letters of a group, and ack it."""
        if handle.commit_log_offset is None:
            raise RefusedCallError(Code.INVALID_RECEIPT_HANDLE, "commit log offset is empty")
        fields = {
            "offset": handle.commit_log_offset, "group": group, "delayLevel": _TO_DEAD_LETTERS,
            "originMsgId": message_id, "originTopic": handle.real_topic(topic, group), "maxReconsumeTimes": "0",
        }  # fmt: skip
        answer = await _request(channel, user, RequestCode.CONSUMER_SEND_MSG_BACK, fields)
        if answer.code == ResponseCode.SUCCESS:
            await self.ack(channel, user, group, topic, handle)
        return answer


def _names(
    caller: Caller,
    request: AckMessageRequest | ChangeInvisibleDurationRequest | ForwardMessageToDeadLetterQueueRequest,
) -> tuple[str, str]:
    """Topic and group of a call whose caller may consume them."""
    topic, group = checked_topic(request.topic), checked_group(request.group)
    caller.require(*consumer_needs(group, topic))
    return topic, group


def _fields(group: str, topic: str, handle: ReceiptHandle) -> dict[str, str]:
    return {
        "consumerGroup": group, "topic": handle.real_topic(topic, group), "queueId": handle.queue_id,
        "extraInfo": handle.text, "offset": handle.queue_offset,
    }  # fmt: skip


async def _request(channel: ClientChannel, user: str, code: int, fields: dict[str, str]) -> RemotingCommand:
    if user:
        fields[ACCESS_KEY] = user
    answer = channel.take(channel.command(code, fields))
    return answer if isinstance(answer, RemotingCommand) else await answer
