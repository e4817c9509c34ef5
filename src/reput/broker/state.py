"""BrokerState: what the processors of a broker share."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from reput.broker.disk_work import DiskWork
from reput.config.broker import BrokerConfig
from reput.service.consumer_manager import ConsumerManager
from reput.service.consumer_offset_manager import ConsumerOffsetManager
from reput.service.producer_manager import ProducerManager
from reput.service.rebalance_lock_manager import RebalanceLockManager
from reput.service.subscription_group_manager import SubscriptionGroupManager
from reput.service.topic_config_manager import TopicConfigManager
from reput.store.loop_writer import LoopWriter
from reput.store.message_store import MessageStore
from reput.transport.connection import Connection

_READING_THREADS, _WRITING_THREADS, _LOG_THREADS = 8, 2, 2

#: What RocketMQ adds to some remarks (`FAQUrl.suggestTodo`); its tools look for the text before it.
SEE_FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


@dataclass(slots=True)
class BrokerState:
    """State and services of one broker; all is used in the loop's thread, but what `DiskWork` runs.

    Attributes:
        store: Read from, and closed at the end.
        writer: What appends to the store, and dispatches.
        address: "host:port" that clients are told.
        reads: For what reads the store, and may wait for the disk.
        writes: For what writes files of the broker's, or opens and closes.
        log_work: For the log's next file, and for dispatch that makes files: all clients wait for these.
    """

    config: BrokerConfig
    store: MessageStore
    address: str
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    consumers: ConsumerManager[Connection]
    producers: ProducerManager[Connection]
    writer: LoopWriter = field(init=False)
    locks: RebalanceLockManager[tuple[str, str, int]] = field(default_factory=RebalanceLockManager)
    reads: DiskWork = field(init=False)
    writes: DiskWork = field(init=False)
    log_work: DiskWork = field(init=False)

    def __post_init__(self) -> None:
        self.writer = self.store.loop_writer()
        config = self.config
        wait_ms = config.wait_time_mills_in_admin_broker_queue if config.broker_fast_failure_enable else None
        self.reads = DiskWork("reput-broker-read", _READING_THREADS, wait_ms)
        self.writes = DiskWork("reput-broker-write", _WRITING_THREADS, wait_ms)
        self.log_work = DiskWork("reput-broker-log", _LOG_THREADS, wait_ms)

    @property
    def ip(self) -> str:
        """The address of the broker without its port, for remarks."""
        return self.address.rpartition(":")[0]

    @staticmethod
    def now_ms() -> int:
        """The time in ms since 1970 UTC."""
        return int(time.time() * 1000)
