"""Topics of a broker: which it has from its start, and which it makes for producers and consumers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING

from reput.errors import ConfigError
from reput.formats.consume_queue import SCHEDULE_TOPIC
from reput.formats.message import RETRY_TOPIC_PREFIX
from reput.formats.metadata import DataVersion, TopicConfig
from reput.formats.multi_dispatch import LMQ_PREFIX
from reput.remoting.topic_validator import (
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    OFFSET_MOVED_EVENT,
    REPLY_TOPIC_POSTFIX,
    SELF_TEST_TOPIC,
    SYNC_BROKER_MEMBER_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
    TIMER_TOPIC,
    TRACE_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    dlq_topic_of,
    retry_topic_of,
    validate_topic,
)
from reput.service.attributes import TOPIC_ATTRIBUTES, alter_attributes
from reput.service.pop.topics import revive_topic_of

if TYPE_CHECKING:
    from reput.store.message_store import MessageStore

#: Bits of a topic's permission (`PermName`).
PERM_READ, PERM_WRITE, PERM_INHERIT = 4, 2, 1
_PERM_RW = PERM_READ | PERM_WRITE
#: Bits of a topic's system flag (`TopicSysFlag`): made by a producer, or by a consumer, of a unit.
_UNIT, _UNIT_SUB = 1, 2
_SCHEDULE_TOPIC_QUEUES = 18
#: Queues of a topic that are read because they have messages: an odd queue id makes no million of them.
MOST_QUEUES = 65_535
#: Queues that an operator gives a topic: what goes over all of them takes 10 us for each. RocketMQ's widest has 1024.
MOST_MADE_QUEUES = 8192


def broker_topics(
    broker_name: str,
    *,
    broker_cluster_name: str = "DefaultCluster",
    auto_create_topic_enable: bool = True,
    default_topic_queue_nums: int = 8,
    cluster_topic_enable: bool = True,
    broker_topic_enable: bool = True,
    trace_topic_enable: bool = False,
    msg_trace_topic_name: str = TRACE_TOPIC,
    revive_queue_num: int = 8,
    timer_wheel_enable: bool = True,
) -> list[TopicConfig]:
    """Topics that a broker has from its start (`TopicConfigManager.init`); the arguments are RocketMQ's keys.

    Raises:
        ConfigError: The broker's or the cluster's name cannot be the name of a topic.
    """
    for key, name in (("brokerName", broker_name), ("brokerClusterName", broker_cluster_name)):
        if (remark := validate_topic(name)) is not None:
            raise ConfigError(f"{key}={name!r}: a broker has a topic of this name. {remark}")
    cluster, broker = (
        PERM_INHERIT | (_PERM_RW if enabled else 0) for enabled in (cluster_topic_enable, broker_topic_enable)
    )
    rows = [
        (SELF_TEST_TOPIC, 1, _PERM_RW, True),
        (AUTO_CREATE_TOPIC, default_topic_queue_nums, _PERM_RW | PERM_INHERIT, auto_create_topic_enable),
        (BENCHMARK_TOPIC, 1024, _PERM_RW, True),
        (broker_cluster_name, 16, cluster, True),
        (broker_name, 1, broker, True),
        (OFFSET_MOVED_EVENT, 1, _PERM_RW, True),
        (SCHEDULE_TOPIC, _SCHEDULE_TOPIC_QUEUES, _PERM_RW, True),
        (msg_trace_topic_name, 1, _PERM_RW, trace_topic_enable),
        (f"{broker_cluster_name}_{REPLY_TOPIC_POSTFIX}", 1, _PERM_RW, True),
        (revive_topic_of(broker_cluster_name), revive_queue_num, _PERM_RW, True),
        (SYNC_BROKER_MEMBER_PREFIX + broker_name, 1, PERM_INHERIT, True),
        (TRANS_HALF_TOPIC, 1, _PERM_RW, True),
        (TRANS_OP_HALF_TOPIC, 1, _PERM_RW, True),
        (TIMER_TOPIC, 1, _PERM_RW, timer_wheel_enable),
    ]
    return [TopicConfig(name, queues, queues, perm) for name, queues, perm, enabled in rows if enabled]


class TopicConfigManager:
    """Topics of a broker, over the topics of its store.

    What looks is for the loop and never waits. `create_topic_in_send_message`, `create_retry_topic` and
    `create_dlq_topic` only say which topic is to be made. What writes (`create`, `update`, `delete`) returns when the
    change is on the disk, and may be called from any thread.

    Args:
        store: The broker's store, open for writing.
        own_topics: What `broker_topics` gives for this broker; `create` makes them at a start.
        auto_create_topic_enable: Whether a send makes a topic after the template TBW102; may be changed later.
    """

    def __init__(
        self, store: MessageStore, own_topics: Sequence[TopicConfig], *, auto_create_topic_enable: bool = True
    ) -> None:
        self._store = store
        self.auto_create_topic_enable = auto_create_topic_enable
        self._writing = Lock()
        # Of topics that are not there, as many queues as may have messages; looked for once, at a start.
        self._left: dict[str, int] | None = None
        self.own_topics = tuple(own_topics)
        #: What RocketMQ answers to GET_SYSTEM_TOPIC_LIST_FROM_BROKER.
        self.system_topics = SYSTEM_TOPICS | {config.topic_name for config in own_topics}

    @property
    def topic_config_table(self) -> Mapping[str, TopicConfig]:
        """The topics by name, as of now; a later change makes another table."""
        return MappingProxyType(self._store.topic_metadata.topic_config_table)

    @property
    def data_version(self) -> DataVersion:
        """Number and time of the last change; `MessageStore.topic_metadata` has it beside the topics of one moment."""
        return self._store.topic_metadata.data_version

    def select_topic_config(self, topic: str) -> TopicConfig | None:
        """The configuration of a topic; None if there is no such topic."""
        return self._store.topic_metadata.topic_config_table.get(topic)

    def is_system_topic(self, topic: str) -> bool:
        """Whether the broker owns the topic (`TopicValidator.isSystemTopic`)."""
        return topic in self.system_topics or topic.startswith(SYSTEM_TOPIC_PREFIX)

    def validate_update(self, topic: str) -> str | None:
        """RocketMQ's remark if an operator may not make or change the topic, else None."""
        return validate_topic(topic) or self._conflict(topic)

    def validate_delete(self, topic: str) -> str | None:
        """RocketMQ's remark if an operator may not delete the topic, else None."""
        return "The specified topic is blank." if not topic.strip() else self._conflict(topic)

    def _conflict(self, topic: str) -> str | None:
        return f"The topic[{topic}] is conflict with system topic." if self.is_system_topic(topic) else None

    def create_topic_in_send_message(
        self, topic: str, default_topic: str, client_default_topic_queue_nums: int, *, unit_mode: bool = False
    ) -> TopicConfig | None:
        """The topic that a send to an unknown topic makes; None if the producer hears that there is none.

        As `AbstractSendMessageProcessor.msgCheck`: after the template, else, for a retry topic, with one queue.
        """
        is_retry = topic.startswith(RETRY_TOPIC_PREFIX)
        flag = (_UNIT_SUB if is_retry else _UNIT) if unit_mode else 0
        template = self.select_topic_config(default_topic)
        if (
            template is not None
            and template.perm & PERM_INHERIT
            and (self.auto_create_topic_enable or default_topic != AUTO_CREATE_TOPIC)
        ):
            queues = max(min(client_default_topic_queue_nums, template.write_queue_nums), 0)
            perm = template.perm & ~PERM_INHERIT
            return TopicConfig(topic, queues, queues, perm, template.topic_filter_type, flag)
        return TopicConfig(topic, 1, 1, _PERM_RW, topic_sys_flag=flag) if is_retry else None

    def create_retry_topic(
        self, group: str, retry_queue_nums: int, *, order: bool = False, unit_mode: bool = False
    ) -> TopicConfig | None:
        """The retry topic that a heartbeat or a message sent back makes for a group; None if it is there."""
        flag = _UNIT_SUB if unit_mode else 0
        config = TopicConfig(
            retry_topic_of(group), retry_queue_nums, retry_queue_nums, _PERM_RW, topic_sys_flag=flag, order=order
        )
        return config if self.select_topic_config(config.topic_name) is None else None

    def create_dlq_topic(self, group: str) -> TopicConfig | None:
        """The topic that a group's first dead letter makes; None if it is there."""
        config = TopicConfig(dlq_topic_of(group), 1, 1, _PERM_RW)
        return config if self.select_topic_config(config.topic_name) is None else None

    def create(self, configs: Sequence[TopicConfig]) -> list[TopicConfig]:
        """Make those topics that are not there, and give them back (`createTopicIfAbsent`); any thread, waits.

        A new topic has as many queues to read as the store has messages in: messages of a store that no broker has
        served, or those that were sent while a topic of this name was deleted.

        Raises as `MessageStore.update_topics`.
        """
        with self._writing:
            missing = [config for config in configs if self.select_topic_config(config.topic_name) is None]
            made = [self._readable(config) for config in missing]
            if made:
                self._store.update_topics(made)
            return made

    def queues_with_messages(self) -> dict[str, int]:
        """By topic, one more than the highest id of its queues with messages; light queues are of no topic.

        It goes over all queues of the store: for a start.
        """
        numbers: dict[str, int] = {}
        for queue in self._store.queues():
            if queue.min_offset < queue.max_offset and not queue.topic.startswith(LMQ_PREFIX):
                numbers[queue.topic] = max(numbers.get(queue.topic, 0), queue.queue_id + 1)
        there = self._store.topic_metadata.topic_config_table
        self._left = {topic: number for topic, number in numbers.items() if topic not in there}
        return numbers

    def _readable(self, config: TopicConfig) -> TopicConfig:
        """A topic that is not there, with as many queues to read as have messages."""
        if self._left is None:  # nobody has looked at the start
            self.queues_with_messages()
        topic, left = config.topic_name, self._left or {}
        for queue_id in reversed(range(config.read_queue_nums, min(left.get(topic, 0), MOST_QUEUES))):
            if self._store.min_offset(topic, queue_id) < self._store.max_offset(topic, queue_id):
                return replace(config, read_queue_nums=queue_id + 1)
        return config

    def update(self, configs: Sequence[TopicConfig]) -> list[TopicConfig]:
        """Make topics or change them, as an operator asks, and give back those that changed; any thread, waits.

        The attributes of `configs` are changes, `+name` and `-name` (`alter_attributes`). A new topic has the queues
        to read that it has by `create`; fewer than these are an operator's second word.

        Raises:
            ConfigError: RocketMQ would refuse an attribute or a topic; nothing was changed.
            StoreError: As `MessageStore.update_topics`; nothing was changed.
        """
        with self._writing:
            changed: dict[str, TopicConfig] = {}
            for config in configs:
                if max(config.read_queue_nums, config.write_queue_nums) > MOST_MADE_QUEUES:
                    raise ConfigError(f"topic {config.topic_name}: expected {MOST_MADE_QUEUES} queues at most")
                before = changed.get(config.topic_name) or self.select_topic_config(config.topic_name)
                current = None if before is None else before.attributes
                after = replace(config, attributes=alter_attributes(TOPIC_ATTRIBUTES, current, config.attributes))
                after = self._readable(after) if before is None else after
                if after != before:
                    changed[config.topic_name] = after
            if changed:
                self._store.update_topics(list(changed.values()))
            return list(changed.values())

    def delete(self, topics: Collection[str]) -> None:
        """Forget topics (`deleteTopicConfig`); unknown ones change nothing; any thread, waits.

        Raises as `MessageStore.delete_topic_config`.
        """
        with self._writing:
            there = self._store.topic_metadata.topic_config_table
            self._store.delete_topic_config(topics)
            if self._left is not None:  # messages may have come meanwhile
                self._left |= {
                    one: max(there[one].read_queue_nums, there[one].write_queue_nums) for one in topics if one in there
                }
