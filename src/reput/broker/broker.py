"""BrokerController: a broker in an event loop, from its start to its stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from typing import Any

from reput.broker.access.access import Access
from reput.broker.access.plain_gate import PlainGate
from reput.broker.admin.processors import admin_processors
from reput.broker.broker_to_client import BrokerToClient
from reput.broker.client_processor import ClientProcessor
from reput.broker.message_filters import require_parser
from reput.broker.metrics.broker_metrics import BrokerMetrics
from reput.broker.pop.pop import Pop
from reput.broker.pull_message_processor import PullMessageProcessor
from reput.broker.query_processor import QueryProcessor
from reput.broker.reply_message_processor import ReplyMessageProcessor
from reput.broker.request_table import Processor, request_table
from reput.broker.schedule_message_service import ScheduleMessageService
from reput.broker.send_back_processor import SendBackProcessor
from reput.broker.send_frames import SendFrameProcessor
from reput.broker.send_message_processor import SendMessageProcessor
from reput.broker.state import BrokerState
from reput.broker.timer.recall_message_processor import RecallMessageProcessor
from reput.broker.timer.timer_message_service import TimerMessageService
from reput.broker.transactions.end_transaction_processor import EndTransactionProcessor
from reput.broker.transactions.transactional_message_check_service import TransactionalMessageCheckService
from reput.broker.transactions.transactional_op_batch_service import TransactionalOpBatchService
from reput.config.broker import BrokerConfig, MetricsExporterType
from reput.config.message_store import MessageStoreConfig
from reput.config.namesrv import NamesrvConfig
from reput.errors import WouldWaitError
from reput.extras import require
from reput.files import DISK, FileLayer, NeverWaiting
from reput.filter.bloom_filter import BloomFilter
from reput.formats.metadata import (
    ConsumerOffsets,
    ConsumerOrderInfos,
    DelayOffsets,
    MessageRequestModes,
    SubscriptionGroups,
    TopicConfig,
)
from reput.log.metadata import read_metadata
from reput.namesrv.name_server import NameServer
from reput.service.broker_stats_manager import SAMPLE_S
from reput.service.consumer_filter_manager import ConsumerFilterManager
from reput.service.filter_bit_maps import FilterBitMaps
from reput.service.topic_config_manager import broker_topics
from reput.store.message_store import MessageStore
from reput.transport.client import RemotingClient
from reput.transport.connection import Connection
from reput.transport.http import HttpServer
from reput.transport.requests import Requests
from reput.transport.server import RemotingServer, reached_at
from reput.transport.server_tls import ServerTls
from reput.transport.tls import ClientTls

_SCAN_CLIENTS_S = 10.0
_PERSIST_FILTERS_S = 10.0
_DRAIN_S = 1.0
#: Between two writes of consumerOrderInfo.json.
_ORDER_INFO_S = 10.0


class BrokerController:
    """Serves a store directory to RocketMQ's clients.

    Args:
        path: The store's directory.
        config: The broker's keys.
        store_config: The store's keys; `brokerIP1` and `listenPort` are where clients find the broker, port 0 takes a
            free one.
        namesrv_port: Of its own name server, where `config` names none; 0 takes a free one.
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
        self._server = RemotingServer(
            self, max_idle_s=config.server_channel_max_idle_time_seconds, tls=ServerTls.of(config)
        )
        self._requests = Requests({})
        self._tasks: set[asyncio.Task[None]] = set()
        self.address = ""
        self.namesrv = ""
        self.metrics = ""

    # -- life

    async def start(self) -> None:
        """Take the port, open the store, listen and register; clients can be served when this returns.

        Raises:
            RemotingError: A port is taken. Nothing was changed.
            ConfigError: The broker's or the cluster's name can be no topic's. Nothing was changed.
            CorruptMetadataError: A file below `config` cannot be read. Nothing was changed.
            ReputError: The store cannot be opened; see `MessageStore.open`.
        """
        self._loop = asyncio.get_running_loop()
        config, store_config = self._config, self._store_config
        own_topics = self._own_topics()
        is_measured = config.metrics_exporter_type is MetricsExporterType.PROM
        if is_measured:
            require("prometheus_client", "metricsExporterType=PROM")
        maps_filters = config.enable_calc_filter_bit_map and store_config.enable_consume_queue_ext
        if config.enable_property_filter or maps_filters:
            require_parser()
        read_metadata(self._path, SubscriptionGroups, self._files)
        read_metadata(self._path, ConsumerOffsets, self._files)
        read_metadata(self._path, DelayOffsets, self._files)
        access = Access(self._path, config, self._files)
        read_metadata(self._path, ConsumerOrderInfos, self._files)
        read_metadata(self._path, MessageRequestModes, self._files)
        filters = self._consumer_filters()
        try:
            port = await self._server.bind(config.bind_address, store_config.listen_port)
            self._store_config = store_config = replace(store_config, listen_port=port)
            self.address = store_config.store_host
            servers = config.name_servers
            self.namesrv = ";".join(servers)
            if not servers:
                self._name_server = NameServer(NamesrvConfig(**config.tls_values))
                namesrv_port = await self._name_server.start(config.bind_address, self._namesrv_port)
                self.namesrv = f"{self.address.rpartition(':')[0]}:{namesrv_port}"
                servers = (reached_at(config.bind_address, namesrv_port),)  # brokerIP1 may be another machine's
            if is_measured:
                host = config.metrics_prom_exporter_host or config.bind_address
                self.metrics = reached_at(host, await self._pages.bind(host, config.metrics_prom_exporter_port))
            store = MessageStore.open(
                self._path, config=store_config, retention=True, dispatch="caller", files=self._files,
                bit_maps=FilterBitMaps(filters) if maps_filters else None,
            )  # fmt: skip
            try:
                self._serve_from(store, own_topics, servers, access, filters)
                await self._state.writes.run(access.create_first)
                await self._state.writes.run(self._state.topics.create, own_topics)
                await self._server.listen()
                if is_measured:
                    metrics = BrokerMetrics(self._state, self._pop, self._timers)
                    await self._pages.listen(
                        {"/metrics": metrics.metrics, "/health": metrics.healthy, "/ready": metrics.ready}
                    )
            except BaseException:
                store.close()
                raise
        except BaseException:
            await self._close_ports()
            raise
        state = self._state
        await state.registration.register()
        state.registration.start()
        if isinstance(access.gate, PlainGate):
            self._spawn(access.gate.keep_reloading())
        self._held_pulls.start()
        self._schedule.start()
        self._pop.start()
        if self._timers is not None:
            self._timers.start()
        self._every(_ORDER_INFO_S, self._pop.persist_orders)
        persist_offsets = partial(state.config_files.try_persist, state.offsets)
        self._every(config.flush_consumer_offset_interval / 1000, persist_offsets)
        persist_delays = partial(state.config_files.try_persist, state.delay_offsets)
        self._every(config.flush_delay_offset_interval / 1000, persist_delays)
        self._every(_PERSIST_FILTERS_S, self._persist_filters)
        self._every(_SCAN_CLIENTS_S, self._clients.scan_not_active_channels)
        self._every(SAMPLE_S, lambda: state.stats.sample(time.monotonic(), date.today()))
        self._every(config.transaction_check_interval / 1000, self._transactions.check)

    def _consumer_filters(self) -> ConsumerFilterManager:
        """The SQL92 filters of groups; a recovery of the store may need them."""
        config = self._config
        bloom_filter = BloomFilter(config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter)
        return ConsumerFilterManager(
            self._path,
            self._files,
            bloom_filter=bloom_filter,
            is_enabled=config.enable_property_filter,
            now_ms=BrokerState.now_ms(),
            filter_data_clean_time_span=config.filter_data_clean_time_span,
        )

    async def _persist_filters(self) -> None:
        self._state.filters.clean(self._state.now_ms())
        await self._state.config_files.try_persist(self._state.filters)

    def _own_topics(self) -> list[TopicConfig]:
        """The topics that the broker has from its start."""
        config = self._config
        return broker_topics(
            config.broker_name,
            broker_cluster_name=config.broker_cluster_name,
            auto_create_topic_enable=config.auto_create_topic_enable,
            default_topic_queue_nums=config.default_topic_queue_nums,
            cluster_topic_enable=config.cluster_topic_enable,
            broker_topic_enable=config.broker_topic_enable,
            trace_topic_enable=config.trace_topic_enable,
            msg_trace_topic_name=config.msg_trace_topic_name,
            revive_queue_num=config.revive_queue_num,
            timer_wheel_enable=self._store_config.timer_wheel_enable,
        )

    def _serve_from(
        self,
        store: MessageStore,
        own_topics: Sequence[TopicConfig],
        servers: tuple[str, ...],
        access: Access,
        filters: ConsumerFilterManager,
    ) -> None:
        """Make what answers requests."""
        config = self._config
        self._state = state = BrokerState(
            config, store, self.address, servers, self._name_server_client(servers), own_topics, filters,
            self._files,
        )  # fmt: skip
        self._clients = ClientProcessor(state)
        pulls = PullMessageProcessor(state)
        self._held_pulls = pulls.held
        self._schedule = ScheduleMessageService(state)
        self._timers = None if state.timers is None else TimerMessageService(state, state.timers)
        self._pop = Pop(state, self._timers)
        state.dispatch.listeners += (pulls.held, self._schedule, *self._pop.listeners)
        if self._timers is not None:
            state.dispatch.listeners.append(self._timers)
        sends, clients = SendMessageProcessor(state), BrokerToClient(state)
        self._ended = TransactionalOpBatchService(state)
        self._transactions = TransactionalMessageCheckService(state, clients, self._ended)
        processors: tuple[Processor, ...] = (
            sends, pulls, QueryProcessor(state), self._clients, ReplyMessageProcessor(state, sends, clients),
            *admin_processors(state, clients, self._files, self._config_path),
            SendBackProcessor(state), self._schedule, EndTransactionProcessor(state, self._ended),
            RecallMessageProcessor(state, self._timers), *access.processors(state), *self._pop.processors,
        )  # fmt: skip
        gate = access.gate
        self._requests = request_table(
            processors,
            config,
            state.sending,
            state.dispatch.with_all_messages,
            state.rpc_latency,
            None if gate is None else gate.refusal,
        )
        self._sends = SendFrameProcessor(state, self._requests, is_checked=gate is not None)

    def _name_server_client(self, servers: Sequence[str]) -> RemotingClient:
        """What reaches name servers: its own one without the network."""
        own = {} if self._name_server is None else {servers[0]: self._name_server.join}
        return RemotingClient(tls=ClientTls.of(self._config), own_servers=own)

    async def stop(self) -> None:
        """Answer what was accepted, unregister, persist, and close the store clean.

        Raises:
            ReputError: Something could not be made durable; the next start recovers.
        """
        state = self._state
        await state.registration.stop()
        self._held_pulls.answer_all()
        await self._pop.stop()
        await self._requests.drain(_DRAIN_S)
        deadline = self._loop.time() + _DRAIN_S
        while not state.answers.is_empty and self._loop.time() < deadline:
            await asyncio.sleep(0.001)
        for task in self._tasks:
            task.cancel()
        await self._schedule.stop()
        if self._timers is not None:
            await self._timers.stop()
        await self._ended.stop()
        await self._close_ports()
        await state.room.drain()
        await state.dispatch.stop()  # the close of the store dispatches the rest
        try:
            await state.config_files.persist(state.groups)
            await state.config_files.persist(state.filters)
            await state.config_files.persist(state.offsets)
            await state.config_files.persist(state.delay_offsets)
            await state.config_files.persist(self._pop.orders)
        finally:
            for work in (state.reads, state.log_work):
                await state.writes.run(work.stop)
            await state.writes.run(state.store.close)
            state.writes.stop()

    async def _close_ports(self) -> None:
        await self._pages.stop()
        await self._server.stop()
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
                self._sends.take_all(connection)
        except WouldWaitError as error:
            self._state.room.hold(connection, error.room)

    def closed(self, connection: Connection) -> None:
        """Called by the server."""
        self._held_pulls.connection_closed(connection)
        self._pop.connection_closed(connection)
        self._clients.connection_closed(connection)

    # -- files and clients, by time

    def _every(self, seconds: float, work: Callable[[], object]) -> None:
        async def repeat() -> None:
            while True:
                await asyncio.sleep(seconds)
                result = work()
                if isinstance(result, Awaitable):
                    await result

        self._spawn(repeat())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run until the stop."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
