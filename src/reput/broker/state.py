"""BrokerState: what the processors and services of a broker share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from reput.broker.appends.appends import Appends
from reput.broker.appends.dead_letters import DeadLetters
from reput.broker.appends.durable_answers import DurableAnswers
from reput.broker.appends.log_room import RoomWaiters
from reput.broker.appends.loop_dispatch import LoopDispatch
from reput.broker.appends.put_hooks import PutHooks
from reput.broker.appends.put_times import PutTimes
from reput.broker.appends.replica_acks import ReplicaAcks
from reput.broker.disk_work import DiskWork
from reput.broker.registration import Registration
from reput.broker.rpc_latency import RpcLatency
from reput.broker.state_files import StateFiles
from reput.broker.topic_creation import TopicCreation
from reput.config.broker import BrokerConfig, BrokerRole, MetricsExporterType
from reput.config.message_store import FlushDiskType
from reput.files import FileLayer
from reput.formats.metadata import TopicConfig
from reput.remoting.command import RemotingCommand
from reput.replication.follower import FollowState
from reput.replication.ha_service import HAService
from reput.service.broker_stats_manager import BrokerStatsManager
from reput.service.consumer_filter_manager import ConsumerFilterManager
from reput.service.consumer_manager import ConsumerManager
from reput.service.consumer_offset_manager import ConsumerOffsetManager
from reput.service.delay_offset_manager import DelayOffsetManager
from reput.service.producer_manager import ProducerManager
from reput.service.rebalance_lock_manager import RebalanceLockManager
from reput.service.subscription_group_manager import SubscriptionGroupManager
from reput.service.topic_config_manager import TopicConfigManager
from reput.service.transaction_metrics_manager import TransactionMetricsManager
from reput.store.message_store import MessageStore
from reput.store.timer.timer_message_store import TimerMessageStore
from reput.transport.client import RemotingClient
from reput.transport.connection import Connection
from reput.transport.request_queue import RequestQueue

_READING_THREADS, _WRITING_THREADS, _LOG_THREADS = 8, 2, 2

#: What RocketMQ adds to some remarks (`FAQUrl.suggestTodo`); its tools look for the text before it.
SEE_FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


class Following(Protocol):
    """A slave, as others ask it (`reput.broker.slave.slave`)."""

    @property
    def has_master(self) -> bool:
        """Whether the connection to the master stands."""

    @property
    def master_address(self) -> str:
        """The HA address of the master; empty where no name server knows one."""

    @property
    def progress(self) -> FollowState | None:
        """State of the copy; None before the first master."""

    @property
    def copies_nothing(self) -> str | None:
        """Reason why it copies nothing, as one text; None while it copies."""


class AccessGate(Protocol):
    """Access control of requests (`reput.broker.access`)."""

    def require(self, connection: Connection, command: RemotingCommand, found: Mapping[str, str]) -> None:
        """Raise RemotingCommandError unless who asked may do this with what was found, by the header's fields."""


