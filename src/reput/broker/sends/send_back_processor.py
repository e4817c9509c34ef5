"""Messages that a consumer sends back (`AbstractSendMessageProcessor.consumerSendMsgBack`)."""

from __future__ import annotations

import random

from reput.broker.access.found_names import FoundNames
from reput.broker.appends.dead_letters import DeadLetters
from reput.broker.appends.inner_appends import Appends
from reput.broker.appends.inner_message import MessageExtBrokerInner
from reput.broker.clock import BrokerClock
from reput.broker.disk_work import DiskPools
from reput.broker.pulls.message_by_offset import message_by_offset
from reput.broker.remarks import SEE_FAQ
from reput.broker.topic_creation import TopicCreation
from reput.broker.view import BrokerView
from reput.errors import MessageIllegalError, ReputError
from reput.formats.message_batch import INNER_BATCH
from reput.formats.metadata import SubscriptionGroupConfig, TopicConfig
from reput.formats.properties import DELAY, ORIGIN_MESSAGE_ID, RETRY_TOPIC, WAIT
from reput.remoting.codes import V3_4_9, PermName, RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import decode_header
from reput.remoting.send_headers import ConsumerSendMsgBackRequestHeader
from reput.remoting.topic_validator import dlq_topic_of, retry_topic_of
from reput.service.broker_stats_manager import BrokerStatsManager
from reput.service.subscription_group_manager import SubscriptionGroupManager
from reput.service.topic_config_manager import TopicConfigManager
from reput.store.message_store import MessageStore
from reput.transport.channel import Channel
from reput.transport.requests import Answer, Handler

#: The delay level of a first retry, if the consumer leaves it to the broker; each further one has the next level.
_FIRST_LEVEL = 3


class SendBackProcessor:
    """Takes CONSUMER_SEND_MSG_BACK: the message comes again, later, or goes to the dead letters of its group."""

    def __init__(
        self,
        view: BrokerView,
        clock: BrokerClock,
        pools: DiskPools,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        creation: TopicCreation,
        appends: Appends,
        dead_letters: DeadLetters,
        stats: BrokerStatsManager,
        found_names: FoundNames,
    ) -> None:
        self._view, self._clock, self._pools, self._store = view, clock, pools, store
        self._topics, self._groups, self._creation, self._appends = topics, groups, creation, appends
        self._dead_letters, self._stats, self._found_names = dead_letters, stats, found_names

    def handlers(self) -> dict[int, Handler]:
        """The requests that it takes."""
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    async def send_back(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Take one request."""
        header = decode_header(ConsumerSendMsgBackRequestHeader, command.ext_fields)
        name = header.group
        group = self._groups.find_subscription_group_config(name, self._clock.now_ms())
        if group is None:
            remark = f"subscription group not exist, {name} {SEE_FAQ}"
            return command.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not self._view.config.broker_permission & PermName.WRITE:
            remark = f"the broker[{self._view.ip}] sending message is forbidden"
            return command.response(ResponseCode.NO_PERMISSION, remark)
        if group.retry_queue_nums <= 0:
            return command.response(ResponseCode.SUCCESS)
        topic = await self._topic(
            retry_topic_of(name),
            self._topics.create_retry_topic(name, group.retry_queue_nums, unit_mode=bool(header.unit_mode)),
        )
        if not topic.perm & PermName.WRITE:
            remark = f"the topic[{topic.topic_name}] sending message is forbidden"
            return command.response(ResponseCode.NO_PERMISSION, remark)
        found = await self._pools.reads.run_for(connection, message_by_offset, self._store, header.offset)
        if found is None:
            remark = f"look message by offset failed, {header.offset}"
            return command.response(ResponseCode.SYSTEM_ERROR, remark)
        self._found_names.require(connection, command, originTopic=found.topic)
        if found.sys_flag & INNER_BATCH:  # the client knows which of its messages it is, and puts that one itself
            remark = f"the message at {header.offset} is an inner batch; one of its messages cannot be sent back"
            return command.response(ResponseCode.SYSTEM_ERROR, remark)
        message = MessageExtBrokerInner.of_record(found.raw)
        message.properties.setdefault(RETRY_TOPIC, message.topic)
        message.properties[WAIT] = "false"
        is_dead = header.delay_level < 0 or message.reconsume_times >= _most_times(command, header, group)
        if is_dead:
            topic = await self._topic(dlq_topic_of(name), self._topics.create_dlq_topic(name))
            message.topic, message.queue_id, level = topic.topic_name, 0, 0
        else:
            message.topic, message.queue_id = topic.topic_name, random.randrange(group.retry_queue_nums)
            level = header.delay_level or _FIRST_LEVEL + message.reconsume_times
            level = min(level, len(self._store.config.delay_levels_ms))
        message.properties[DELAY] = str(level)
        message.count_attempt()
        message.prepared_transaction_offset = 0  # it is of no transaction any more
        if not message.properties.get(ORIGIN_MESSAGE_ID, "").strip():
            message.properties[ORIGIN_MESSAGE_ID] = found.message_id
        try:
            await self._put(message, found.raw, name)
        except ReputError as error:
            return command.response(ResponseCode.SYSTEM_ERROR, str(error))
        self._stats.inc_send_back(name, message.properties[RETRY_TOPIC])
        if is_dead:
            self._stats.inc_dead_letter(name, message.properties[RETRY_TOPIC])
        return command.response(ResponseCode.SUCCESS)

    async def _put(self, message: MessageExtBrokerInner, record: bytes, group: str) -> None:
        """Put a message again; one that has no room for what is added goes to dead letters.

        Raises ReputError for all other refusals: the client has the message, and may put it itself.
        """
        try:
            await self._appends.put(message)
        except MessageIllegalError as error:
            await self._dead_letters.give_up(record, dlq_topic_of(group), error)

    async def _topic(self, name: str, missing: TopicConfig | None) -> TopicConfig:
        topic = self._topics.select_topic_config(name)
        if missing is None and topic is not None:
            return topic
        assert missing is not None
        return await self._creation.create(missing)


def _most_times(
    command: RemotingCommand, header: ConsumerSendMsgBackRequestHeader, group: SubscriptionGroupConfig
) -> int:
    """Limit of a group's attempts at a message: the request's, unless its client is too old; else the group's."""
    asked = header.max_reconsume_times if command.version >= V3_4_9 else None
    return group.retry_max_times if asked is None else asked
