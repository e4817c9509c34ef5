"""Requests of consumers about their groups: members and offsets (`ConsumerManageProcessor`)."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from reput.broker.clock import BrokerClock
from reput.broker.disk_work import DiskPools
from reput.broker.pulls.first_offset import asked_of_disk, begins_in_memory, first_offset
from reput.errors import MissingFieldError
from reput.remoting.body import encode_body
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.consumer_headers import (
    GetConsumerListByGroupRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from reput.remoting.header import decode_header, encode_header
from reput.service.consumer_manager import ConsumerManager
from reput.service.consumer_offset_manager import ConsumerOffsetManager
from reput.service.subscription_group_manager import SubscriptionGroupManager
from reput.service.topic_config_manager import TopicConfigManager
from reput.store.message_store import MessageStore
from reput.transport.channel import Channel
from reput.transport.requests import Answer, Handler

#: Fields of UPDATE_CONSUMER_OFFSET that RocketMQ looks for itself, as its remark names them.
_NULL_OFFSET_FIELDS = {"queueId": "QueueId", "commitOffset": "Offset"}


class ConsumerProcessor:
    """Takes questions for the members of a group, and offsets of groups."""

    def __init__(
        self,
        clock: BrokerClock,
        pools: DiskPools,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        consumers: ConsumerManager[Channel],
    ) -> None:
        self._clock, self._pools, self._store = clock, pools, store
        self._topics, self._groups, self._offsets, self._consumers = topics, groups, offsets, consumers

    def handlers(self) -> dict[int, Handler]:
        """The requests that it takes."""
        return {
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.consumer_list,
            RequestCode.QUERY_CONSUMER_OFFSET: self.query_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update_offset,
        }

    def consumer_list(self, connection: Channel, command: RemotingCommand) -> Answer:
        """The client ids of a group."""
        header = decode_header(GetConsumerListByGroupRequestHeader, command.ext_fields)
        ids = self._consumers.client_ids(header.consumer_group)
        if not ids:
            remark = f"no consumer for this group, {header.consumer_group}"
            return command.response(ResponseCode.SYSTEM_ERROR, remark, {})
        return command.response(ext_fields={}, body=encode_body({"consumerIdList": ids}))

    # -- how far they are

    def query_offset(self, connection: Channel, command: RemotingCommand) -> Answer | Coroutine[Any, Any, Answer]:
        """The offset of a group in a queue; a new group's is the first one, if that message is still in memory."""
        header = decode_header(QueryConsumerOffsetRequestHeader, {"consumerGroup": "null"} | (command.ext_fields or {}))
        offset = self._offsets.query_offset(header.consumer_group, header.topic, header.queue_id)
        if offset < 0:
            if header.set_zero_if_not_found is False:
                remark = "Not found, do not set to zero, maybe this group boot first"
                return command.response(ResponseCode.QUERY_NOT_FOUND, remark, {})
            in_memory = begins_in_memory(self._store, header.topic, header.queue_id)
            if in_memory is None:
                return self._first_offset_of_disk(connection, command, header)
            return self._first_offset(command, header, in_memory=in_memory)
        return command.response(ext_fields=encode_header(QueryConsumerOffsetResponseHeader(offset)))

    async def _first_offset_of_disk(
        self, connection: Channel, command: RemotingCommand, header: QueryConsumerOffsetRequestHeader
    ) -> Answer:
        found = await self._pools.reads.run_for(connection, asked_of_disk, self._store, header.topic, header.queue_id)
        return self._first_offset(command, header, in_memory=found)

    def _first_offset(
        self, command: RemotingCommand, header: QueryConsumerOffsetRequestHeader, *, in_memory: bool
    ) -> RemotingCommand:
        """The answer to a new group."""
        if in_memory:
            offset = first_offset(self._store, header.topic, header.queue_id)
            return command.response(ext_fields=encode_header(QueryConsumerOffsetResponseHeader(offset)))
        remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
        return command.response(ResponseCode.QUERY_NOT_FOUND, remark, {})

    def update_offset(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Keep the offset of a group in a queue."""
        fields = {"consumerGroup": "null"} | (command.ext_fields or {})
        group, topic = fields["consumerGroup"], fields.get("topic")
        if topic is not None:  # else RocketMQ fails before it looks for the group
            if self._groups.subscription_group_table.get(group) is None:
                return command.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!", {})
            if self._topics.select_topic_config(topic) is None:
                return command.response(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!", {})
        try:
            header = decode_header(UpdateConsumerOffsetRequestHeader, fields)
        except MissingFieldError as error:
            name = _NULL_OFFSET_FIELDS.get(error.field)
            if name is None:
                raise
            return command.response(ResponseCode.INVALID_PARAMETER, f"{name} is null, topic is {topic}", {})
        topic = header.topic
        if self._offsets.has_offset_reset(topic, group, header.queue_id):
            return command.response(ResponseCode.SUCCESS, "Offset has been previously reset", {})
        self._offsets.commit_offset(group, topic, header.queue_id, header.commit_offset, self._clock.now_ms())
        return command.response(ext_fields={})