class BrokerState:
    """State and services of one broker; all is used in the loop's thread, but what `DiskWork` runs.

    Args:
        config: The broker's keys.
        store: Open, with `dispatch="caller"`.
        address: "host:port" that clients are told.
        name_servers: "host:port" of each.
        name_server_client: Reaches them.
        own_topics: The topics that the broker has from its start.
        filters: SQL92 filters of groups.
        files: The file layer.
        ha: Serves the log to slaves; None without `haListenPort`.

    Attributes:
        store: Read from, and closed at the end.
        files: The file layer.
        writer: What appends to the store, and dispatches.
        reads: For what reads the store, and may wait for the disk.
        writes: For what writes files of the broker's, or opens and closes.
        log_work: For the log's next file, and for dispatch that makes files: all clients wait for these.
        tables: For whole tables as JSON, one at a time: each takes the interpreter from the loop for a part of seconds.
        room: Room in the log for what is sent.
        dispatch: Dispatch, and who waits for messages.
        on_append: To call after an append: there is something to dispatch, if not before it is synced.
        sending: Where sends wait.
        replicas: When slaves have acknowledged; None where the broker is no SYNC_MASTER.
        waits: Whether answers to sends wait, for a sync or for slaves.
        answers: Answers that wait.
        timers: Which messages wait for which time; None with timerWheelEnable=false.
        hooks: What is done to each message before it is put.
        appends: Messages of the broker's own.
        gate: Checks requests; None where nobody asks who may do what.
        was_put_forward: Set by `put_forward`, for what looks at the time once in a long while.
        slave: Follows the master; None of a master.
        creation: Topics that clients make.
        dead_letters: Takes what the broker can never put again.
        stats: What is counted of requests.
        transactions: How many have not ended.
        rpc_latency: How long requests take, where somebody asks for it.
        registration: At the name servers.
        config_files: Writes topics, groups and offsets.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        address: str,
        name_servers: Sequence[str],
        name_server_client: RemotingClient,
        own_topics: Sequence[TopicConfig],
        filters: ConsumerFilterManager,
        files: FileLayer,
        ha: HAService | None,
    ) -> None:
        self.config, self.store, self.address, self.files = config, store, address, files
        self.topics = TopicConfigManager(store, own_topics, auto_create_topic_enable=config.auto_create_topic_enable)
        self.groups = SubscriptionGroupManager(
            store.path, files, auto_create_subscription_group=config.auto_create_subscription_group
        )
        self.offsets = ConsumerOffsetManager(
            store.path, files, consumer_offset_update_version_step=config.consumer_offset_update_version_step
        )
        self.delay_offsets = DelayOffsetManager(
            store.path, files, delay_offset_update_version_step=config.delay_offset_update_version_step
        )
        self.transactions = TransactionMetricsManager(store.path, files)
        self.filters = filters
        expired_ms = config.channel_expired_timeout
        self.consumers: ConsumerManager[Connection] = ConsumerManager(channel_expired_timeout_ms=expired_ms)
        self.producers: ProducerManager[Connection] = ProducerManager(channel_expired_timeout_ms=expired_ms)
        self.stats = BrokerStatsManager(config.broker_cluster_name, store.topic_counts)
        is_measured = config.metrics_exporter_type is MetricsExporterType.PROM
        self.rpc_latency = RpcLatency() if is_measured else None
        self.locks: RebalanceLockManager[tuple[str, str, int]] = RebalanceLockManager()

        wait_ms = config.wait_time_mills_in_admin_broker_queue if config.broker_fast_failure_enable else None
        self.reads = DiskWork("reput-broker-read", _READING_THREADS, wait_ms)
        self.writes = DiskWork("reput-broker-write", _WRITING_THREADS, wait_ms)
        self.log_work = DiskWork("reput-broker-log", _LOG_THREADS, wait_ms)
        self.tables = DiskWork("reput-broker-table", 1, wait_ms)

        is_sync = store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self.writer = writer = store.loop_writer()
        if config.broker_role is BrokerRole.SLAVE:
            writer.take_copies_only()
        self.config_files = StateFiles(self.writes, writer.flush)
        self.room = RoomWaiters(writer, self.log_work)
        self.dispatch = LoopDispatch(store, writer, self.log_work)
        self.on_append: Callable[[], None] = _nothing if is_sync else self.dispatch.soon
        self.sending = RequestQueue("sends", config.send_thread_pool_queue_capacity)
        self.ha = ha
        is_sync_master = config.broker_role is BrokerRole.SYNC_MASTER
        self.replicas = ReplicaAcks(ha, config) if ha is not None and is_sync_master else None
        self.waits = is_sync or self.replicas is not None
        self.answers = DurableAnswers(
            writer, self.sending, store.config.sync_flush_timeout, on_safe=self.dispatch.soon if is_sync else None,
            replicas=self.replicas, latency=self.rpc_latency,
        )  # fmt: skip
        self._ahead_ms = 0
        self.was_put_forward = asyncio.Event()
        self._put_times = PutTimes(lambda: store.max_commit_log_offset)
        self.timers = TimerMessageStore(store, files, self.now_ms()) if store.config.timer_wheel_enable else None
        self.hooks = PutHooks(store.config, _no_message if self.timers is None else self.timers.num)
        self.appends = Appends(
            writer, self.room, self.dispatch, self.hooks, self.now_ms, is_sync=is_sync, replicas=self.replicas
        )
        self.registration = Registration(config, store, address, name_servers, name_server_client)
        self.gate: AccessGate | None = None
        self.slave: Following | None = None
        self.creation = TopicCreation(self.topics, self.writes, self.registration.register)
        self.dead_letters = DeadLetters(self.appends, self.creation, self.stats)

    def require(self, connection: Connection, command: RemotingCommand, **found: str) -> None:
        """Let a request go on with what it has found by an offset, as if its header had named it: `topic="orders"`.

        Raises RemotingCommandError where who asked may not.
        """
        if self.gate is not None:
            self.gate.require(connection, command, found)

    def change_config(self, config: BrokerConfig) -> None:
        """Take other values of the keys that are looked at where they are used."""
        self.config = self.registration.config = config
        self.filters.is_enabled = config.enable_property_filter
        self.topics.auto_create_topic_enable = config.auto_create_topic_enable
        self.groups.auto_create_subscription_group = config.auto_create_subscription_group
        if self.replicas is not None:
            self.replicas.change_config(config)

    @property
    def ip(self) -> str:
        """The address of the broker without its port, for remarks."""
        return self.address.rpartition(":")[0]

    def now_ms(self) -> int:
        """The time in ms since 1970 UTC, of messages and of all that waits for one."""
        return int(time.time() * 1000) + self._ahead_ms

    def put_ms(self, commit_log_offset: int, stored_ms: int) -> int:
        """Time of a message's put in ms, for delays: its store time may be ahead of a clock that was set."""
        return self._put_times.put_ms(commit_log_offset, stored_ms, self.now_ms())

    def note_put_time(self) -> None:
        """Something has arrived: `put_ms` knows when."""
        self._put_times.note(self.now_ms())

    @staticmethod
    def machine_ms() -> int:
        """The machine's time, whatever `put_forward` has done: that of clients, their heartbeats and locks."""
        return int(time.time() * 1000)

    def put_forward(self, ms: int) -> None:
        """Let the time of messages be later from now on; messages that come get it, too."""
        self._ahead_ms += ms
        self.writer.put_time_forward(self.now_ms())
        self.was_put_forward.set()


def _no_message(time_ms: int) -> int:
    """Without timers no message waits for a time."""
    return 0


def _nothing() -> None:
    """Do nothing: a message that is appended under SYNC_FLUSH is dispatched once it is safe."""
