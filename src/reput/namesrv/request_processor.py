"""RequestProcessor: the requests that a name server answers, by their codes (`DefaultRequestProcessor` and others)."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from reput.errors import RemotingCommandError
from reput.formats.metadata import DataVersion
from reput.namesrv.configuration import Configuration
from reput.namesrv.kv_config_manager import NAMESPACE_ORDER_TOPIC_CONFIG, KVConfigManager
from reput.namesrv.route_info_manager import UNIT_FLAG, UNIT_SUB_FLAG, MinBrokerIdChange, RouteInfoManager
from reput.namesrv.zone_route import ZONE_NAME, filter_by_zone
from reput.remoting.body import decode_body, encode_body
from reput.remoting.body_bounds import LARGE_BODY
from reput.remoting.codes import VERSION_FILTER_SERVERS, RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import decode_header, encode_header
from reput.remoting.namesrv_headers import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    BrokerHeartbeatRequestHeader,
    DeleteKVConfigRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    LostBrokersRequestHeader,
    PutKVConfigRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    RegisterTopicRequestHeader,
    UnRegisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from reput.remoting.route_bodies import (
    GetBrokerMemberGroupResponseBody,
    KVTable,
    RegisterBrokerBody,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicRouteData,
    decode_register_body,
)
from reput.transport.channel import Channel
from reput.transport.requests import Answer, Handler

#: First byte of what zlib has compressed; JSON has another.
_ZLIB = b"\x78"
_NO_ROUTE = (
    "No topic route info in name server for the topic: {}\n"
    "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
)


class Clock(NamedTuple):
    """Clock of a name server: `now_ms()`, which may begin anywhere; and the time of the start, by the same clock."""

    now_ms: Callable[[], int]
    started_ms: int


class RequestProcessor:
    """Answers requests out of the managers.

    Args:
        notify: Called with what brokers are to hear.
    """

    def __init__(
        self,
        routes: RouteInfoManager,
        kv_configs: KVConfigManager,
        configuration: Configuration,
        clock: Clock,
        notify: Callable[[MinBrokerIdChange], None],
    ) -> None:
        self._routes = routes
        self._kv_configs = kv_configs
        self._configuration = configuration
        self._clock = clock
        self._notify = notify
        #: A broker sends the same body every 30 s; to decode one of a thousand topics takes 30 ms.
        self._last_bodies: WeakKeyDictionary[Channel, tuple[RemotingCommand, RegisterBrokerBody]] = WeakKeyDictionary()

    def handlers(self) -> dict[int, Handler]:
        """The handler of each request code."""
        return {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._get_route_info,
            # brokers
            RequestCode.REGISTER_BROKER: self._register_broker,
            RequestCode.UNREGISTER_BROKER: self._unregister_broker,
            RequestCode.BROKER_HEARTBEAT: self._broker_heartbeat,
            RequestCode.QUERY_DATA_VERSION: self._query_data_version,
            RequestCode.GET_BROKER_MEMBER_GROUP: self._get_broker_member_group,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._get_broker_cluster_info,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_perm,
            # topics
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self._register_topic,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._get_all_topic_list,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._get_system_topic_list,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._get_topics_by_cluster,
            RequestCode.GET_UNIT_TOPIC_LIST: self._unit_topics(lambda flag: bool(flag & UNIT_FLAG)),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._unit_topics(lambda flag: bool(flag & UNIT_SUB_FLAG)),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._unit_topics(
                lambda flag: flag & (UNIT_FLAG | UNIT_SUB_FLAG) == UNIT_SUB_FLAG
            ),
            # values, configuration
            RequestCode.PUT_KV_CONFIG: self._put_kv_config,
            RequestCode.GET_KV_CONFIG: self._get_kv_config,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv_config,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._get_kv_list,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_config,
            RequestCode.GET_NAMESRV_CONFIG: self._get_config,
        }

    # -- routes

    def _get_route_info(self, _: Channel, command: RemotingCommand) -> Answer:
        header = decode_header(GetRouteInfoRequestHeader, command.ext_fields)
        topic = header.topic
        config = self._configuration.config
        waited_ms = self._clock.now_ms() - self._clock.started_ms
        if config.need_wait_for_service and waited_ms < config.wait_seconds_for_service * 1000:
            return command.response(ResponseCode.SYSTEM_ERROR, "name server not ready")
        route = self._routes.pickup_topic_route_data(topic, with_lost=bool(header.with_lost_brokers))
        if route is None:
            return command.response(ResponseCode.TOPIC_NOT_EXIST, _NO_ROUTE.format(topic))
        if config.order_message_enable:
            route = replace(route, order_topic_conf=self._kv_configs.get(NAMESPACE_ORDER_TOPIC_CONFIG, topic))
        return command.response(body=encode_body(filter_by_zone(route, command.ext_fields or {})))

    # -- brokers

    def _register_broker(self, connection: Channel, command: RemotingCommand) -> Answer | Coroutine[Any, Any, Answer]:
        header = decode_header(RegisterBrokerRequestHeader, command.ext_fields)
        last, body = self._last_bodies.get(connection, (None, None))
        if last is not None and body is not None and (last.body, last.version) == (command.body, command.version):
            return self._register(connection, command, header, body)
        if len(command.body) > LARGE_BODY:
            return self._register_large(connection, command, header)
        return self._register(connection, command, header, _decode_register_body(command, header))

    async def _register_large(
        self, connection: Channel, command: RemotingCommand, header: RegisterBrokerRequestHeader
    ) -> Answer:
        body = await asyncio.to_thread(_decode_register_body, command, header)
        if not connection.is_open:  # the broker is known to be gone already
            return None
        return self._register(connection, command, header, body)

    def _register(
        self,
        connection: Channel,
        command: RemotingCommand,
        header: RegisterBrokerRequestHeader,
        body: RegisterBrokerBody,
    ) -> Answer:
        self._last_bodies[connection] = command, body
        result = self._routes.register_broker(
            header,
            body,
            zone_name=(command.ext_fields or {}).get(ZONE_NAME),
            channel=connection,
            now_ms=self._clock.now_ms(),
        )
        if result.change is not None:
            self._notify(result.change)
        told = b""
        if self._configuration.config.return_order_topic_config_to_broker:
            told = self._kv_table(NAMESPACE_ORDER_TOPIC_CONFIG) or b""
        return _answer(command, RegisterBrokerResponseHeader(result.ha_server_addr, result.master_addr), told)

    def _unregister_broker(self, _: Channel, command: RemotingCommand) -> Answer:
        for change in self._routes.unregister_broker(decode_header(UnRegisterBrokerRequestHeader, command.ext_fields)):
            self._notify(change)
        return command.response()

    def _broker_heartbeat(self, _: Channel, command: RemotingCommand) -> Answer:
        header = decode_header(BrokerHeartbeatRequestHeader, command.ext_fields)
        process = header.cluster_name, header.broker_addr
        self._routes.update_broker_info_update_timestamp(process, self._clock.now_ms())
        return command.response()

    def _query_data_version(self, _: Channel, command: RemotingCommand) -> Answer:
        header = decode_header(QueryDataVersionRequestHeader, command.ext_fields)
        process = header.cluster_name, header.broker_addr
        known = self._routes.query_broker_topic_config(process)
        changed = self._routes.is_broker_topic_config_changed(process, decode_body(DataVersion, command.body))
        self._routes.update_broker_info_update_timestamp(process, self._clock.now_ms())
        body = b"" if known is None else encode_body(known)
        return _answer(command, QueryDataVersionResponseHeader(changed), body)

    def _get_broker_member_group(self, _: Channel, command: RemotingCommand) -> Answer:
        header = decode_header(GetBrokerMemberGroupRequestHeader, command.ext_fields)
        group = self._routes.broker_member_group(header.cluster_name, header.broker_name)
        return command.response(body=encode_body(GetBrokerMemberGroupResponseBody(group)))

    def _get_broker_cluster_info(self, _: Channel, command: RemotingCommand) -> Answer:
        return command.response(body=encode_body(self._routes.cluster_info(with_lost=_with_lost(command))))

    def _wipe_write_perm(self, _: Channel, command: RemotingCommand) -> Answer:
        header = decode_header(WipeWritePermOfBrokerRequestHeader, command.ext_fields)
        count = self._routes.wipe_write_perm(header.broker_name, lost_only=bool(header.lost_only))
        return _answer(command, WipeWritePermOfBrokerResponseHeader(count))

    def _add_write_perm(self, _: Channel, command: RemotingCommand) -> Answer:
        name = decode_header(AddWritePermOfBrokerRequestHeader, command.ext_fields).broker_name
        return _answer(command, AddWritePermOfBrokerResponseHeader(self._routes.add_write_perm(name)))

    # -- topics

    def _register_topic(self, _: Channel, command: RemotingCommand) -> Answer:
        topic = decode_header(RegisterTopicRequestHeader, command.ext_fields).topic
        if command.body:
            self._routes.register_topic(topic, decode_body(TopicRouteData, command.body).queue_datas)
        return command.response()

    def _delete_topic(self, _: Channel, command: RemotingCommand) -> Answer:
        header = decode_header(DeleteTopicFromNamesrvRequestHeader, command.ext_fields)
        self._routes.delete_topic(header.topic, header.cluster_name)
        return command.response()

    def _get_all_topic_list(self, _: Channel, command: RemotingCommand) -> Answer:
        is_enabled = self._configuration.config.enable_all_topic_list
        with_lost = _with_lost(command)
        return _topic_list(command, lambda: self._routes.all_topic_list(with_lost=with_lost), is_enabled=is_enabled)

    def _get_system_topic_list(self, _: Channel, command: RemotingCommand) -> Answer:
        with_lost = _with_lost(command)
        return _topic_list(command, lambda: self._routes.system_topic_list(with_lost=with_lost), is_enabled=True)

    def _get_topics_by_cluster(self, _: Channel, command: RemotingCommand) -> Answer:
        cluster = decode_header(GetTopicsByClusterRequestHeader, command.ext_fields).cluster
        is_enabled = self._configuration.config.enable_topic_list
        return _topic_list(command, lambda: self._routes.topics_by_cluster(cluster), is_enabled=is_enabled)

    def _unit_topics(self, matches: Callable[[int], bool]) -> Handler:
        def handle(_: Channel, command: RemotingCommand) -> Answer:
            is_enabled = self._configuration.config.enable_topic_list
            return _topic_list(command, lambda: self._routes.topics_by_sys_flag(matches), is_enabled=is_enabled)

        return handle

    # -- values, configuration

    async def _put_kv_config(self, _: Channel, command: RemotingCommand) -> Answer:
        header = decode_header(PutKVConfigRequestHeader, command.ext_fields)
        await self._kv_configs.put(header.namespace, header.key, header.value)
        return command.response()

    def _get_kv_config(self, _: Channel, command: RemotingCommand) -> Answer:
        header = decode_header(GetKVConfigRequestHeader, command.ext_fields)
        value = self._kv_configs.get(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            return command.response(ResponseCode.QUERY_NOT_FOUND, remark, {})
        return _answer(command, GetKVConfigResponseHeader(value))

    async def _delete_kv_config(self, _: Channel, command: RemotingCommand) -> Answer:
        header = decode_header(DeleteKVConfigRequestHeader, command.ext_fields)
        await self._kv_configs.delete(header.namespace, header.key)
        return command.response()

    def _get_kv_list(self, _: Channel, command: RemotingCommand) -> Answer:
        namespace = decode_header(GetKVListByNamespaceRequestHeader, command.ext_fields).namespace
        body = self._kv_table(namespace)
        if body is None:
            return command.response(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
        return command.response(body=body)

    def _kv_table(self, namespace: str) -> bytes | None:
        values = self._kv_configs.namespace(namespace)
        return None if values is None else encode_body(KVTable(values))

    async def _update_config(self, _: Channel, command: RemotingCommand) -> Answer:
        await self._configuration.update(command.body.decode("utf-8", "replace"))
        return command.response()

    def _get_config(self, _: Channel, command: RemotingCommand) -> Answer:
        return command.response(body=self._configuration.text().encode())


def _answer(command: RemotingCommand, header: Any, body: bytes = b"") -> RemotingCommand:
    return command.response(ext_fields=encode_header(header), body=body)


def _with_lost(command: RemotingCommand) -> bool:
    return bool(decode_header(LostBrokersRequestHeader, command.ext_fields).with_lost_brokers)


def _topic_list(command: RemotingCommand, topics: Callable[[], TopicList], *, is_enabled: bool) -> RemotingCommand:
    if not is_enabled:
        return command.response(ResponseCode.SYSTEM_ERROR, "disable")
    return command.response(body=encode_body(topics()))


def _decode_register_body(command: RemotingCommand, header: RegisterBrokerRequestHeader) -> RegisterBrokerBody:
    """The body of a registration; brokers before 3.0.11 send the topics alone.

    A broker of 5.3.3 with compressedRegister=true compresses the body, and says that it did not.

    Raises RemotingCommandError (SYSTEM_ERROR) if it is none, or damaged.
    """
    if header.body_crc32 and zlib.crc32(command.body) & 0x7FFFFFFF != header.body_crc32:
        raise RemotingCommandError(ResponseCode.SYSTEM_ERROR, "crc32 not match")
    if command.version >= VERSION_FILTER_SERVERS or not command.body:
        is_compressed = bool(header.compressed) or command.body.startswith(_ZLIB)
        return decode_register_body(command.body, compressed=is_compressed)
    return RegisterBrokerBody(decode_body(TopicConfigSerializeWrapper, command.body))
