"""Clients: Telemetry, Heartbeat and NotifyClientTermination (`ClientActivity`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from weakref import WeakKeyDictionary

from reput.broker.client_processor import ClientProcessor
from reput.broker.clock import BrokerClock
from reput.broker.disk_work import DiskPools
from reput.broker.grpc.client_channel import Caller, ClientChannel, ClientEvents, CommandPath
from reput.broker.grpc.client_commands import ClientCommands
from reput.broker.grpc.routes import consumer_needs, producer_need
from reput.broker.pulls.message_filters import compile_beside
from reput.broker.view import BrokerView
from reput.errors import RemotingCommandError, RemotingDecodeError
from reput.events import Event
from reput.formats.consumers import ConsumeType
from reput.remoting.client_bodies import ConsumerData, HeartbeatData
from reput.remoting.codes import VERSION, LanguageCode
from reput.remoting.grpc.grpc_codes import ClientType, Code
from reput.remoting.grpc.grpc_interface import (
    HeartbeatRequest,
    NotifyClientTerminationRequest,
    StatusResponse,
    TelemetryCommand,
)
from reput.remoting.grpc.grpc_parts import Publishing, Settings, Subscription
from reput.remoting.grpc.protobuf import decode, encode
from reput.remoting.subscription_data import SQL92, SubscriptionData
from reput.service.grpc.client_settings import check_settings, merged_settings
from reput.service.grpc.message_checks import checked_group, checked_subscription, checked_topic
from reput.service.grpc.statuses import RefusedCallError, ok
from reput.service.subscription_group_manager import SubscriptionGroupManager
from reput.transport.grpc_call import CallConnection, GrpcCall, GrpcError, GrpcStatus

logger = logging.getLogger("reput.broker")

#: Clients that are known by their settings.
_MOST_CLIENTS = 10_000
#: Bytes of the settings of one client, and of all: in memory they take ten times as much.
_MAX_SETTINGS, _MOST_SETTINGS = 64 << 10, 32 << 20
_MAX_CLIENT_ID = 255


class Clients:
    """Knows clients by their settings, and lets the broker's groups know them.

    Args:
        view, clock, pools, groups: The broker's.
        processor: Registers members of groups.
        ways: To the processors.
        commands: Questions to clients.
        closed: Called with a channel that is gone.
    """

    def __init__(
        self,
        view: BrokerView,
        clock: BrokerClock,
        pools: DiskPools,
        groups: SubscriptionGroupManager,
        processor: ClientProcessor,
        ways: CommandPath,
        commands: ClientCommands,
        closed: Callable[[ClientChannel], None],
    ) -> None:
        self._view, self._pools, self._groups, self._processor = view, pools, groups, processor
        self._clock, self._ways, self._commands, self._closed = clock, ways, commands, closed
        #: By user and id: nobody takes over the client of another user.
        self._by_id: dict[tuple[str, str], ClientChannel] = {}
        #: Bytes of the settings that are kept.
        self._settings_size = 0
        #: For the calls of clients without settings.
        self._unknown: WeakKeyDictionary[CallConnection, ClientChannel] = WeakKeyDictionary()
        self.events = ClientEvents(commands.told, commands.asked, self._forget)

    # -- channels

    def channel(self, call: GrpcCall, user: str) -> ClientChannel:
        """The channel of the client that calls, or of its connection; raises RefusedCallError without client id.

        user: Proven; "" where nobody asks.
        """
        known = self._by_id.get((user, check_client_id(call)))
        if known is not None:
            known.use(call.connection)
            return known
        channel = self._unknown.get(call.connection)
        if channel is None:
            channel = self._unknown[call.connection] = self._made("", call)
        return channel

    def _made(self, client_id: str, call: GrpcCall) -> ClientChannel:
        name = call.metadata.get("x-mq-language", "").upper()
        language = LanguageCode[name] if name in LanguageCode.__members__ else LanguageCode.OTHER
        return ClientChannel(self._ways, self.events, client_id, call.connection, language)

    def connection_closed(self, connection: CallConnection) -> None:
        """Forget the calls of a connection; its clients may come back over another one."""
        channel = self._unknown.pop(connection, None)
        if channel is not None:
            channel.is_open = False
            self._closed(channel)

    def _forget(self, channel: ClientChannel) -> None:
        if self._by_id.get((channel.user, channel.client_id)) is channel:
            del self._by_id[channel.user, channel.client_id]
            self._settings_size -= channel.settings_size
        if channel.telemetry is not None:
            channel.telemetry.finish()
        self._closed(channel)

    def scan_not_active(self) -> None:
        """Forget clients that have sent no heartbeat for too long, whether they are in a group or not."""
        oldest_ms = self._clock.machine_ms() - self._view.config.channel_expired_timeout
        for channel in [one for one in self._by_id.values() if one.last_heartbeat_ms < oldest_ms]:
            channel.abort()

    def stop(self) -> None:
        """End the streams of all clients."""
        for channel in list(self._by_id.values()):
            if channel.telemetry is not None:
                channel.telemetry.finish()

    # -- calls

    async def telemetry(self, caller: Caller) -> None:
        """The stream of a client: its settings, and its answers to what it is asked."""
        call = caller.call
        try:
            async for data in call.messages():
                try:
                    command = decode(TelemetryCommand, data)
                except RemotingDecodeError as error:
                    raise GrpcError(GrpcStatus.INTERNAL, str(error)) from None
                if command.settings is not None:
                    if len(data) > _MAX_SETTINGS:
                        text = f"settings of {len(data)} bytes: expected {_MAX_SETTINGS} at most"
                        raise GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, text)
                    await self._take_settings(caller, command.settings, len(data))
                elif (answer := self._commands.answer(command)) is not None:
                    caller.channel.answered(answer)
                await asyncio.sleep(0)  # others have the loop after each of many messages
        finally:
            if caller.channel.telemetry is call:
                caller.channel.telemetry = None
        call.finish()

    async def _take_settings(self, caller: Caller, settings: Settings, size: int) -> None:
        try:
            check_settings(settings)
            await self._register(caller, settings, size)
        except RefusedCallError as error:
            is_empty = settings.publishing is None and settings.subscription is None
            prefix = "" if is_empty else "process client telemetryCommand failed. "
            raise GrpcError(GrpcStatus.INVALID_ARGUMENT, f"{prefix}{error}") from None
        caller.channel.telemetry = caller.call
        group = settings.subscription.group if settings.subscription is not None else None
        config = self._groups.subscription_group_table.get("" if group is None else group.name)
        told = TelemetryCommand(status=ok(), settings=merged_settings(settings, config))
        caller.call.send(encode(told))

    async def heartbeat(self, caller: Caller, request: HeartbeatRequest) -> StatusResponse:
        """Know that a client is still there."""
        settings = self._settings(caller)
        if settings.subscription is not None:
            checked_group(request.group)
        await self._register(caller, settings)
        return StatusResponse(ok())

    def notify_client_termination(self, caller: Caller, request: NotifyClientTerminationRequest) -> StatusResponse:
        """Forget a client that ends."""
        settings = self._settings(caller)
        if settings.subscription is not None:
            caller.require(*consumer_needs(checked_group(request.group)))
        caller.channel.abort()
        return StatusResponse(ok())

    @staticmethod
    def _settings(caller: Caller) -> Settings:
        if caller.channel.settings is None:
            text = "cannot find client settings for this client"
            raise RefusedCallError(Code.UNRECOGNIZED_CLIENT_TYPE, text)
        return caller.channel.settings

    # -- groups

    async def _register(self, caller: Caller, settings: Settings, size: int | None = None) -> None:
        """Let the broker's groups know a client by new settings of this size, None: by a heartbeat.

        Raises RefusedCallError.
        """
        is_heartbeat, client_id = size is None, caller.call.metadata["x-mq-client-id"]
        if settings.subscription is not None:
            consumer, wanted = _consumer(settings.client_type, settings.subscription)
            data = HeartbeatData(client_id, consumers=(consumer,), without_sub=is_heartbeat)
            subscriptions = [wanted]
            caller.require(*consumer_needs(consumer.group_name, *(one.topic for one in wanted)))
            texts = [one.sub_string for one in wanted if one.expression_type == SQL92]
            if texts and not is_heartbeat:
                await compile_beside(self._view, self._pools, caller.channel, texts)
        else:  # a topic is the group of its producers
            topics = [checked_topic(topic) for topic in (settings.publishing or Publishing()).topics]
            caller.require(*map(producer_need, topics))
            data, subscriptions = HeartbeatData(client_id, producer_groups=tuple(topics)), []
        channel = self._known(caller, client_id, size)
        channel.settings, channel.last_heartbeat_ms = settings, self._clock.machine_ms()
        try:
            creations = self._processor.register(channel, data, subscriptions, (channel.language.name, VERSION))
        except RemotingCommandError as error:
            raise RefusedCallError(Code.TOO_MANY_REQUESTS, error.remark) from None
        if creations:
            await asyncio.wait(creations)

    def _known(self, caller: Caller, client_id: str, size: int | None) -> ClientChannel:
        """The channel of a client that has settings of this size from now on; None: those that it has."""
        channel = self._by_id.get((caller.user, client_id))
        more = 0 if size is None else size - (0 if channel is None else channel.settings_size)
        if more > 0 and self._settings_size + more > _MOST_SETTINGS:
            logger.warning(Event("a client was refused", client=caller.call.connection, id=client_id[:64]))
            text = f"expected settings of at most {_MOST_SETTINGS} bytes, of all clients"
            raise RefusedCallError(Code.TOO_MANY_REQUESTS, text)
        if channel is None:
            if len(self._by_id) >= _MOST_CLIENTS or len(client_id) > _MAX_CLIENT_ID:
                logger.warning(Event("a client was refused", client=caller.call.connection, id=client_id[:64]))
                text = f"expected a client id of at most {_MAX_CLIENT_ID} characters, of {_MOST_CLIENTS} clients"
                raise RefusedCallError(Code.TOO_MANY_REQUESTS, text)
            channel = self._by_id[caller.user, client_id] = self._made(client_id, caller.call)
            channel.user = caller.user
        channel.settings_size += more
        self._settings_size += more
        caller.channel = channel
        return channel


def check_client_id(call: GrpcCall) -> str:
    """The id of the client that calls; raises RefusedCallError if there is none."""
    client_id = call.metadata.get("x-mq-client-id", "")
    if not client_id or client_id.isspace():
        raise RefusedCallError(Code.CLIENT_ID_REQUIRED, "client id cannot be empty")
    return client_id


def _consumer(client_type: int | None, subscription: Subscription) -> tuple[ConsumerData, list[SubscriptionData]]:
    """A consumer by its settings, and what it wants."""
    group = checked_group(subscription.group)
    topics = [checked_topic(one.topic) for one in subscription.subscriptions]
    expressions = [one.expression for one in subscription.subscriptions]
    try:
        wanted = [checked_subscription(*one) for one in zip(topics, expressions, strict=True)]
    except RefusedCallError as error:
        raise RefusedCallError(error.code, "expression format is not correct") from None
    is_simple = client_type == ClientType.SIMPLE_CONSUMER
    kind = ConsumeType.CONSUME_ACTIVELY if is_simple else ConsumeType.CONSUME_PASSIVELY
    return ConsumerData(group, kind), wanted
