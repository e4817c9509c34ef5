"""Requests of operators that reach consumers through the broker, and resets of offsets (of `AdminBrokerProcessor`)."""

from __future__ import annotations

from collections.abc import Iterable

from reput.broker.access.found_names import FoundNames
from reput.broker.broker_to_client import BrokerToClient
from reput.broker.clock import BrokerClock
from reput.broker.disk_work import DiskPools
from reput.broker.pulls.message_by_offset import message_by_offset
from reput.broker.view import BrokerView
from reput.errors import MessageIllegalError, RemotingError, RemotingTimeoutError
from reput.formats.message_id import decode_message_id
from reput.remoting.client_call_headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from reput.remoting.codes import LanguageCode, RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import decode_header
from reput.remoting.queue_tables import QueueKey, encode_queue_tables
from reput.service.consumer_manager import ConsumerManager
from reput.service.consumer_offset_manager import ConsumerOffsetManager
from reput.service.subscription_group_manager import SubscriptionGroupManager
from reput.service.topic_config_manager import TopicConfigManager
from reput.store.message_store import MessageStore
from reput.transport.channel import Channel
from reput.transport.requests import Answer, Handler

#: The first client that answers the requests which are handed on to it (V3_1_8_SNAPSHOT).
_VERSION_CALLS = 62


