"""BrokerState: what the processors of a broker share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from reput.broker.disk_reads import DiskReads
from reput.config.broker import BrokerConfig
from reput.service.consumer_manager import ConsumerManager
from reput.service.consumer_offset_manager import ConsumerOffsetManager
from reput.service.producer_manager import ProducerManager
from reput.service.rebalance_lock_manager import RebalanceLockManager
from reput.service.subscription_group_manager import SubscriptionGroupManager
from reput.service.topic_config_manager import TopicConfigManager
from reput.store.message_store import MessageStore
from reput.transport.connection import Connection

_T = TypeVar("_T")

#: What RocketMQ adds to some remarks (`FAQUrl.suggestTodo`); its tools look for the text before it.
SEE_FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


@dataclass(slots=True)
class BrokerState:
    """State and services of one broker; all is used in the loop's thread, but what runs in the `pool`.

    Attributes:
        address: "host:port" that clients are told.
        reads: Threads for reads that may wait for the disk.
        pool: Threads for all else that may.
    """

    config: BrokerConfig
    store: MessageStore
    address: str
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    consumers: ConsumerManager[Connection]
    producers: ProducerManager[Connection]
    locks: RebalanceLockManager[tuple[str, str, int]] = field(default_factory=RebalanceLockManager)
    reads: DiskReads = field(default_factory=DiskReads)
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(2, "reput-broker-disk"))

    @property
    def ip(self) -> str:
        """The address of the broker without its port, for remarks."""
        return self.address.rpartition(":")[0]

    @staticmethod
    def now_ms() -> int:
        """The time in ms since 1970 UTC."""
        return int(time.time() * 1000)

    async def in_pool(self, function: Callable[..., _T], *arguments: object) -> _T:
        """Call a function in a thread of the pool: it may wait for the disk, the loop may not."""
        return await asyncio.get_running_loop().run_in_executor(self.pool, function, *arguments)
