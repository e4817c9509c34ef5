"""Requests about messages that were popped before: what their handles name."""

from __future__ import annotations

from collections.abc import Callable

from reput.broker.clock import BrokerClock
from reput.broker.pop.pop_checks import Refusal, topic_refusal
from reput.broker.pop.pop_offsets import PopOffsets
from reput.formats.pop_messages import CheckPointKey
from reput.remoting.codes import ResponseCode
from reput.remoting.extra_info import ExtraInfo
from reput.remoting.pop_headers import PopKey
from reput.service.consumer_offset_manager import ConsumerOffsetManager
from reput.service.pop.consumer_order_info_manager import OrderAck
from reput.service.topic_config_manager import TopicConfigManager
from reput.transport.channel import Channel

#: Wakes a request that waits for messages of a topic, group and queue.
Wake = Callable[[str, str, int], None]


def check_handle(topics: TopicConfigManager, connection: Channel, key: PopKey) -> Refusal | None:
    """Whether a topic has the queue of a handle; the answer that refuses it, if not."""
    topic = topics.select_topic_config(key.topic)
    if topic is None:
        return topic_refusal(key.topic)
    if 0 <= key.queue_id < topic.read_queue_nums:
        return None
    remark = (
        f"queueId[{key.queue_id}] is illegal, topic:[{key.topic}] topicConfig.readQueueNums:"
        f"[{topic.read_queue_nums}] consumer:[/{connection.remote}]"
    )
    return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)


def check_point_key(key: PopKey, info: ExtraInfo) -> CheckPointKey:
    """The key that the check point of a handle and its acks share."""
    return CheckPointKey(*key[:2], key.queue_id, info.ck_queue_offset, info.pop_time, info.broker_name)


async def ack_in_order(
    clock: BrokerClock,
    consumer_offsets: ConsumerOffsetManager,
    offsets: PopOffsets,
    wake: Wake,
    key: PopKey,
    offset: int,
    info: ExtraInfo,
) -> Refusal | None:
    """Ack a message that was popped in order (`ackOrderly`): the offset of the group may move, and others may pop."""
    topic, group, queue_id = key
    if offset < consumer_offsets.query_offset(group, topic, queue_id):
        return None
    await offsets.lock(key)
    try:
        before = consumer_offsets.query_offset(group, topic, queue_id)
        if offset < before:
            return None
        following = offsets.orders.commit_and_next(*key, offset, info.pop_time, clock.now_ms())
        if following is OrderAck.ILLEGAL:
            remark = f"offset is illegal, key:{topic}@{group}@{queue_id}, old:{before}, commit:{offset}, next:-1"
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        if isinstance(following, OrderAck):
            return None
        if not consumer_offsets.has_offset_reset(topic, group, queue_id):
            consumer_offsets.commit_offset(group, topic, queue_id, following, clock.now_ms())
    finally:
        offsets.unlock(key)
    if offsets.orders.free_at(*key, None, info.invisible_time, clock.now_ms()) <= clock.now_ms():
        wake(topic, group, queue_id)
    return None
