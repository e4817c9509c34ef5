"""Requests that make, change and show topics and groups (of `AdminBrokerProcessor`)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reput.broker.clock import BrokerClock
from reput.broker.disk_work import DiskPools
from reput.broker.large_bodies import decode_beside, encode_beside
from reput.broker.registration import Registration
from reput.broker.remarks import SEE_FAQ
from reput.broker.state_files import StateFiles
from reput.errors import ConfigError, RemotingCommandError
from reput.events import Event
from reput.formats.java_bean import encode_bean
from reput.formats.metadata import BEGIN_OFFSET_TABLE, SubscriptionGroupConfig, TopicConfig, TopicFilterType, Topics
from reput.remoting.body import decode_body, encode_body
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import decode_header
from reput.remoting.topic_headers import (
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    GetTopicConfigRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from reput.service.attributes import parse_attributes
from reput.service.broker_stats_manager import BrokerStatsManager
from reput.service.consumer_offset_manager import ConsumerOffsetManager
from reput.service.pop.topics import pop_retry_topic_of
from reput.service.subscription_group_manager import INDEX_PERM_READ, SubscriptionGroupManager, check_policies
from reput.service.topic_config_manager import TopicConfigManager
from reput.store.message_store import MessageStore
from reput.transport.channel import Channel
from reput.transport.requests import Answer, Handler

logger = logging.getLogger("reput.broker")

#: Topics or groups of one request: an operator sends further ones in the next.
_MOST = 1000


@dataclass(frozen=True, slots=True)
class CreateTopicListRequestBody:
    """Body of UPDATE_AND_CREATE_TOPIC_LIST (`CreateTopicListRequestBody`)."""

    topic_config_list: tuple[TopicConfig, ...] = ()
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupList:
    """Body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (`SubscriptionGroupList`)."""

    group_config_list: tuple[SubscriptionGroupConfig, ...] = ()
    others: Mapping[str, Any] = field(default_factory=dict)


class TopicProcessor:
    """Takes requests about topics and groups; changes are on the disk before they are answered."""

    def __init__(
        self,
        clock: BrokerClock,
        pools: DiskPools,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        config_files: StateFiles,
        registration: Registration,
        stats: BrokerStatsManager,
    ) -> None:
        self._clock, self._pools, self._store, self._topics = clock, pools, store, topics
        self._groups, self._offsets = groups, offsets
        self._config_files, self._registration = config_files, registration
        self._stats = stats

    def handlers(self) -> dict[int, Handler]:
        """The requests that it takes."""
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.update_topic,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self.update_topics,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete_topic,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.system_topics,
            RequestCode.GET_TOPIC_CONFIG: self.topic_config,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.all_topics,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update_group,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.update_groups,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete_group,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.group_config,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: self.forbid_group,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.all_groups,
        }

    async def update_topic(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Make a topic or change it."""
        begin = time.perf_counter()
        answer = await self._update_topic(connection, command)
        kind = (
            answer.code == ResponseCode.SUCCESS,
            self._topics.is_system_topic((command.ext_fields or {}).get("topic", "")),
        )
        self._stats.topic_creation_ms.add(kind, (time.perf_counter() - begin) * 1000)
        return answer

    async def _update_topic(self, connection: Channel, command: RemotingCommand) -> RemotingCommand:
        header = decode_header(CreateTopicRequestHeader, {"topic": "", "defaultTopic": ""} | (command.ext_fields or {}))
        remark = self._topics.validate_update(header.topic)
        if remark is not None:
            return command.response(ResponseCode.INVALID_PARAMETER, remark)
        try:
            config = TopicConfig(
                header.topic, header.read_queue_nums, header.write_queue_nums, header.perm,
                TopicFilterType(header.topic_filter_type), header.topic_sys_flag or 0, header.order,
                parse_attributes(header.attributes or ""),
            )  # fmt: skip
        except (ConfigError, ValueError) as error:
            return command.response(ResponseCode.SYSTEM_ERROR, str(error))
        return await self._update(connection, command, [config])

    async def update_topics(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Make topics or change them, all or none."""
        configs = (await decode_beside(self._pools, connection, _decode_topics, command)).topic_config_list
        for config in configs:
            remark = self._topics.validate_update(config.topic_name)
            if remark is not None:
                return command.response(ResponseCode.INVALID_PARAMETER, remark)
        return await self._update(connection, command, configs)

    async def _update(
        self, connection: Channel, command: RemotingCommand, configs: Sequence[TopicConfig]
    ) -> RemotingCommand:
        try:
            changed = await self._pools.writes.run_for(connection, self._topics.update, configs)
        except ConfigError as error:
            return command.response(ResponseCode.SYSTEM_ERROR, str(error))
        for one in configs:
            logger.info(
                Event(
                    "topic made or changed", topic=one.topic_name, queues=one.write_queue_nums, client=connection.remote
                )
            )
        if changed:
            await self._registration.register_topics([config.topic_name for config in changed])
        return command.response()

    async def delete_topic(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Delete a topic, and the topics with its messages that were popped and not acked."""
        header = decode_header(DeleteTopicRequestHeader, {"topic": ""} | (command.ext_fields or {}))
        remark = self._topics.validate_delete(header.topic)
        if remark is not None:
            return command.response(ResponseCode.INVALID_PARAMETER, remark)
        groups = self._offsets.which_group_by_topic(header.topic)
        of_pop = {pop_retry_topic_of(header.topic, group, v2=v2) for group in groups for v2 in (True, False)}
        there = sorted(name for name in of_pop if self._topics.select_topic_config(name) is not None)
        await self._pools.writes.run_for(connection, self._topics.delete, [header.topic, *there])
        for name in (header.topic, *there):
            logger.info(Event("topic deleted", topic=name, client=connection.remote))
            self._offsets.clean_offset_by_topic(name, self._clock.now_ms())
        await self._registration.register()
        return command.response()

    def system_topics(self, connection: Channel, command: RemotingCommand) -> Answer:
        """The topics that the broker has from its start, and those that RocketMQ keeps for itself."""
        return command.response(body=encode_body({"topicList": sorted(self._topics.system_topics)}))

    def topic_config(self, connection: Channel, command: RemotingCommand) -> Answer:
        """The configuration of a topic."""
        header = decode_header(GetTopicConfigRequestHeader, command.ext_fields)
        config = self._topics.select_topic_config(header.topic)
        if config is None:
            return command.response(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {header.topic}")
        return command.response(body=encode_body(config))

    async def all_topics(self, connection: Channel, command: RemotingCommand) -> Answer:
        """All topics, with the version of their changes."""
        body = await encode_beside(self._pools, connection, _encode_topics, self._store.topic_metadata)
        return command.response(ext_fields={}, body=body)

    async def update_group(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Make a group or change it."""
        return await self._update_groups(connection, command, _decode_group)

    async def update_groups(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Make groups or change them, all or none."""
        return await self._update_groups(connection, command, _decode_groups)

    async def _update_groups(
        self,
        connection: Channel,
        command: RemotingCommand,
        decode: Callable[[bytes], Sequence[SubscriptionGroupConfig]],
    ) -> Answer:
        try:
            configs = await decode_beside(self._pools, connection, decode, command)
            self._groups.update_subscription_group_config(configs, self._clock.now_ms())
        except ConfigError as error:
            return command.response(ResponseCode.INVALID_PARAMETER, str(error))
        await self._config_files.persist(self._groups)
        for config in configs:
            logger.info(Event("group made or changed", group=config.group_name, client=connection.remote))
        return command.response()

    async def delete_group(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Delete a group, and its offsets if that is asked for."""
        header = decode_header(DeleteSubscriptionGroupRequestHeader, command.ext_fields)
        now_ms = self._clock.now_ms()
        self._groups.delete_subscription_group_config(header.group_name, now_ms)
        fields = command.ext_fields or {}
        if header.clean_offset or fields.get("removeOffset") == "true":  # 4.9's name
            self._offsets.remove_offset(header.group_name, now_ms)
        await self._config_files.persist(self._groups)
        logger.info(Event("group deleted", group=header.group_name, client=connection.remote))
        return command.response()

    async def forbid_group(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Let a group read a topic, or not, if that is asked for; whether it may."""
        header = decode_header(UpdateGroupForbiddenRequestHeader, command.ext_fields)
        groups, (group, topic) = self._groups, (header.group, header.topic)
        if header.readable is not None:
            groups.update_forbidden(group, topic, INDEX_PERM_READ, not header.readable, self._clock.now_ms())
            await self._config_files.persist(groups)
            client, readable = connection.remote, header.readable
            logger.info(Event("group forbidden", group=group, topic=topic, readable=readable, client=client))
        is_readable = not groups.forbidden(group, topic) & 1 << INDEX_PERM_READ
        return command.response(body=encode_body({"group": group, "readable": is_readable, "topic": topic}))

    def group_config(self, connection: Channel, command: RemotingCommand) -> Answer:
        """The configuration of a group."""
        header = decode_header(GetSubscriptionGroupConfigRequestHeader, command.ext_fields)
        config = self._groups.subscription_group_table.get(header.group)
        if config is None:
            remark = f"No group in this broker. group: {header.group}{SEE_FAQ}"
            return command.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        return command.response(body=encode_body(config))

    async def all_groups(self, connection: Channel, command: RemotingCommand) -> Answer:
        """All groups, with the version of their changes."""
        return command.response(body=await encode_beside(self._pools, connection, encode_body, self._groups.content()))


def _encode_topics(topics: Topics) -> bytes:
    body: dict[str, Any] = {
        "dataVersion": encode_bean(topics.data_version),
        "mappingDataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 0},
        "topicConfigTable": encode_bean(topics.topic_config_table),
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": {},
    }
    if topics.begin_offset_table:  # for slaves
        body[BEGIN_OFFSET_TABLE] = dict(topics.begin_offset_table)
    return encode_body(body)


def _decode_topics(body: bytes) -> CreateTopicListRequestBody:
    found = decode_body(CreateTopicListRequestBody, body)
    _check_count(len(found.topic_config_list))
    return found


def _decode_group(body: bytes) -> Sequence[SubscriptionGroupConfig]:
    found = [decode_body(SubscriptionGroupConfig, body)]
    check_policies(found)
    return found


def _decode_groups(body: bytes) -> Sequence[SubscriptionGroupConfig]:
    found = decode_body(GroupList, body).group_config_list
    _check_count(len(found))
    check_policies(found)
    return found


def _check_count(count: int) -> None:
    if count > _MOST:
        raise RemotingCommandError(ResponseCode.SYSTEM_ERROR, f"{count} of one request: {_MOST} at most")
