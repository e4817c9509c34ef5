"""Progress of topics and groups: what operators ask most (`AdminBrokerProcessor`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from reput.broker.clock import BrokerClock
from reput.broker.disk_work import DiskPools
from reput.broker.view import BrokerView
from reput.formats.metadata import TopicConfig
from reput.remoting.body import encode_body
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import decode_header
from reput.remoting.queue_tables import QueueKey, encode_queue_tables
from reput.remoting.statistics_headers import (
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from reput.service.broker_stats_manager import BrokerStatsManager
from reput.service.consumer_manager import ConsumerManager
from reput.service.consumer_offset_manager import ConsumerOffsetManager
from reput.service.subscription_group_manager import SubscriptionGroupManager
from reput.service.topic_config_manager import TopicConfigManager
from reput.store.message_store import MessageStore
from reput.transport.channel import Channel
from reput.transport.requests import Answer, Handler

#: Topic, queue id, and the offsets up to which a group has consumed and pulled.
_Queue = tuple[str, int, int, int]


class StatisticsProcessor:
    """Takes requests for the offsets of topics and of groups, and for what is counted."""

    def __init__(
        self,
        view: BrokerView,
        clock: BrokerClock,
        pools: DiskPools,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        consumers: ConsumerManager[Channel],
        stats: BrokerStatsManager,
    ) -> None:
        self._view, self._clock, self._pools, self._store = view, clock, pools, store
        self._topics, self._groups, self._offsets, self._consumers = topics, groups, offsets, consumers
        self._stats = stats

    def handlers(self) -> dict[int, Handler]:
        """The requests that it takes."""
        return {
            RequestCode.GET_TOPIC_STATS_INFO: self.topic_stats,
            RequestCode.GET_CONSUME_STATS: self.consume_stats,
            RequestCode.GET_BROKER_CONSUME_STATS: self.broker_consume_stats,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.consume_time_span,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.groups_of_topic,
            RequestCode.VIEW_BROKER_STATS_DATA: self.broker_stats,
        }

    def groups_of_topic(self, connection: Channel, command: RemotingCommand) -> Answer:
        """The groups that subscribe to a topic, or have offsets in it."""
        topic = decode_header(QueryTopicConsumeByWhoRequestHeader, command.ext_fields).topic
        groups = self._consumers.query_topic_consume_by_who(topic)
        groups |= self._offsets.which_group_by_topic(topic)
        return command.response(body=encode_body({"groupList": sorted(groups)}))

    # -- growth

    def broker_stats(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Answer with the growth of a counter in the last minute, hour and day."""
        header = decode_header(ViewBrokerStatsDataRequestHeader, command.ext_fields)
        found = self._stats.stats_item(header.stats_name, header.stats_key)
        if found is None:
            remark = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            return command.response(ResponseCode.SYSTEM_ERROR, remark)
        names = ("statsMinute", "statsHour", "statsDay")
        return command.response(body=encode_body({name: one._asdict() for name, one in zip(names, found, strict=True)}))

    # -- offsets

    async def topic_stats(self, connection: Channel, command: RemotingCommand) -> Answer:
        """First and next offset of each queue, and when its last message was stored."""
        name = decode_header(GetTopicStatsInfoRequestHeader, command.ext_fields).topic
        topic = self._topics.select_topic_config(name)
        if topic is None:
            return command.response(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        tps = self._stats.tps_topic_put_nums(name)

        def look() -> bytes:
            return encode_queue_tables({"offsetTable": self._topic_stats(topic), "topicPutTps": tps})

        return command.response(body=await self._pools.reads.run_for(connection, look))

    def _topic_stats(self, topic: TopicConfig) -> Mapping[QueueKey, Any]:
        store, name = self._store, topic.topic_name
        table = {}
        for queue_id in range(max(topic.write_queue_nums, topic.read_queue_nums)):
            end = store.max_offset(name, queue_id)
            table[self._key(name, queue_id)] = {
                "lastUpdateTimestamp": store.message_store_timestamp(name, queue_id, end - 1) if end > 0 else 0,
                "maxOffset": end,
                "minOffset": max(0, store.min_offset(name, queue_id)),
            }
        return table

    async def consume_stats(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Answer with a group's offsets in each queue of its topics, and its last consumed message's store time."""
        header = decode_header(GetConsumeStatsRequestHeader, command.ext_fields)
        group, topics = header.consumer_group, self._topics_of(header)
        queues = [one for name in topics for one in self._queues(group, name)]
        tps = float(sum(self._stats.tps_group_get_nums(group, name) for name in topics))

        def look() -> bytes:
            return encode_queue_tables({"consumeTps": tps, "offsetTable": self._consume_stats(queues)})

        return command.response(body=await self._pools.reads.run_for(connection, look))

    async def broker_consume_stats(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Answer with the offsets of all groups in all their topics, or in order topics."""
        is_order = decode_header(GetConsumeStatsInBrokerHeader, command.ext_fields).is_order
        asked = []
        for group in list(self._groups.subscription_group_table):
            topics = [self._topics.select_topic_config(n) for n in self._topics_of(GetConsumeStatsRequestHeader(group))]
            names = [one.topic_name for one in topics if one is not None and (one.order or not is_order)]
            asked.append((group, [(name, list(self._queues(group, name))) for name in names]))

        def look() -> list[dict[str, Any]]:
            return [{group: [self._stats_of(group, *one) for one in topics]} for group, topics in asked]

        found = await self._pools.reads.run_for(connection, look)
        queues = [
            one
            for group in found
            for topics in group.values()
            for stats in topics
            for one in stats["offsetTable"].values()
        ]
        body = {
            "brokerAddr": self._view.address,
            "consumeStatsList": found,
            "totalDiff": sum(one["brokerOffset"] - one["consumerOffset"] for one in queues),
            "totalInflightDiff": sum(one["pullOffset"] - one["consumerOffset"] for one in queues),
        }
        return command.response(body=encode_queue_tables(body))

    def _stats_of(self, group: str, topic: str, queues: Sequence[_Queue]) -> dict[str, Any]:
        tps = self._stats.tps_group_get_nums(group, topic)
        return {"consumeTps": tps, "offsetTable": self._consume_stats(queues)}

    def _queues(self, group: str, topic: str) -> Iterator[_Queue]:
        """The queues of a topic, and how far a group is there: committed, and pulled."""
        config, offsets = self._topics.select_topic_config(topic), self._offsets
        for queue_id in range(0 if config is None else config.read_queue_nums):
            committed = max(0, offsets.query_offset(group, topic, queue_id))
            yield topic, queue_id, committed, max(committed, offsets.query_pull_offset(group, topic, queue_id))

    async def consume_time_span(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Store times of each queue's first and last message, and of the last one that a group has consumed."""
        header = decode_header(QueryConsumeTimeSpanRequestHeader, command.ext_fields)
        name = header.topic
        topic = self._topics.select_topic_config(name)
        if topic is None:
            return command.response(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        queues = range(topic.write_queue_nums)
        consumed = [self._offsets.query_offset(header.group, name, queue_id) for queue_id in queues]

        def look() -> bytes:
            spans = [self._time_span(name, *one) for one in zip(queues, consumed, strict=True)]
            return encode_body({"consumeTimeSpanSet": spans})

        return command.response(body=await self._pools.reads.run_for(connection, look))

    def _time_span(self, topic: str, queue_id: int, consumed: int) -> dict[str, Any]:
        """The times of one queue (`QueueTimeSpan`); -1 if there is no message."""
        store = self._store
        begin, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        first = store.message_store_timestamp(topic, queue_id, begin)
        next_one = store.message_store_timestamp(topic, queue_id, max(consumed, begin))
        return {
            "consumeTimeStamp": store.message_store_timestamp(topic, queue_id, consumed - 1) if consumed > 0 else first,
            "delayTime": self._clock.now_ms() - next_one if next_one >= 0 else 0,
            "maxTimeStamp": store.message_store_timestamp(topic, queue_id, end - 1),
            "messageQueue": {"brokerName": self._view.config.broker_name, "queueId": queue_id, "topic": topic},
            "minTimeStamp": first,
        }

    def _topics_of(self, header: GetConsumeStatsRequestHeader) -> list[str]:
        """The topics of a list, as they are; else the one that is asked for, or those in which the group has offsets.

        Of the latter a group with members has those that they subscribe to (`getTopicsForCollectingConsumeStats`).
        """
        group = header.consumer_group
        names = [name for name in (header.topic_list or "").split(";") if name]
        if names:
            return names
        topic = (header.topic or "").strip()
        names = [topic] if topic else sorted(self._offsets.which_topic_by_consumer(group))
        info = self._consumers.consumer_group_info(group)
        if info is None or not info.subscription_table:
            return names
        return [name for name in names if name in info.subscription_table]

    def _consume_stats(self, queues: Iterable[_Queue]) -> Mapping[QueueKey, Any]:
        store = self._store
        return {
            self._key(name, queue_id): {
                "brokerOffset": max(0, store.max_offset(name, queue_id)),
                "consumerOffset": committed,
                "lastTimestamp": max(0, store.message_store_timestamp(name, queue_id, committed - 1)),
                "pullOffset": pulled,
            }
            for name, queue_id, committed, pulled in queues
        }

    def _key(self, topic: str, queue_id: int) -> QueueKey:
        return QueueKey(topic, self._view.config.broker_name, queue_id)
