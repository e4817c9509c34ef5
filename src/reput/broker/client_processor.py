"""Requests of clients about themselves (`ClientManageProcessor`)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from reput.broker.clock import BrokerClock
from reput.broker.disk_work import DiskPools
from reput.broker.large_bodies import decode_beside, in_pieces, is_large
from reput.broker.pulls.message_filters import compile_beside, unsupported
from reput.broker.slave.following import Following
from reput.broker.state_files import StateFiles
from reput.broker.topic_creation import TopicCreation
from reput.broker.view import BrokerView
from reput.errors import RemotingCommandError
from reput.filter.compiled_expressions import compile_expression, take_short
from reput.filter.expression_error import ExpressionError
from reput.remoting.body import decode_json
from reput.remoting.client_bodies import (
    ConsumerData,
    HeartbeatData,
    decode_heartbeat,
    decode_subscription,
)
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.consumer_headers import (
    NotifyConsumerIdsChangedRequestHeader,
    UnregisterClientRequestHeader,
)
from reput.remoting.header import decode_header, encode_header
from reput.remoting.subscription_data import SQL92, SubscriptionData, build_subscription_data, is_tag_type
from reput.service.consumer_filter_manager import ConsumerFilterManager
from reput.service.consumer_manager import ConsumerGroupChange, ConsumerManager
from reput.service.producer_manager import ProducerManager
from reput.service.subscription_group_manager import SubscriptionGroupManager
from reput.service.topic_config_manager import TopicConfigManager
from reput.transport.channel import Channel
from reput.transport.requests import Answer, Handler

_HEARTBEAT_V2 = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}

#: Groups of a connection: at its end the loop forgets them all at once.
_MOST_GROUPS = 1000

#: A heartbeat, and by consumer what it wants.
_Heartbeat = tuple[HeartbeatData, list[list[SubscriptionData]]]


class ClientProcessor:
    """Takes heartbeats and farewells, and looks at expressions."""

    def __init__(
        self,
        view: BrokerView,
        clock: BrokerClock,
        pools: DiskPools,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        filters: ConsumerFilterManager,
        consumers: ConsumerManager[Channel],
        producers: ProducerManager[Channel],
        config_files: StateFiles,
        creation: TopicCreation,
        slave: Following | None,
    ) -> None:
        self._view, self._clock, self._pools = view, clock, pools
        self._topics, self._groups, self._filters = topics, groups, filters
        self._consumers, self._producers = consumers, producers
        self._config_files, self._creation = config_files, creation
        self._slave = slave
        #: What a connection tells beside the loop is taken in its order.
        self._turns: WeakKeyDictionary[Channel, asyncio.Lock] = WeakKeyDictionary()

    def handlers(self) -> dict[int, Handler]:
        """The requests that it takes."""
        return {
            RequestCode.HEART_BEAT: self.heart_beat,
            RequestCode.UNREGISTER_CLIENT: self.unregister_client,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_client_config,
        }

    # -- who is there

    def heart_beat(self, connection: Channel, command: RemotingCommand) -> Answer | Coroutine[Any, Any, Answer]:
        """Take a heartbeat: the client's groups are known afterwards; it is answered when their retry topics are."""
        if is_large(command):
            return self._large_heartbeat(connection, command)
        heartbeat = _decode_heartbeat(command.body)
        texts = self._expressions(heartbeat)
        if not take_short(texts) or self._turn(connection).locked():
            return self._compile_first(connection, command, heartbeat, texts)
        return self._take_heartbeat(connection, command, heartbeat)

    def _turn(self, connection: Channel) -> asyncio.Lock:
        return self._turns.setdefault(connection, asyncio.Lock())

    async def _large_heartbeat(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Take a heartbeat of many groups, some in a turn of the loop."""
        async with self._turn(connection):
            return await self._take_in_pieces(connection, command)

    async def _take_in_pieces(self, connection: Channel, command: RemotingCommand) -> Answer:
        heartbeat = await decode_beside(self._pools, connection, _decode_heartbeat, command)
        await compile_beside(self._view, self._pools, connection, self._expressions(heartbeat))
        data, subscriptions = heartbeat
        self._check_groups(connection, data)
        groups = [(one, None) for one in zip(data.consumers, subscriptions, strict=True)]
        async for piece in in_pieces([*groups, *((None, one) for one in data.producer_groups)]):
            consumers = [consumer for consumer, _ in piece if consumer is not None]
            part = replace(
                data,
                consumers=tuple(consumer for consumer, _ in consumers),
                producer_groups=tuple(group for _, group in piece if group is not None),
            )
            begun = self._take_heartbeat(connection, command, (part, [wanted for _, wanted in consumers]))
            answer = await begun if isinstance(begun, Coroutine) else begun
        return answer

    def _check_groups(self, connection: Channel, data: HeartbeatData) -> None:
        """Refuse a heartbeat with which a connection might have too many groups."""
        producers, consumers = self._producers, self._consumers
        known = producers.count_of(connection) + consumers.count_of(connection)
        new = len({group for group in data.producer_groups if connection not in producers.channels(group)})
        groups = {one.group_name for one in data.consumers}
        new += sum(connection not in consumers.channels(group) for group in groups)
        if known + new > _MOST_GROUPS:
            remark = f"{new} groups, and {known} of heartbeats before: a connection has {_MOST_GROUPS} at most"
            raise RemotingCommandError(ResponseCode.SYSTEM_ERROR, remark)

    def _expressions(self, heartbeat: _Heartbeat) -> list[str]:
        """The SQL92 expressions of a heartbeat that are to be compiled."""
        if not self._view.config.enable_property_filter:
            return []
        subscriptions = [one for consumer in heartbeat[0].consumers for one in consumer.subscriptions]
        return [one.sub_string for one in subscriptions if one.expression_type == SQL92 and one.sub_string]

    async def _compile_first(
        self, connection: Channel, command: RemotingCommand, heartbeat: _Heartbeat, texts: list[str]
    ) -> Answer:
        """Take a heartbeat whose expressions are not compiled at once, beside the loop; else it would stand still."""
        async with self._turn(connection):
            await compile_beside(self._view, self._pools, connection, texts)
            answer = self._take_heartbeat(connection, command, heartbeat)
            return await answer if isinstance(answer, Coroutine) else answer

    def _take_heartbeat(
        self, connection: Channel, command: RemotingCommand, heartbeat: _Heartbeat
    ) -> Answer | Coroutine[Any, Any, Answer]:
        if not connection.is_open:  # nobody is to forget them again
            return None
        creations = self.register(connection, *heartbeat, (command.language.name, command.version))
        answer = command.response(ResponseCode.SUCCESS, None, dict(_HEARTBEAT_V2))
        return self._when_done(creations, answer) if creations else answer

    def register(
        self,
        connection: Channel,
        data: HeartbeatData,
        subscriptions: list[list[SubscriptionData]],
        client: tuple[str, int],
    ) -> set[asyncio.Future[None]]:
        """Know the groups of a client, and what makes the retry topics that are not there.

        `subscriptions`: by consumer; `client`: its language and version. Raises RemotingCommandError for too many
        groups.
        """
        self._check_groups(connection, data)
        begun = [
            self._register(connection, client, data, consumer, wanted)
            for consumer, wanted in zip(data.consumers, subscriptions, strict=True)
        ]
        language, version = client
        for group in data.producer_groups:
            self._producers.register_producer(
                group, connection, client_id=data.client_id, language=language, version=version,
                now_ms=self._clock.machine_ms(),
            )  # fmt: skip
        return {task for task in begun if task is not None}

    async def _when_done(self, creations: set[asyncio.Future[None]], answer: Answer) -> Answer:
        await asyncio.wait(creations)
        return answer

    def _register(
        self,
        connection: Channel,
        client: tuple[str, int],
        data: HeartbeatData,
        consumer: ConsumerData,
        subscriptions: list[SubscriptionData],
    ) -> asyncio.Future[None] | None:
        """Know a group; returns what makes its retry topic, if that is not there."""
        now_ms, name = self._clock.machine_ms(), consumer.group_name
        group = self._groups.find_subscription_group_config(name, now_ms)
        self._config_files.persist_soon(self._groups)
        if group is None:  # it may not be made; RocketMQ says nothing, too
            return None
        order = any(
            config.order
            for one in consumer.subscriptions
            if (config := self._topics.select_topic_config(one.topic)) is not None
        )
        retry_topic = self._topics.create_retry_topic(
            name, group.retry_queue_nums, order=order, unit_mode=consumer.unit_mode
        )
        creation = None
        if retry_topic is not None and self._slave is None and not self._creation.is_full:  # a slave copies it
            creation = self._creation.start(retry_topic)
        change = self._consumers.register_consumer(
            name, connection, client_id=data.client_id, language=client[0], version=client[1],
            consume_type=consumer.consume_type,
            message_model=consumer.message_model,
            consume_from_where=consumer.consume_from_where,
            subscriptions=None if data.without_sub else subscriptions, now_ms=now_ms,
            notify_consumer_ids_changed_enable=self._notifies(group.notify_consumer_ids_changed_enable),
        )  # fmt: skip
        if not data.without_sub:
            self._filters.register(name, subscriptions, now_ms)
        self.notify([change])
        return creation

    def _notifies(self, by_group: bool) -> bool:
        return by_group and self._view.config.notify_consumer_ids_changed_enable

    def notify(self, changes: Iterable[ConsumerGroupChange[Channel]]) -> None:
        """Tell the members of groups that others have come or gone; filters of a group without members are dead."""
        for change in changes:
            if self._consumers.consumer_group_info(change.group) is None:
                self._filters.unregister(change.group, self._clock.now_ms())
            fields = encode_header(NotifyConsumerIdsChangedRequestHeader(change.group))
            for connection in change.notified:
                connection.send_one_way(
                    RemotingCommand(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ext_fields=dict(fields))
                )

    async def unregister_client(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Take a client out of a group, after the heartbeats before it; the connection says which client it is."""
        async with self._turn(connection):
            return self._unregister(connection, command)

    def _unregister(self, connection: Channel, command: RemotingCommand) -> Answer:
        header = decode_header(UnregisterClientRequestHeader, {"clientID": ""} | (command.ext_fields or {}))
        if header.producer_group:
            self._producers.unregister_producer(header.producer_group, connection)
        if header.consumer_group:
            group = self._groups.subscription_group_table.get(header.consumer_group)
            notifies = self._notifies(group is None or group.notify_consumer_ids_changed_enable)
            change = self._consumers.unregister_consumer(
                header.consumer_group, connection, notify_consumer_ids_changed_enable=notifies
            )
            self.notify([] if change is None else [change])
        return command.response(ext_fields={})

    def connection_closed(self, connection: Channel) -> None:
        """A connection is gone, and its client with it."""
        self._producers.channel_closed(connection)
        self.notify(self._consumers.channel_closed(connection))

    def scan_not_active_channels(self) -> None:
        """Close the connections of clients that have sent no heartbeat for too long."""
        now_ms = self._clock.machine_ms()
        expired, changes = self._consumers.scan_not_active_channel(now_ms)
        for connection in (*expired, *self._producers.scan_not_active_channel(now_ms)):
            connection.abort()
        self.notify(changes)

    def check_client_config(
        self, connection: Channel, command: RemotingCommand
    ) -> Answer | Coroutine[Any, Any, Answer]:
        """Say whether a consumer's expression can be used here."""
        data = decode_json(command.body)
        plain = data.get("subscriptionData") if isinstance(data, dict) else None
        if isinstance(plain, dict):
            subscription = decode_subscription(plain)
            kind, text = subscription.expression_type, subscription.sub_string
            if is_tag_type(kind):
                return command.response()
            if not self._view.config.enable_property_filter:
                return command.response(ResponseCode.SYSTEM_ERROR, unsupported(kind))
            if kind != SQL92:
                return command.response(ResponseCode.SUBSCRIPTION_PARSE_FAILED, unsupported(kind))
            return self._check_expression(connection, command, text or "")
        return command.response()

    async def _check_expression(self, connection: Channel, command: RemotingCommand, text: str) -> Answer:
        await compile_beside(self._view, self._pools, connection, [text])
        try:
            compile_expression(text)
        except ExpressionError as error:
            return command.response(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error))
        return command.response()


def _decode_heartbeat(body: bytes) -> _Heartbeat:
    """A heartbeat, and for each of its consumers what it wants: a thousand tags take as long as all else."""
    data = decode_heartbeat(body)
    return data, [
        [
            build_subscription_data(one.topic, one.sub_string, one.expression_type, sub_version=one.sub_version)
            for one in consumer.subscriptions
        ]
        for consumer in data.consumers
    ]
