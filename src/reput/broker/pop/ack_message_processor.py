"""Acks of popped messages (`AckMessageProcessor`)."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

from reput.broker.clock import BrokerClock
from reput.broker.disk_work import DiskPools
from reput.broker.large_bodies import decode_beside, in_pieces, is_large
from reput.broker.pop.handles import Wake, ack_in_order, check_handle, check_point_key
from reput.broker.pop.pop_offsets import PopOffsets
from reput.broker.pop.revive_messages import ReviveMessage, ReviveMessages
from reput.formats.pop_messages import Ack
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.extra_info import ExtraInfo, decode_extra_info
from reput.remoting.header import decode_header
from reput.remoting.pop_bodies import BatchAck, decode_batch_acks
from reput.remoting.pop_headers import AckMessageRequestHeader, PopKey
from reput.service.consumer_offset_manager import ConsumerOffsetManager
from reput.service.pop.topics import pop_retry_topic_of
from reput.service.topic_config_manager import TopicConfigManager
from reput.store.message_store import MessageStore
from reput.transport.channel import Channel
from reput.transport.requests import Answer, Handler


class AckMessageProcessor:
    """Takes ACK_MESSAGE and BATCH_ACK_MESSAGE: success says nothing about whether a message was still invisible.

    Args:
        clock, pools, store, topics, consumer_offsets: The broker's.
        offsets: How far groups have popped.
        revive: Takes acks.
        wake: Called when a queue is free that was popped in order.
    """

    def __init__(
        self,
        clock: BrokerClock,
        pools: DiskPools,
        store: MessageStore,
        topics: TopicConfigManager,
        consumer_offsets: ConsumerOffsetManager,
        offsets: PopOffsets,
        revive: ReviveMessages,
        wake: Wake,
    ) -> None:
        self._clock, self._pools, self._store, self._topics = clock, pools, store, topics
        self._consumer_offsets = consumer_offsets
        self._offsets = offsets
        self._revive = revive
        self._wake = wake

    def handlers(self) -> dict[int, Handler]:
        """The requests that it takes."""
        return {RequestCode.ACK_MESSAGE: self.ack, RequestCode.BATCH_ACK_MESSAGE: self.batch_ack}

    def ack(self, connection: Channel, command: RemotingCommand) -> Answer | Coroutine[Any, Any, Answer]:
        """Take the ack of one message."""
        header = decode_header(AckMessageRequestHeader, command.ext_fields)
        key = PopKey(header.topic, header.consumer_group, header.queue_id)
        refusal = check_handle(self._topics, connection, key)
        if refusal is not None:
            return command.response(*refusal)
        info = decode_extra_info(header.extra_info)
        low, high = self._store.min_offset(key.topic, key.queue_id), self._store.max_offset(key.topic, key.queue_id)
        if not low <= header.offset <= high:
            remark = f"offset is illegal, key:{key.topic}@{key.queue_id}, commit:{header.offset}, store:{low}~{high}"
            return command.response(ResponseCode.NO_MESSAGE, remark)
        if info.is_order:
            return self._ack_in_order(command, key, header.offset, info)
        if not self._revive.has_queue(info.revive_qid):
            return command.response()
        ack = Ack(check_point_key(key, info), (header.offset,))
        messages = self._revive.acks(ack, info.revive_qid, info.revive_time)
        return self._revive.answer(messages, command.response())

    async def _ack_in_order(self, command: RemotingCommand, key: PopKey, offset: int, info: ExtraInfo) -> Answer:
        refusal = await ack_in_order(self._clock, self._consumer_offsets, self._offsets, self._wake, key, offset, info)
        return command.response() if refusal is None else command.response(*refusal)

    def batch_ack(self, connection: Channel, command: RemotingCommand) -> Answer | Coroutine[Any, Any, Answer]:
        """Take the acks of messages of several pops; acks of unknown topics, queues and offsets are passed."""
        if is_large(command):
            return self._large_batch(connection, command)
        broker_name, acks = decode_batch_acks(command.body)
        if not acks:
            return command.response(ResponseCode.NO_MESSAGE, "no acks")
        return self._take(command, broker_name, acks)

    async def _large_batch(self, connection: Channel, command: RemotingCommand) -> Answer:
        broker_name, acks = await decode_beside(self._pools, connection, decode_batch_acks, command)
        if not acks:
            return command.response(ResponseCode.NO_MESSAGE, "no acks")
        async for piece in in_pieces(acks):
            begun = self._take(command, broker_name, piece)
            answer = await begun if isinstance(begun, Coroutine) else begun
        return answer

    def _take(
        self, command: RemotingCommand, broker_name: str, acks: Sequence[BatchAck]
    ) -> Answer | Coroutine[Any, Any, Answer]:
        messages, in_order = [], []
        for one in acks:
            info = one.info(broker_name)
            ack = self._known(one, info)
            if ack is not None and info.is_order:
                in_order.append((ack, info))
            elif ack is not None and self._revive.has_queue(info.revive_qid):
                messages.append(self._revive.batch_ack(ack, info.revive_qid, info.revive_time))
        if in_order:
            return self._batch_ack_in_order(command, in_order, messages)
        return self._revive.answer(messages, command.response()) if messages else command.response()

    async def _batch_ack_in_order(
        self, command: RemotingCommand, in_order: list[tuple[Ack, ExtraInfo]], messages: list[ReviveMessage]
    ) -> Answer:
        for ack, info in in_order:
            key = PopKey(ack.key.topic, ack.key.group, ack.key.queue_id)
            for offset in ack.offsets:
                await ack_in_order(self._clock, self._consumer_offsets, self._offsets, self._wake, key, offset, info)
        answer = self._revive.answer(messages, command.response()) if messages else command.response()
        return await answer if isinstance(answer, Coroutine) else answer

    def _known(self, one: BatchAck, info: ExtraInfo) -> Ack | None:
        """The acks of one pop, of messages that a queue has; None if there are none."""
        topic = one.topic if one.retry == "0" else pop_retry_topic_of(one.topic, one.group, v2=one.retry == "2")
        config = self._topics.select_topic_config(topic)
        if config is None or not 0 <= one.queue_id < config.read_queue_nums:
            return None
        low, high = self._store.min_offset(topic, one.queue_id), self._store.max_offset(topic, one.queue_id)
        offsets = tuple(offset for offset in one.offsets if low <= offset <= high)
        return Ack(check_point_key(PopKey(topic, one.group, one.queue_id), info), offsets) if offsets else None
