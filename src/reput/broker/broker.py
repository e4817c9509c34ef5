"""BrokerController: a broker in an event loop, from its start to its stop."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from functools import partial

from reput.broker.access.access import Access
from reput.broker.config_checks import check_ports, keys_of_start, maps_filters
from reput.broker.grpc.calls import GrpcCalls
from reput.broker.metrics.broker_metrics import BrokerMetrics
from reput.broker.pulls.message_filters import consumer_filters
from reput.broker.services import BrokerServices
from reput.broker.state import BrokerState
from reput.broker.topic_creation import create_first, own_topics, warn_of_unread_queues
from reput.config.broker import BrokerConfig, MetricsExporterType
from reput.config.message_store import MessageStoreConfig
from reput.config.namesrv import NamesrvConfig
from reput.config.tls import TlsMode
from reput.errors import RemotingError, WouldWaitError
from reput.events import Event
from reput.files import DISK, FileLayer, NeverWaiting
from reput.formats.kv_config import KV_CONFIG_FILE
from reput.formats.metadata import (
    ConsumerOffsets,
    ConsumerOrderInfos,
    DelayOffsets,
    MessageRequestModes,
    SubscriptionGroups,
    TransactionMetrics,
)
from reput.formats.paths import CONFIG
from reput.log.metadata import read_metadata
from reput.namesrv.name_server import NameServer
from reput.replication.ha_service import HAService
from reput.service.filter_bit_maps import FilterBitMaps
from reput.store.message_store import MessageStore
from reput.transport.client import RemotingClient
from reput.transport.connection import Connection
from reput.transport.http import HttpServer
from reput.transport.made_certificate import made_tls
from reput.transport.server import RemotingServer, reached_at
from reput.transport.server_tls import ServerTls
from reput.transport.tls import ClientTls

logger = logging.getLogger("reput.broker")


@contextmanager
def _port_of(key: str) -> Iterator[None]:
    """Errors of a port have the key that names it, or whose port it is."""
    try:
        yield
    except RemotingError as error:
        raise RemotingError(f"{key}: {error}") from None


class BrokerController:
    """Serves a store directory to RocketMQ's clients.

    Args:
        path: The store's directory.
        config: The broker's keys.
        store_config: The store's keys; `brokerIP1` and `listenPort` are where clients find the broker, port 0 takes a
            free one.
        namesrv_port: Of its own name server, if `config` names none; 0 takes a free one.
        config_path: The broker.conf in which changes of keys are kept; else `config/broker.properties` of the store.
        files: The file layer.

    Raises:
        ConfigError: A certificate of the configuration cannot be used.
    """

    def __init__(
        self,
        path: str,
        config: BrokerConfig,
        store_config: MessageStoreConfig,
        *,
        namesrv_port: int = 9876,
        config_path: str | None = None,
        files: FileLayer = DISK,
    ) -> None:
        self._path = path
        self._config = config
        self._store_config = store_config
        self._namesrv_port = namesrv_port
        self._config_path = config_path
        self._files = files
        self._name_server: NameServer | None = None
        self._pages = HttpServer()
        self._ha: HAService | None = None
        max_idle_s, tls = config.server_channel_max_idle_time_seconds, ServerTls.of(config)
        self._calls = GrpcCalls()
        make_tls = None
        if tls is None and config.tls_server_mode is not TlsMode.DISABLED:
            make_tls = partial(made_tls, os.path.join(path, CONFIG), files)
        self._server, self._server_of_calls = (
            RemotingServer(self, max_idle_s=max_idle_s, tls=tls, calls=self._calls, make_tls=make_tls) for _ in range(2)
        )
        self._server_of_slaves = RemotingServer(self, max_idle_s=max_idle_s, tls=tls)
        self.address = ""
        self.namesrv = ""
        self.metrics = ""

    @property
    def state(self) -> BrokerState:
        """State that the broker's services share, between `start` and `stop`."""
        return self._state

    # -- life

    async def start(self) -> None:
        """`open` and `register`; clients can be served when this returns."""
        await self.open()
        await self.register()

    async def open(self) -> None:
        """Take the port, open the store and listen.

        Raises:
            RemotingError: A port is taken. Nothing was changed.
            ConfigError: No broker starts with these keys (`keys_of_start`, `check_ports`). Nothing was changed.
            CorruptMetadataError: A file below `config` cannot be read. Nothing was changed.
            ReputError: The store cannot be opened; see `MessageStore.open`.
        """
        config, store_config = self._config, keys_of_start(self._config, self._store_config)
        check_ports(config, store_config, None if config.name_servers else self._namesrv_port)
        topics = own_topics(config, store_config)
        is_measured = config.metrics_exporter_type is MetricsExporterType.PROM
        read_metadata(self._path, SubscriptionGroups, self._files)
        read_metadata(self._path, ConsumerOffsets, self._files)
        read_metadata(self._path, DelayOffsets, self._files)
        read_metadata(self._path, TransactionMetrics, self._files)
        access = Access(self._path, config, self._files)
        read_metadata(self._path, ConsumerOrderInfos, self._files)
        read_metadata(self._path, MessageRequestModes, self._files)
        filters = consumer_filters(self._path, config, self._files)
        try:
            with _port_of("listenPort"):
                port = await self._server.bind(config.bind_address, store_config.listen_port)
            if config.grpc_server_port:
                with _port_of("grpcServerPort"):
                    await self._server_of_calls.bind(config.bind_address, config.grpc_server_port)
            store_config = replace(store_config, listen_port=port, store_path_root_dir=os.path.abspath(self._path))
            self._store_config = store_config
            self.address = store_config.store_host
            servers = config.name_servers
            self.namesrv = ";".join(servers)
            if not servers:
                kept = os.path.join(self._path, CONFIG, KV_CONFIG_FILE)
                namesrv_config = NamesrvConfig(**config.tls_values, kv_config_path=kept)
                self._name_server = NameServer(namesrv_config, files=self._files, changes_keys=False)
                with _port_of("the name server"):
                    namesrv_port = await self._name_server.start(config.bind_address, self._namesrv_port)
                self.namesrv = f"{self.address.rpartition(':')[0]}:{namesrv_port}"
                servers = (reached_at(config.bind_address, namesrv_port),)  # brokerIP1 may be another machine's
            if is_measured:
                host = config.metrics_prom_exporter_host or config.bind_address
                with _port_of("metricsPromExporterPort"):
                    metrics_port = await self._pages.bind(host, config.metrics_prom_exporter_port)
                self.metrics = reached_at(host, metrics_port)
            store = MessageStore.open(
                self._path, config=store_config, retention=True, dispatch="caller", files=self._files,
                bit_maps=FilterBitMaps(filters) if maps_filters(config, store_config) else None,
            )  # fmt: skip
            try:
                ha_port = config.ha_listen_port
                ha = HAService(store, config.bind_address, ha_port, config.ha_slave_networks) if ha_port else None
                self._client = self._name_server_client(servers)
                self._state = state = BrokerState(
                    config, store, self.address, servers, self._client, topics, filters, self._files, ha, access.gate
                )
                if ha is not None:
                    ha.start()
                    self._ha = ha
                    state.dispatch.on_growth = ha.wake
                self._services = services = BrokerServices(state, access, self._config_path, self._client)
                services.grpc.serve(self._calls)
                await state.pools.writes.run(access.create_first)
                if state.slave is None:
                    await state.pools.writes.run(create_first, state.topics)
                    await state.pools.reads.run(warn_of_unread_queues, state.topics)
                else:  # a slave gets its topics from the master
                    await state.pools.writes.run(state.topics.create, topics)
                await self._server.listen()
                if config.grpc_server_port:
                    await self._server_of_calls.listen()
                if ha is not None:
                    await self._listen_for_slaves()
                if is_measured:
                    metrics = BrokerMetrics(state, services.pop, services.timers)
                    await self._pages.listen(
                        {"/metrics": metrics.metrics, "/health": metrics.healthy, "/ready": metrics.ready}
                    )
            except BaseException:
                self._close_ha()
                store.close()
                raise
        except BaseException:
            await self._close_ports()
            raise

    async def register(self) -> None:
        """Register, and begin all work by periods; it may be cancelled, as a name server may answer nothing."""
        try:
            await self._state.registration.register()
        finally:
            self._state.registration.start()
            self._services.start()

    async def _listen_for_slaves(self) -> None:
        """Listen at the port two before the broker's own, too, if slaves of RocketMQ's always copy topics."""
        port = self._store_config.listen_port - 2
        try:
            await self._server_of_slaves.start(self._config.bind_address, port)
        except RemotingError as error:
            logger.warning(Event("slaves of RocketMQ's cannot copy topics", port=port, error=error))

    def _name_server_client(self, servers: Sequence[str]) -> RemotingClient:
        """The client for name servers; it reaches the broker's own one without the network."""
        own = {} if self._name_server is None else {servers[0]: self._name_server.join}
        return RemotingClient(tls=ClientTls.of(self._config), own_servers=own)

    async def stop(self) -> None:
        """Answer what was accepted, unregister, persist, and close the store clean; each is done, whatever fails.

        Raises:
            ReputError: Something could not be made durable; the next start recovers.
        """
        state, services = self._state, self._services
        async with AsyncExitStack() as steps:  # from the last one to the first
            steps.callback(state.pools.writes.stop)
            steps.push_async_callback(state.pools.writes.run, state.store.close)
            for work in (state.pools.tables, state.pools.log_work, state.pools.reads):
                steps.push_async_callback(state.pools.writes.run, work.stop)
            steps.push_async_callback(services.persist)
            steps.push_async_callback(state.dispatch.stop)  # the close of the store dispatches the rest
            steps.push_async_callback(state.pools.writes.run, self._close_ha)
            steps.push_async_callback(state.send_path.room.drain)
            steps.push_async_callback(state.creation.stop)
            steps.push_async_callback(self._close_ports)
            steps.push_async_callback(services.stop)
            steps.push_async_callback(services.answer_all)
            steps.push_async_callback(state.registration.stop)

    def _close_ha(self) -> None:
        if self._ha is not None:
            self._ha.close()

    async def _close_ports(self) -> None:
        await self._pages.stop()
        await self._server.stop()
        await self._server_of_calls.stop()
        await self._server_of_slaves.stop()
        if self._name_server is not None:
            await self._name_server.stop()

    # -- Owner of the connections

    def opened(self, connection: Connection) -> None:
        """Called by the server."""

    def readable(self, connection: Connection) -> None:
        """Called by the server: what one read brings is one batch."""
        self._state.dispatch.turns += 1
        try:
            with NeverWaiting():
                self._services.sends.take_all(connection)
        except WouldWaitError as error:
            self._state.send_path.room.hold(connection, error.room)

    def closed(self, connection: Connection) -> None:
        """Called by the server."""
        self._services.connection_closed(connection)
