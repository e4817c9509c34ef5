"""Checks that the requests of POP have in common, in RocketMQ's order and with its remarks."""

from __future__ import annotations

from typing import NamedTuple

from reput.broker.clock import BrokerClock
from reput.broker.pulls.message_filters import Refusal as Refusal
from reput.broker.remarks import SEE_FAQ
from reput.broker.view import BrokerView
from reput.formats.metadata import TopicConfig
from reput.remoting.codes import PermName, ResponseCode
from reput.service.subscription_group_manager import SubscriptionGroupManager
from reput.service.topic_config_manager import TopicConfigManager
from reput.transport.channel import Channel


class QueueRequest(NamedTuple):
    """Queue that a request of POP asks for; queue_id: -1 for all queues."""

    group: str
    topic: str
    queue_id: int


def check_broker(view: BrokerView, what: str) -> Refusal | None:
    """Whether the broker may be read from; `what`: "pop", or as RocketMQ's remark has it."""
    if view.config.broker_permission & PermName.READ:
        return None
    return Refusal(ResponseCode.NO_PERMISSION, f"the broker[{view.ip}] {what} message is forbidden")


def topic_refusal(topic: str) -> Refusal:
    """The answer to a request for a topic that is not there."""
    return Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please! {SEE_FAQ}")


def check_queue(
    clock: BrokerClock,
    topics: TopicConfigManager,
    groups: SubscriptionGroupManager,
    connection: Channel,
    asked: QueueRequest,
) -> TopicConfig | Refusal:
    """The topic of a request, or the answer that refuses it: topic, queue and group are checked."""
    topic = topics.select_topic_config(asked.topic)
    if topic is None:
        return topic_refusal(asked.topic)
    if not topic.perm & PermName.READ:
        return Refusal(ResponseCode.NO_PERMISSION, f"the topic[{asked.topic}] peeking message is forbidden")
    if asked.queue_id >= topic.read_queue_nums:
        remark = (
            f"queueId[{asked.queue_id}] is illegal, topic:[{asked.topic}] topicConfig.readQueueNums:"
            f"[{topic.read_queue_nums}] consumer:[/{connection.remote}]"
        )
        return Refusal(ResponseCode.INVALID_PARAMETER, remark)
    group = groups.find_subscription_group_config(asked.group, clock.now_ms())

    if group is None:
        remark = f"subscription group [{asked.group}] does not exist, {SEE_FAQ}"
        return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
    if not group.consume_enable:
        return Refusal(ResponseCode.NO_PERMISSION, f"subscription group no permission, {asked.group}")
    return topic