class ClientCallProcessor:
    """Takes resets of offsets, and asks consumers what they do, how far they are, or to consume a message.

    Args:
        view, clock, pools, store, topics, groups, offsets, consumers, found_names: The broker's.
        clients: Asks them.
    """

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
        found_names: FoundNames,
        clients: BrokerToClient,
    ) -> None:
        self._view, self._clock, self._pools, self._store = view, clock, pools, store
        self._topics, self._groups, self._offsets, self._consumers = topics, groups, offsets, consumers
        self._found_names = found_names
        self._clients = clients

    def handlers(self) -> dict[int, Handler]:
        """The requests that it takes."""
        return {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset_offset,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.consumer_status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
        }

    # -- offsets

    async def reset_offset(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Reset a group's offsets in a topic: here, and pulls tell; or, as brokers before 5.0, by the clients."""
        header = decode_header(ResetOffsetRequestHeader, command.ext_fields)
        if self._view.config.use_server_side_reset_offset:
            return await self._reset_here(connection, command, header)
        return await self._reset_at_clients(connection, command, header)

    async def _reset_here(
        self, connection: Channel, command: RemotingCommand, header: ResetOffsetRequestHeader
    ) -> Answer:
        topic, group, queue_id = header.topic, header.group, header.queue_id
        config = self._topics.select_topic_config(topic)
        if config is None:
            return command.response(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} does not exist")
        if group not in self._groups.subscription_group_table:
            return command.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist")
        if queue_id >= 0 and header.offset not in (None, -1):
            low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
            if not low <= header.offset <= high + 1:
                remark = f"Target offset {header.offset} not in consume queue range [{low}-{high}]"
                return command.response(ResponseCode.SYSTEM_ERROR, remark)
            offsets = {queue_id: header.offset}
        else:
            queues = [queue_id] if queue_id >= 0 else range(config.read_queue_nums)
            offsets = await self._offsets_by_time(connection, topic, queues, header.timestamp)
        if not offsets:
            return command.response(ResponseCode.SYSTEM_ERROR, "No queues to reset.")
        for one, offset in offsets.items():
            self._offsets.assign_reset_offset(topic, group, one, offset, self._clock.now_ms())
        table = {"offsetTable": self._by_queue(topic, offsets)}
        return command.response(body=await self._pools.reads.run_for(connection, encode_queue_tables, table))

    async def _reset_at_clients(
        self, connection: Channel, command: RemotingCommand, header: ResetOffsetRequestHeader
    ) -> Answer:
        topic, group = header.topic, header.group
        config = self._topics.select_topic_config(topic)
        if config is None:
            remark = f"[reset-offset] reset offset failed, no topic in this broker. topic={topic}"
            return command.response(ResponseCode.TOPIC_NOT_EXIST, remark)
        queues = range(config.write_queue_nums)
        consumed = {queue_id: self._offsets.query_offset(group, topic, queue_id) for queue_id in queues}
        if -1 in consumed.values():
            return command.response(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{group}> not exist")
        timestamp = header.timestamp if header.timestamp == -1 else max(header.timestamp, 0)
        offsets = await self._offsets_by_time(connection, topic, queues, timestamp)
        if not header.is_force:
            offsets = {queue_id: min(offset, consumed[queue_id]) for queue_id, offset in offsets.items()}
        table = self._by_queue(topic, offsets)
        is_c = command.language is LanguageCode.CPP
        self._clients.reset_offset(topic, group, header.timestamp, table, is_c=is_c)
        body = await self._pools.reads.run_for(connection, encode_queue_tables, {"offsetTable": table})
        return command.response(body=body)

    async def _offsets_by_time(
        self, connection: Channel, topic: str, queues: Iterable[int], timestamp: int
    ) -> dict[int, int]:
        """The offset of each queue for a store time in ms; below 0: of the next message."""
        store = self._store

        def offset(queue_id: int) -> int:
            if timestamp < 0:
                return store.max_offset(topic, queue_id)
            return max(store.offset_by_time(topic, queue_id, timestamp), 0)

        return await self._pools.reads.run_for(connection, lambda: {queue_id: offset(queue_id) for queue_id in queues})

    def _by_queue(self, topic: str, offsets: dict[int, int]) -> dict[QueueKey, int]:
        name = self._view.config.broker_name
        return {QueueKey(topic, name, queue_id): offset for queue_id, offset in offsets.items()}

    async def consumer_status(self, connection: Channel, command: RemotingCommand) -> Answer:
        """The offsets of a group's clients, as these say."""
        header = decode_header(GetConsumerStatusRequestHeader, command.ext_fields)
        table = await self._clients.consumer_status(header.topic, header.group, header.client_addr or "")
        return command.response(body=encode_queue_tables({"consumerTable": table, "messageQueueTable": {}}))

    # -- requests that are handed on

    async def running_info(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Answer with the running info of a consumer, which the consumer itself gives."""
        header = decode_header(GetConsumerRunningInfoRequestHeader, command.ext_fields)
        return await self._call_consumer(command, header.consumer_group, header.client_id)

    async def consume_directly(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Let a consumer consume one message, and say what became of it."""
        header = decode_header(ConsumeMessageDirectlyResultRequestHeader, command.ext_fields)
        given = command.ext_fields or {}
        fields = given | {"brokerName": self._view.config.broker_name}
        topic = self._topics.select_topic_config(header.topic or "")
        if topic is not None:
            fields["topicSysFlag"] = str(topic.topic_sys_flag)
        group = self._groups.subscription_group_table.get(header.consumer_group)
        if group is not None:
            fields["groupSysFlag"] = str(group.group_sys_flag)
        try:
            _, offset = decode_message_id(header.msg_id or "")
        except MessageIllegalError as error:
            return command.response(ResponseCode.SYSTEM_ERROR, str(error))
        message = await self._pools.reads.run_for(connection, message_by_offset, self._store, offset)
        if message is None:
            return command.response(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        self._found_names.require(connection, command, topic=message.topic)
        return await self._call_consumer(command, header.consumer_group, header.client_id, fields, message.raw)

    async def _call_consumer(
        self,
        command: RemotingCommand,
        group: str,
        client_id: str | None,
        fields: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> RemotingCommand:
        """Hand a request on to a consumer, and its answer back."""
        info = None if client_id is None else self._consumers.find_channel(group, client_id)
        if info is None:
            remark = f"The Consumer <{group}> <{'null' if client_id is None else client_id}> not online"
            return command.response(ResponseCode.SYSTEM_ERROR, remark)
        if info.version < _VERSION_CALLS:
            remark = (
                f"The Consumer <{client_id}> Version <{info.version}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT"
            )
            return command.response(ResponseCode.SYSTEM_ERROR, remark)
        asked = RemotingCommand(command.code, ext_fields=fields or command.ext_fields, body=body or command.body)
        try:
            answer = await self._clients.call(info.channel, asked)
        except RemotingTimeoutError as error:
            remark = f"consumer <{group}> <{client_id}> Timeout: {error}"
            return command.response(ResponseCode.CONSUME_MSG_TIMEOUT, remark)
        except RemotingError as error:
            remark = f"invoke consumer <{group}> <{client_id}> Exception: {error}"
            return command.response(ResponseCode.SYSTEM_ERROR, remark)
        return command.response(answer.code, answer.remark, answer.ext_fields, answer.body)
