"""Topics of a start, and TopicCreation: those that sends and heartbeats make, there before they are used."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial

from reput.broker.disk_work import DiskWork
from reput.config.broker import BrokerConfig
from reput.config.message_store import MessageStoreConfig
from reput.errors import ConfigError
from reput.events import Event
from reput.formats.metadata import TopicConfig
from reput.remoting.topic_validator import SELF_TEST_TOPIC
from reput.service.topic_config_manager import MOST_QUEUES, TopicConfigManager, broker_topics

logger = logging.getLogger("reput.broker")

_MOST = 1000
#: A topic that is made for its messages has no more queues to write: one odd queue id spreads no producer over more.
_MOST_TO_WRITE = 1024


def own_topics(config: BrokerConfig, store_config: MessageStoreConfig) -> list[TopicConfig]:
    """The topics that a broker has from its start; raises ConfigError if a name of its own can be no topic's."""
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


def create_first(topics: TopicConfigManager) -> None:
    """Make the topics of a start: the broker's own, and the topics of the messages if no broker has been before.

    `reput put`, `import` and `replay`, and programs with a store of their own, need no topics for their messages; a
    client reads what is in a topic. If a broker has been before, a topic that is not there was deleted.
    """
    if topics.select_topic_config(SELF_TEST_TOPIC) is None:
        found = [
            TopicConfig(name, queues, min(queues, _MOST_TO_WRITE))
            for name, queues in sorted(topics.queues_with_messages().items())
            if topics.validate_update(name) is None and queues <= MOST_QUEUES
        ]
        made = _create_each(topics, found)
        if made:
            names = ", ".join(config.topic_name for config in made)
            logger.info(Event("topics made for the messages of the store", count=len(made), topics=names))
    topics.create(topics.own_topics)  # last: a start that was killed before does it all again


def _create_each(topics: TopicConfigManager, configs: list[TopicConfig]) -> list[TopicConfig]:
    """Make topics, in one write unless one is refused: one with batch queues, which lacks its configuration, is."""
    try:
        return topics.create(configs)
    except ConfigError as error:
        if len(configs) == 1:
            logger.warning(Event("a topic of messages was not made", topic=configs[0].topic_name, error=error))
            return []
    return [made for config in configs for made in _create_each(topics, [config])]


def warn_of_unread_queues(topics: TopicConfigManager) -> None:
    """Name the topics with messages in queues that nobody can read, as the topic is not there or has fewer queues.

    Such a topic was made on a master that was lost before this broker, its slave, had copied it; or it was made with
    fewer queues; or it was deleted by RocketMQ's broker, which leaves no begin. Only an operator knows which.
    """
    missing, narrow = [], []
    for name, queues in sorted(topics.queues_with_messages().items()):
        config = topics.select_topic_config(name)
        if config is None:
            missing.append(name)
        elif config.read_queue_nums < queues:
            narrow.append(f"{name} ({config.read_queue_nums} of {queues})")
    if missing:
        what = "messages cannot be read, as their topics are not there; `reput admin create-topic` makes a topic again"
        logger.warning(Event(what, count=len(missing), topics=", ".join(missing)))
    if narrow:
        what = (
            "messages cannot be read, as their topics have fewer queues; `reput admin create-topic --queues` adds some"
        )
        logger.warning(Event(what, count=len(narrow), topics=", ".join(narrow)))


class TopicCreation:
    """Makes topics beside the loop; requests for one topic at the same time wait for one creation, in their order.

    Topics that are asked for while others are being made are made together: each write has all topics.

    Args:
        topics: The broker's.
        writes: Where files of the broker's are written.
        register: Tells the name servers of topics, and returns when they know.
    """

    def __init__(
        self,
        topics: TopicConfigManager,
        writes: DiskWork,
        register: Callable[[Collection[str]], Awaitable[None]],
    ) -> None:
        self._topics = topics
        self._writes = writes
        self._register = register
        self._creating: dict[str, asyncio.Future[None]] = {}
        self._waiting: list[TopicConfig] = []
        self._task: asyncio.Task[None] | None = None
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

    def start(self, config: TopicConfig) -> asyncio.Future[None]:
        """Begin to make a topic, if nobody does so already; the result is there when name servers know the topic."""
        name = config.topic_name
        found = self._creating.get(name)
        if found is None:
            found = self._creating[name] = asyncio.get_running_loop().create_future()
            found.add_done_callback(partial(self._done, name))
            self._waiting.append(config)
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._create_all())
        return found

    def _done(self, topic: str, creation: asyncio.Future[None]) -> None:
        del self._creating[topic]
        if not creation.cancelled() and (error := creation.exception()) is not None:
            logger.error(Event("a topic was not made", topic=topic, error=error))

    @property
    def is_full(self) -> bool:
        """Whether no further topic may be begun for a heartbeat, which comes again: `_MOST` are being made."""
        return len(self._creating) >= _MOST

    async def stop(self) -> None:
        """Return when no topic is being made: nobody asks for another one."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def create(self, config: TopicConfig) -> TopicConfig:
        """Make a topic, and return it as it is then; errors as of `TopicConfigManager.create`."""
        await asyncio.shield(self.start(config))
        return self._topics.select_topic_config(config.topic_name) or config

    async def _create_all(self) -> None:
        try:
            while self._waiting:
                configs, self._waiting = self._waiting, []
                await self._create_each(configs)
        finally:
            self._task = None

    async def _create_each(self, configs: list[TopicConfig]) -> None:
        """Make topics, in one write unless one is refused, which is then to be found."""
        try:
            made = await self._writes.run(self._topics.create, configs)
        except ConfigError as error:
            if len(configs) == 1:
                self._tell(configs, error)
                return
            middle = len(configs) // 2
            await self._create_each(configs[:middle])
            await self._create_each(configs[middle:])
        except Exception as error:
            self._tell(configs, error)
        else:
            for config in made:
                logger.info(Event("topic made by a client", topic=config.topic_name, queues=config.write_queue_nums))
            try:
                if made:
                    await self._register([config.topic_name for config in made])
            finally:  # they are made, whoever knows of it
                self._tell(configs, None)

    def _tell(self, configs: list[TopicConfig], error: Exception | None) -> None:
        for config in configs:
            creation = self._creating[config.topic_name]
            if error is not None:
                creation.set_exception(error)
            else:
                creation.set_result(None)
