"""RocketMQ's JSON files below `config/` (docs/formats/metadata.md): topics, groups, offsets, filters.

One frozen dataclass for each of RocketMQ's classes; members have RocketMQ's names in snake_case. A member that a file
lacks has its default (4.9.7 writes fewer members). An unknown member is kept in `others` and written again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any, TypeVar

from reput.formats.consumers import MessageRequestMode
from reput.formats.fastjson import decode_fastjson, encode_fastjson
from reput.formats.java_bean import decode_bean, encode_bean

_T = TypeVar("_T")


class TopicFilterType(StrEnum):
    """Whether a message of the topic has one tag or several (RocketMQ does not use several)."""

    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


class TopicMessageType(StrEnum):
    """Kind of messages that a topic is made for (its attribute `message.type`)."""

    UNSPECIFIED = "UNSPECIFIED"
    NORMAL = "NORMAL"
    FIFO = "FIFO"
    DELAY = "DELAY"
    TRANSACTION = "TRANSACTION"
    MIXED = "MIXED"


@dataclass(frozen=True, slots=True)
class DataVersion:
    """Number of changes of a file, and the time of the last change (ms since 1970 UTC)."""

    counter: int = 0
    state_version: int = 0
    timestamp: int = 0
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic. `perm`: 4 read, 2 write, 1 inherit; `attributes`: `queue.type`, `cleanup.policy`, `message.type`.

    Files of others have any values, so a store checks them where a topic is given to it (`MessageStore.update_topic`).
    """

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG
    topic_sys_flag: int = 0
    order: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Topics:
    """`topics.json` (`TopicConfigSerializeWrapper`): topics by name.

    `begin_offset_table` is reput's own: by the name of a deleted topic, the end of the log at that moment. What a topic
    of this name, made later, has in the log before this offset is none of its messages. None without any.
    """

    topic_config_table: Mapping[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = DataVersion()
    others: Mapping[str, Any] = field(default_factory=dict)
    begin_offset_table: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class SimpleSubscriptionData:
    """A group's subscription to one topic."""

    topic: str
    expression_type: str = "TAG"
    expression: str = "*"
    version: int = 0
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SubscriptionGroupConfig:
    """One consumer group."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    group_retry_policy: Mapping[str, Any] = field(default_factory=lambda: {"type": "CUSTOMIZED"})
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    subscription_data_set: tuple[SimpleSubscriptionData, ...] | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SubscriptionGroups:
    """`subscriptionGroup.json` (`SubscriptionGroupManager`): groups by name; forbidden bits by group and topic."""

    subscription_group_table: Mapping[str, SubscriptionGroupConfig] = field(default_factory=dict)
    forbidden_table: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    data_version: DataVersion = DataVersion()
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConsumerOffsets:
    """`consumerOffset.json` (`ConsumerOffsetManager`): next queue offset by `topic@group` and queue id.

    `copied_offset_table` is reput's own: if a slave has another offset than its master, the master's; -1 for none.
    """

    offset_table: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    data_version: DataVersion = DataVersion()
    others: Mapping[str, Any] = field(default_factory=dict)
    copied_offset_table: Mapping[str, Mapping[int, int]] | None = None


@dataclass(frozen=True, slots=True)
class LmqConsumerOffsets:
    """`lmqConsumerOffset.json` (`LmqConsumerOffsetManager`): as ConsumerOffsets, and light queues by `topic@group`."""

    offset_table: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    lmq_offset_table: Mapping[str, int] = field(default_factory=dict)
    data_version: DataVersion = DataVersion()
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DelayOffsets:
    """`delayOffset.json` (`ScheduleMessageService`): next offset of each delay level; level n has queue n - 1."""

    offset_table: Mapping[int, int] = field(default_factory=dict)
    data_version: DataVersion = DataVersion()
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicMetric:
    """Messages of one topic that wait for something, and when that changed last (ms since 1970 UTC)."""

    count: int = 0
    time_stamp: int = 0
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TimerMetrics:
    """`timermetrics` (`TimerMetrics`): messages that wait for a time by the topic they go to."""

    timing_count: Mapping[str, TopicMetric] = field(default_factory=dict)
    data_version: DataVersion = DataVersion()
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TransactionMetrics:
    """`transactionMetrics` (`TransactionMetrics`): transactions that have not ended, by the topic of their message."""

    transaction_count: Mapping[str, TopicMetric] = field(default_factory=dict)
    data_version: DataVersion = DataVersion()
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BloomFilterData:
    """Bits that a subscription sets in the bit map of a consume queue ext unit."""

    bit_num: int = 0
    bit_pos: tuple[int, ...] = ()
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConsumerFilterData:
    """One SQL92 subscription of a group; times in ms since 1970 UTC."""

    consumer_group: str
    topic: str
    expression: str
    expression_type: str
    born_time: int = 0
    dead_time: int = 0
    dead: bool = False
    client_version: int = 0
    bloom_filter_data: BloomFilterData | None = None
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FilterDataMapByTopic:
    """The subscriptions of one topic, by group."""

    topic: str
    group_filter_data: Mapping[str, ConsumerFilterData] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConsumerFilters:
    """`consumerFilter.json` (`ConsumerFilterManager`): SQL92 subscriptions by topic."""

    filter_data_by_topic: Mapping[str, FilterDataMapByTopic] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OrderInfo:
    """The messages of a queue that a group popped in order last, by RocketMQ's short names (`OrderInfo`).

    Times are in ms. `o`: the first offset, and by how much each other one is greater; `cm`: bit n is set if message
    n is acked; `oc`: by offset, how often a message was delivered before; `ot`: until when it is invisible, if that
    was changed; `i`: for how long the others are; `l`: the time of the last pop; `a`: its attemptId.
    """

    pop_time: int = 0
    i: int | None = None
    l: int = 0  # noqa: E741
    o: list[int] = field(default_factory=list)
    cm: int = 0
    oc: Mapping[int, int] | None = None
    ot: Mapping[int, int] | None = None
    a: str | None = None
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConsumerOrderInfos:
    """`consumerOrderInfo.json` (`ConsumerOrderInfoManager`): pops in order by `topic@group` and queue id."""

    table: Mapping[str, Mapping[int, OrderInfo]] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MessageRequestModeBody:
    """Mode in which the members of a group get the messages of a topic (`SetMessageRequestModeRequestBody`).

    `pop_share_queue_num`: of how many other members each gets the queues too; 0 and less of all.
    """

    topic: str
    consumer_group: str
    mode: MessageRequestMode = MessageRequestMode.PULL
    pop_share_queue_num: int = 0
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MessageRequestModes:
    """`messageRequestMode.json` (`MessageRequestModeManager`): by topic and group."""

    message_request_mode_map: Mapping[str, Mapping[str, MessageRequestModeBody]] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)


#: The member of `Topics.begin_offset_table` in the file.
BEGIN_OFFSET_TABLE = "beginOffsetTable"
#: The table of topics in their file, if there are none.
_NO_TOPICS = b'\n\t"topicConfigTable":{}'

#: File names of the classes above. Any other JSON file of RocketMQ's is read as plain values.
FILE_NAMES: dict[type, str] = {
    Topics: "topics.json",
    SubscriptionGroups: "subscriptionGroup.json",
    ConsumerOffsets: "consumerOffset.json",
    LmqConsumerOffsets: "lmqConsumerOffset.json",
    DelayOffsets: "delayOffset.json",
    ConsumerFilters: "consumerFilter.json",
    ConsumerOrderInfos: "consumerOrderInfo.json",
    MessageRequestModes: "messageRequestMode.json",
    TimerMetrics: "timermetrics",
    TransactionMetrics: "transactionMetrics",
}


def decode_metadata(kind: type[_T], data: bytes) -> _T:
    """Content of a file as an instance of one of the classes of `FILE_NAMES`.

    Raises CorruptMetadataError (path '') for bytes that are not fastjson's (with the position), and for a member of
    another type.
    """
    return decode_bean(kind, decode_fastjson(data))


def encode_metadata(value: object) -> bytes:
    """Bytes of a file as RocketMQ writes it; tables keep their order."""
    return encode_fastjson(encode_bean(value))


def encode_topics(topics: Topics, members: Iterable[bytes]) -> bytes:
    """Bytes of topics as `encode_metadata` gives them; `members`: of each topic, in order, from `encode_topic`."""
    table = b",".join(members)
    frame = encode_metadata(replace(topics, topic_config_table={}))
    if not table:
        return frame
    before, _, after = frame.partition(_NO_TOPICS)  # no text has a line end, so it is there once
    return b"".join((before, _NO_TOPICS[:-1], table, b"\n\t}", after))


def encode_topic(name: str, config: TopicConfig) -> bytes:
    """Bytes of a topic, with its name in the table, for `encode_topics`.

    Topics differ in their names for the most part: what is around the names is encoded once.
    """
    if config.others:
        return _member(name, config)
    before, after = _around_name(
        config.read_queue_nums, config.write_queue_nums, config.perm, config.topic_filter_type, config.topic_sys_flag,
        config.order, tuple(config.attributes.items()),
    )  # fmt: skip
    own_name = encode_fastjson(config.topic_name)
    key = own_name if name == config.topic_name else encode_fastjson(name)
    return b"".join((b"\n\t\t", key, before, own_name, after))


def _member(name: str, config: TopicConfig) -> bytes:
    """Bytes of a topic as the only one of a table."""
    frame = encode_metadata({"topicConfigTable": {name: config}})
    return frame.partition(_NO_TOPICS[:-1])[2].removesuffix(b"\n\t}\n}")


@lru_cache(1024, typed=True)  # True is no 1
def _around_name(
    read: int,
    write: int,
    perm: int,
    kind: TopicFilterType,
    flag: int,
    order: bool,
    attributes: tuple[tuple[str, str], ...],
) -> tuple[bytes, bytes]:
    """Bytes of a topic before and after its own name."""
    text = _member("", TopicConfig("", read, write, perm, kind, flag, order, dict(attributes)))
    before, mark, after = text.removeprefix(b'\n\t\t""').rpartition(b'"topicName":""')  # attributes are before it
    return before + mark[:-2], after


def split_topic_group(key: str) -> tuple[str, str]:
    """`topic@group` -> (topic, group)."""
    topic, _, group = key.partition("@")
    return topic, group
