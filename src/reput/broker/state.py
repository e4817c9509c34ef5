"""BrokerState: the parts of a broker, each made once."""

from __future__ import annotations

from collections.abc import Sequence

from reput.broker.access.found_names import AccessGate, FoundNames
from reput.broker.appends.dead_letters import DeadLetters
from reput.broker.appends.durable_answers import DurableAnswers
from reput.broker.appends.inner_appends import Appends
from reput.broker.appends.loop_dispatch import LoopDispatch
from reput.broker.appends.put_hooks import PutHooks
from reput.broker.appends.replica_acks import ReplicaAcks
from reput.broker.appends.room_waiters import RoomWaiters
from reput.broker.appends.send_path import SendPath
from reput.broker.clock import BrokerClock
from reput.broker.disk_work import DiskPools
from reput.broker.registration import Registration
from reput.broker.rpc_latency import RpcLatency
from reput.broker.slave.following import Following
from reput.broker.state_files import StateFiles
from reput.broker.topic_creation import TopicCreation
from reput.broker.view import BrokerView
from reput.config.broker import BrokerConfig, BrokerRole, MetricsExporterType
from reput.config.message_store import FlushDiskType
from reput.files import FileLayer
from reput.formats.metadata import TopicConfig, TransactionMetrics
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
from reput.service.topic_metrics_manager import TopicMetricsManager
from reput.store.loop_writer import LoopWriter
from reput.store.message_store import MessageStore
from reput.store.timer.timer_message_store import TimerMessageStore
from reput.transport.channel import Channel
from reput.transport.client import RemotingClient
from reput.transport.request_queue import RequestQueue


class BrokerState:
    """Parts of one broker; all are used in the loop's thread, but what `DiskPools` run.

    Only what puts a broker together sees all of them: a processor or a service takes those that it uses.

    Args:
        config: The broker's keys.
        store: Open, with `dispatch="caller"`.
        address: "host:port" that clients get.
        name_servers: "host:port" of each.
        name_server_client: Reaches them.
        own_topics: The topics that the broker has from its start.
        filters: SQL92 filters of groups.
        files: The file layer.
        ha: Serves the log to slaves; None without `haListenPort`.
        gate: Checks requests; None if nobody asks who may do what.

    Attributes:
        view: Configuration and address.
        clock: The time.
        pools: Threads for what may wait for the disk.
        store: Read from, and closed at the end.
        files: The file layer.
        topics, groups, offsets, delay_offsets, transactions, filters: Tables that are kept in files.
        config_files: Writes these.
        consumers, producers: Clients that are connected.
        locks: Queues that members of groups have locked.
        creation: Topics that clients make.
        registration: At the name servers.
        send_path: What sends go through.
        dispatch: Dispatch, and who waits for messages.
        timers: Which messages wait for which time; None with timerWheelEnable=false.
        appends: Messages of the broker's own.
        dead_letters: Takes what the broker can never put again.
        stats: What is counted of requests.
        rpc_latency: How long requests take, if somebody asks for it.
        found_names: Checks what requests turn out to be about.
        ha: As given.
        slave: Follows the master; None of a master.
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
        gate: AccessGate | None,
    ) -> None:
        self.store, self.files, self.filters, self.ha = store, files, filters, ha
        self.view = BrokerView(config, address)
        self.found_names = FoundNames(gate)
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
        self.transactions = TopicMetricsManager(TransactionMetrics, store.path, files)
        expired_ms = config.channel_expired_timeout
        self.consumers: ConsumerManager[Channel] = ConsumerManager(channel_expired_timeout_ms=expired_ms)
        self.producers: ProducerManager[Channel] = ProducerManager(channel_expired_timeout_ms=expired_ms)
        self.stats = BrokerStatsManager(config.broker_cluster_name, store.topic_counts)
        is_measured = config.metrics_exporter_type is MetricsExporterType.PROM
        self.rpc_latency = RpcLatency() if is_measured else None
        self.locks: RebalanceLockManager[tuple[str, str, int]] = RebalanceLockManager()
        self.pools = DiskPools(
            config.wait_time_mills_in_admin_broker_queue if config.broker_fast_failure_enable else None
        )

        writer = store.loop_writer()
        if config.broker_role is BrokerRole.SLAVE:
            writer.take_copies_only()
        self.clock = BrokerClock(lambda: store.max_commit_log_offset, writer.put_time_forward)
        self.config_files = StateFiles(self.pools.writes, writer.flush)
        self.dispatch = LoopDispatch(store, writer, self.pools.log_work)
        self.timers = TimerMessageStore(store, files, self.clock.now_ms()) if store.config.timer_wheel_enable else None
        self.send_path = path = self._send_path(writer)
        self.appends = Appends(
            writer, path.room, self.dispatch, path.hooks, self.clock.now_ms, is_sync=self._is_sync,
            replicas=path.replicas,
        )  # fmt: skip
        self.registration = Registration(config, store, address, name_servers, name_server_client)
        self.slave: Following | None = None
        self.creation = TopicCreation(self.topics, self.pools.writes, self.registration.register_topics)
        self.dead_letters = DeadLetters(self.appends, self.creation, self.stats)

    @property
    def _is_sync(self) -> bool:
        return self.store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH

    def _send_path(self, writer: LoopWriter) -> SendPath:
        config, store_config, ha = self.view.config, self.store.config, self.ha
        queue = RequestQueue("sends", config.send_thread_pool_queue_capacity)
        is_sync_master = config.broker_role is BrokerRole.SYNC_MASTER
        replicas = ReplicaAcks(ha, config) if ha is not None and is_sync_master else None
        return SendPath(
            queue=queue,
            replicas=replicas,
            hooks=PutHooks(store_config, _no_message if self.timers is None else self.timers.num),
            room=RoomWaiters(writer, self.pools.log_work),
            writer=writer,
            on_append=_nothing if self._is_sync else self.dispatch.soon,
            waits=self._is_sync or replicas is not None,
            answers=DurableAnswers(
                writer, queue, store_config.sync_flush_timeout, on_safe=self.dispatch.soon if self._is_sync else None,
                replicas=replicas, latency=self.rpc_latency,
            ),
        )  # fmt: skip

    def change_config(self, config: BrokerConfig) -> None:
        """Take other values of the keys that are looked at where they are used."""
        self.view.config = self.registration.config = config
        self.filters.is_enabled = config.enable_property_filter
        self.topics.auto_create_topic_enable = config.auto_create_topic_enable
        self.groups.auto_create_subscription_group = config.auto_create_subscription_group
        if self.send_path.replicas is not None:
            self.send_path.replicas.change_config(config)


def _no_message(time_ms: int) -> int:
    """Without timers no message waits for a time."""
    return 0


def _nothing() -> None:
    """Do nothing: a message that is appended under SYNC_FLUSH is dispatched once it is safe."""
