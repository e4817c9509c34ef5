"""Topics of a start, and TopicCreation: those that sends and heartbeats make, there before they are used."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial

from reput.broker.disk_work import DiskWork
from reput.config.broker import BrokerConfig
from reput.config.message_store import MessageStoreConfig
from reput.events import Event
from reput.formats.metadata import TopicConfig
from reput.formats.multi_dispatch import LMQ_PREFIX
from reput.service.topic_config_manager import TopicConfigManager, broker_topics
from reput.store.message_store import MessageStore

logger = logging.getLogger("reput.broker")

_MOST = 1000


def own_topics(config: BrokerConfig, store_config: MessageStoreConfig) -> list[TopicConfig]:
    """The topics that a broker has from its start; raises ConfigError where a name of its own can be no topic's."""
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
        timer_wheel_enable=store_config.timer_wheel_enable,
    )


def warn_of_missing_topics(store: MessageStore) -> None:
    """Name the topics that have messages and are not there: nobody can read these messages.

    Such a topic was deleted; or it was made on a master that was lost before this broker, its slave, had copied it.
    Only an operator knows which. Light message queues are no topics.
    """
    topics = {queue.topic for queue in store.queues() if queue.min_offset < queue.max_offset}
    missing = sorted(
        name for name in topics - store.topic_metadata.topic_config_table.keys() if not name.startswith(LMQ_PREFIX)
    )
    if missing:
        what = "messages cannot be read, as their topics are not there; `reput admin create-topic` makes a topic again"
        logger.warning(Event(what, count=len(missing), topics=", ".join(missing)))


class TopicCreation:
    """Makes topics beside the loop; requests for one topic at the same time wait for one creation, in their order.

    Args:
        topics: The broker's.
        writes: Where files of the broker's are written.
        register: Tells the name servers, and returns when they know.
    """

    def __init__(self, topics: TopicConfigManager, writes: DiskWork, register: Callable[[], Awaitable[None]]) -> None:
        self._topics = topics
        self._writes = writes
        self._register = register
        self._creating: dict[str, asyncio.Task[None]] = {}
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}

    def is_creating(self, topic: str) -> bool:
        """Whether a topic is being made: what is sent to it waits, though it may be there already."""
        return topic in self._creating or topic in self._turns

    @contextmanager
    def waiting(self, topic: str) -> Iterator[asyncio.Lock]:
        """For a send that waits for a topic, which counts as new until it has been done; the lock keeps their order."""
        lock, count = self._turns.get(topic) or (asyncio.Lock(), 0)
        self._turns[topic] = lock, count + 1
        try:
            yield lock
        finally:
            lock, count = self._turns.pop(topic)
            if count > 1:
                self._turns[topic] = lock, count - 1

    def start(self, config: TopicConfig) -> asyncio.Task[None]:
        """Begin to make a topic, if nobody does so already; the task is done when name servers know the topic."""
        name = config.topic_name
        task = self._creating.get(name)
        if task is None:
            task = self._creating[name] = asyncio.get_running_loop().create_task(self._create(config))
            task.add_done_callback(partial(self._done, name))
        return task

    def _done(self, topic: str, task: asyncio.Task[None]) -> None:
        del self._creating[topic]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error(Event("a topic was not made", topic=topic, error=error))

    @property
    def is_full(self) -> bool:
        """Whether so many topics are being made that heartbeats, which come again, begin no more."""
        return len(self._creating) >= _MOST

    async def create(self, config: TopicConfig) -> TopicConfig:
        """Make a topic, and return it as it is then; errors as of `TopicConfigManager.create`."""
        await asyncio.shield(self.start(config))
        return self._topics.select_topic_config(config.topic_name) or config

    async def _create(self, config: TopicConfig) -> None:
        if await self._writes.run(self._topics.create, [config]):
            logger.info(Event("topic made by a client", topic=config.topic_name, queues=config.write_queue_nums))
            await self._register()
