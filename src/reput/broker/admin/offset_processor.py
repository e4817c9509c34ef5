"""Requests about the offsets of groups, and the topics in which they have some (of `AdminBrokerProcessor`)."""

from __future__ import annotations

from typing import Any

from reput.broker.admin.client_bodies import subscription_body
from reput.broker.clock import BrokerClock
from reput.broker.disk_work import DiskPools
from reput.broker.large_bodies import encode_beside
from reput.broker.state_files import StateFiles
from reput.broker.view import BrokerView
from reput.formats.java import INT64_MAX
from reput.remoting.body import encode_body
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import decode_header
from reput.remoting.statistics_headers import (
    CloneGroupOffsetRequestHeader,
    QueryCorrectionOffsetHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicsByConsumerRequestHeader,
)
from reput.service.consumer_manager import ConsumerManager
from reput.service.consumer_offset_manager import ConsumerOffsetManager
from reput.service.topic_config_manager import TopicConfigManager
from reput.store.message_store import MessageStore
from reput.transport.channel import Channel
from reput.transport.requests import Answer, Handler


class OffsetProcessor:
    """Takes requests that show and copy offsets of groups."""

    def __init__(
        self,
        view: BrokerView,
        clock: BrokerClock,
        pools: DiskPools,
        store: MessageStore,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        consumers: ConsumerManager[Channel],
        config_files: StateFiles,
    ) -> None:
        self._view, self._clock, self._pools, self._store = view, clock, pools, store
        self._topics, self._offsets, self._consumers, self._config_files = topics, offsets, consumers, config_files

    def handlers(self) -> dict[int, Handler]:
        """The requests that it takes."""
        return {
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.all_offsets,
            RequestCode.QUERY_CORRECTION_OFFSET: self.correction_offset,
            RequestCode.CLONE_GROUP_OFFSET: self.clone_offset,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.topics_of_group,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.subscription,
        }

    async def all_offsets(self, connection: Channel, command: RemotingCommand) -> Answer:
        """The content of `consumerOffset.json`, as of now."""
        return command.response(body=await encode_beside(self._pools, connection, encode_body, self._offsets.content()))

    def correction_offset(self, connection: Channel, command: RemotingCommand) -> Answer:
        """The smallest offset of all groups in each queue; the largest number if one group is before it."""
        header = decode_header(QueryCorrectionOffsetHeader, command.ext_fields)
        offsets, topic = self._offsets, header.topic
        without = (header.filter_groups or "").split(",")
        smallest: dict[int, int] = {}
        for group in sorted(offsets.which_group_by_topic(topic).difference(without)):
            for queue_id, offset in offsets.query_offsets(group, topic).items():
                if offset >= self._store.min_offset(topic, queue_id):
                    smallest[queue_id] = min(smallest.get(queue_id, INT64_MAX), offset)
        for queue_id, offset in offsets.query_offsets(header.compare_group, topic).items():
            if smallest.get(queue_id, -1) > offset:
                smallest[queue_id] = INT64_MAX
        return command.response(body=encode_body({"correctionOffsets": smallest}))

    async def clone_offset(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Give a group the offsets of another one, in a topic or in all of them; answered when they are on the disk."""
        header = decode_header(CloneGroupOffsetRequestHeader, command.ext_fields)
        topic = (header.topic or "").strip()
        info = None if header.offline else self._consumers.consumer_group_info(header.src_group)
        subscribed = {} if info is None else info.subscription_table
        for name in [topic] if topic else sorted(self._offsets.which_topic_by_consumer(header.src_group)):
            if self._topics.select_topic_config(name) is None or (subscribed and name not in subscribed):
                continue
            self._offsets.clone_offset(header.src_group, header.dest_group, name, self._clock.now_ms())
        await self._config_files.persist(self._offsets)
        return command.response()

    def topics_of_group(self, connection: Channel, command: RemotingCommand) -> Answer:
        """The topics in which a group has offsets."""
        group = decode_header(QueryTopicsByConsumerRequestHeader, command.ext_fields).group
        topics = sorted(self._offsets.which_topic_by_consumer(group))
        return command.response(body=encode_body({"brokerAddr": self._view.address, "topicList": topics}))

    def subscription(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Answer with a group's subscription to a topic; without it if the group has no members."""
        header = decode_header(QuerySubscriptionByConsumerRequestHeader, command.ext_fields)
        found = self._consumers.find_subscription_data(header.group, header.topic or "")
        body: dict[str, Any] = {"group": header.group}
        body |= {} if found is None else {"subscriptionData": subscription_body(found)}
        body |= {} if header.topic is None else {"topic": header.topic}
        return command.response(body=encode_body(body))
