"""Who is connected, and how far groups are: what operators ask most (`AdminBrokerProcessor`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from reput.broker.state import BrokerState
from reput.formats.metadata import TopicConfig
from reput.formats.record_layout import unpack_record
from reput.remoting.body import encode_body
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import decode_header
from reput.remoting.queue_tables import QueueKey, encode_queue_tables
from reput.remoting.statistics_headers import (
    GetConsumerConnectionListRequestHeader,
    GetConsumeStatsRequestHeader,
    GetProducerConnectionListRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from reput.service.client_channels import ClientChannelInfo
from reput.service.subscription_data import SubscriptionData
from reput.transport.connection import Connection
from reput.transport.requests import Answer, Handler


class StatisticsProcessor:
    """Takes requests for the connections of groups, and for the offsets of topics and of groups."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def handlers(self) -> dict[int, Handler]:
        """The requests that it takes."""
        return {
            RequestCode.GET_TOPIC_STATS_INFO: self.topic_stats,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.consumer_connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producer_connections,
            RequestCode.GET_CONSUME_STATS: self.consume_stats,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.groups_of_topic,
            RequestCode.VIEW_BROKER_STATS_DATA: self.broker_stats,
        }

    # -- connections

    def consumer_connections(self, connection: Connection, command: RemotingCommand) -> Answer:
        """The members of a group, and what they subscribe to."""
        name = decode_header(GetConsumerConnectionListRequestHeader, command.ext_fields).consumer_group
        info = self._state.consumers.consumer_group_info(name)
        if info is None:
            return command.response(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        body = {
            "connectionSet": _connections(self._state.consumers.channels(name).values()),
            "consumeFromWhere": info.consume_from_where,
            "consumeType": info.consume_type,
            "messageModel": info.message_model,
            "subscriptionTable": {topic: _subscription(one) for topic, one in info.subscription_table.items()},
        }
        return command.response(body=encode_body(body))

    def producer_connections(self, connection: Connection, command: RemotingCommand) -> Answer:
        """The members of a group of producers."""
        name = decode_header(GetProducerConnectionListRequestHeader, command.ext_fields).producer_group
        members = self._state.producers.channels(name)
        if not members:
            return command.response(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        return command.response(body=encode_body({"connectionSet": _connections(members.values())}))

    def groups_of_topic(self, connection: Connection, command: RemotingCommand) -> Answer:
        """The groups that subscribe to a topic, or have offsets in it."""
        topic = decode_header(QueryTopicConsumeByWhoRequestHeader, command.ext_fields).topic
        groups = self._state.consumers.query_topic_consume_by_who(topic)
        groups |= self._state.offsets.which_group_by_topic(topic)
        return command.response(body=encode_body({"groupList": sorted(groups)}))

    # -- growth

    def broker_stats(self, connection: Connection, command: RemotingCommand) -> Answer:
        """How a counter has grown in the last minute, hour and day."""
        header = decode_header(ViewBrokerStatsDataRequestHeader, command.ext_fields)
        found = self._state.stats.stats_item(header.stats_name, header.stats_key)
        if found is None:
            remark = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            return command.response(ResponseCode.SYSTEM_ERROR, remark)
        names = ("statsMinute", "statsHour", "statsDay")
        return command.response(body=encode_body({name: one._asdict() for name, one in zip(names, found, strict=True)}))

    # -- offsets

    async def topic_stats(self, connection: Connection, command: RemotingCommand) -> Answer:
        """First and next offset of each queue, and when its last message was stored."""
        name = decode_header(GetTopicStatsInfoRequestHeader, command.ext_fields).topic
        topic = self._state.topics.select_topic_config(name)
        if topic is None:
            return command.response(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        table = await self._state.reads.run_for(connection, self._topic_stats, topic)
        tps = self._state.stats.tps_topic_put_nums(name)
        return command.response(body=encode_queue_tables({"offsetTable": table, "topicPutTps": tps}))

    def _topic_stats(self, topic: TopicConfig) -> Mapping[QueueKey, Any]:
        store, name = self._state.store, topic.topic_name
        table = {}
        for queue_id in range(max(topic.write_queue_nums, topic.read_queue_nums)):
            end = store.max_offset(name, queue_id)
            table[self._key(name, queue_id)] = {
                "lastUpdateTimestamp": self._store_time(name, queue_id, end - 1) if end > 0 else 0,
                "maxOffset": end,
                "minOffset": max(0, store.min_offset(name, queue_id)),
            }
        return table

    async def consume_stats(self, connection: Connection, command: RemotingCommand) -> Answer:
        """How far a group is in each queue of its topics, and when the last message that it consumed was stored."""
        header = decode_header(GetConsumeStatsRequestHeader, command.ext_fields)
        offsets, group = self._state.offsets, header.consumer_group
        queues, tps = [], 0.0
        for name in self._topics_of(header):
            tps += self._state.stats.tps_group_get_nums(group, name)
            topic = self._state.topics.select_topic_config(name)
            for queue_id in range(0 if topic is None else topic.read_queue_nums):
                committed = max(0, offsets.query_offset(group, name, queue_id))
                pulled = max(committed, offsets.query_pull_offset(group, name, queue_id))
                queues.append((name, queue_id, committed, pulled))
        table = await self._state.reads.run_for(connection, self._consume_stats, queues)
        return command.response(body=encode_queue_tables({"consumeTps": tps, "offsetTable": table}))

    def _topics_of(self, header: GetConsumeStatsRequestHeader) -> list[str]:
        """The topics of a list, as they are; else the one that is asked for, or those in which the group has offsets.

        Of the latter a group with members has those that they subscribe to (`getTopicsForCollectingConsumeStats`).
        """
        group = header.consumer_group
        names = [name for name in (header.topic_list or "").split(";") if name]
        if names:
            return names
        topic = (header.topic or "").strip()
        names = [topic] if topic else sorted(self._state.offsets.which_topic_by_consumer(group))
        info = self._state.consumers.consumer_group_info(group)
        if info is None or not info.subscription_table:
            return names
        return [name for name in names if name in info.subscription_table]

    def _consume_stats(self, queues: Iterable[tuple[str, int, int, int]]) -> Mapping[QueueKey, Any]:
        return {
            self._key(name, queue_id): {
                "brokerOffset": max(0, self._state.store.max_offset(name, queue_id)),
                "consumerOffset": committed,
                "lastTimestamp": max(0, self._store_time(name, queue_id, committed - 1)) if committed else 0,
                "pullOffset": pulled,
            }
            for name, queue_id, committed, pulled in queues
        }

    def _store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """The store time (ms) of a message; -1 where there is none (`getMessageStoreTimeStamp`)."""
        found = self._state.store.get_raw(topic, queue_id, offset, 1, None)
        if found is None or not found.records:
            return -1
        head, _ = unpack_record(found.records, 0)
        return head[10] if head[5] == offset else -1

    def _key(self, topic: str, queue_id: int) -> QueueKey:
        return QueueKey(topic, self._state.config.broker_name, queue_id)


def _connections(infos: Iterable[ClientChannelInfo[Connection]]) -> list[dict[str, Any]]:
    return [
        {
            "clientAddr": info.channel.remote, "clientId": info.client_id, "language": info.language,
            "version": info.version,
        }
        for info in infos
    ]  # fmt: skip


def _subscription(one: SubscriptionData) -> dict[str, Any]:
    """A subscription as Java writes it (`SubscriptionData`)."""
    return {
        "classFilterMode": one.class_filter_mode, "codeSet": sorted(one.codes), "expressionType": one.expression_type,
        "subString": one.sub_string, "subVersion": one.sub_version, "tagsSet": sorted(one.tags), "topic": one.topic,
    }  # fmt: skip
