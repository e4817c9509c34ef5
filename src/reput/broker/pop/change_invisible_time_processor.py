"""Changes of the invisible time of popped messages (`ChangeInvisibleTimeProcessor`)."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from reput.broker.clock import BrokerClock
from reput.broker.pop.handles import Wake, check_handle, check_point_key
from reput.broker.pop.pop_offsets import PopOffsets
from reput.broker.pop.revive_messages import ReviveMessages
from reput.formats.java import INT64_MAX, INT64_MIN
from reput.formats.pop_messages import Ack, CheckPoint, CheckPointKey
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.extra_info import ExtraInfo, decode_extra_info
from reput.remoting.header import decode_header, encode_header
from reput.remoting.pop_headers import ChangeInvisibleTimeRequestHeader, ChangeInvisibleTimeResponseHeader, PopKey
from reput.service.consumer_offset_manager import ConsumerOffsetManager
from reput.service.topic_config_manager import TopicConfigManager
from reput.store.message_store import MessageStore
from reput.transport.channel import Channel
from reput.transport.requests import Answer, Handler

_REMARK = "not set any response code"  # RocketMQ's, of answers that are well


class ChangeInvisibleTimeProcessor:
    """Takes CHANGE_MESSAGE_INVISIBLETIME: a new check point, then the ack of the old one.

    A kill between the two gives the message twice. Both are in the log before the answer. The new check point's pop
    time is after the old one's, whatever the clock says: the ack counts for every check point with its key.

    Args:
        clock, store, topics, consumer_offsets: The broker's.
        offsets: How far groups have popped.
        revive: Takes check points and acks.
        wake: Called when a queue that was popped in order may be free at another time.
    """

    def __init__(
        self,
        clock: BrokerClock,
        store: MessageStore,
        topics: TopicConfigManager,
        consumer_offsets: ConsumerOffsetManager,
        offsets: PopOffsets,
        revive: ReviveMessages,
        wake: Wake,
    ) -> None:
        self._clock, self._store, self._topics, self._consumer_offsets = clock, store, topics, consumer_offsets
        self._offsets = offsets
        self._revive = revive
        self._wake = wake

    def handlers(self) -> dict[int, Handler]:
        """The requests that it takes."""
        return {RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self.change}

    def change(self, connection: Channel, command: RemotingCommand) -> Answer | Coroutine[Any, Any, Answer]:
        """Take one request."""
        header = decode_header(ChangeInvisibleTimeRequestHeader, command.ext_fields)
        key = PopKey(header.topic, header.consumer_group, header.queue_id)
        refusal = check_handle(self._topics, connection, key)
        if refusal is not None:
            return self._refuse(command, *refusal)
        low, high = self._store.min_offset(key.topic, key.queue_id), self._store.max_offset(key.topic, key.queue_id)
        if not low <= header.offset < high:
            return self._refuse(command, ResponseCode.NO_MESSAGE, _REMARK)
        info = decode_extra_info(header.extra_info)
        if info.is_order:
            return self._change_in_order(command, key, header, info)
        most_ms = self._store.config.timer_max_delay_sec * 1000
        if header.invisible_time > most_ms or not self._revive.has_queue(info.revive_qid):
            remark = f"invisibleTime {header.invisible_time} or reviveQid {info.revive_qid} is out of range"
            return self._refuse(command, ResponseCode.INVALID_PARAMETER, remark)
        offset, pop_time = (
            header.offset,
            max(self._clock.now_ms(), info.pop_time + 1),
        )  # else both may have the same key
        new_key = CheckPointKey(key.topic, key.group, key.queue_id, offset, pop_time, info.broker_name)
        check_point = self._revive.check_point(CheckPoint(new_key, header.invisible_time, (offset,)), info.revive_qid)
        acks = self._revive.acks(Ack(check_point_key(key, info), (offset,)), info.revive_qid, info.revive_time)
        answer = ChangeInvisibleTimeResponseHeader(pop_time, header.invisible_time, info.revive_qid)
        well = command.response(ResponseCode.SUCCESS, _REMARK, encode_header(answer))
        return self._revive.answer((check_point, *acks), well)

    def _refuse(self, command: RemotingCommand, code: int, remark: str | None) -> RemotingCommand:
        return command.response(code, remark, encode_header(ChangeInvisibleTimeResponseHeader()))

    async def _change_in_order(
        self, command: RemotingCommand, key: PopKey, header: ChangeInvisibleTimeRequestHeader, info: ExtraInfo
    ) -> Answer:
        (topic, group, queue_id), now_ms = key, self._clock.now_ms()
        if header.offset < self._consumer_offsets.query_offset(group, topic, queue_id):
            return self._refuse(command, ResponseCode.SUCCESS, _REMARK)
        visible_ms = now_ms + header.invisible_time
        if not INT64_MIN <= visible_ms <= INT64_MAX:
            remark = f"invisibleTime {header.invisible_time} is out of range"
            return self._refuse(command, ResponseCode.INVALID_PARAMETER, remark)
        await self._offsets.lock(key)
        try:
            self._offsets.orders.update_next_visible_time(*key, header.offset, info.pop_time, visible_ms, now_ms)
        finally:
            self._offsets.unlock(key)
        self._wake(topic, group, queue_id)  # to wait until then
        answer = ChangeInvisibleTimeResponseHeader(info.pop_time, visible_ms - info.pop_time, info.revive_qid)
        return command.response(ResponseCode.SUCCESS, _REMARK, encode_header(answer))
