"""Rules for topic names, and the broker's own topics (RocketMQ's `TopicValidator`, names of `MixAll`)."""

from __future__ import annotations

from reput.errors import ConfigError
from reput.formats.consume_queue import SCHEDULE_TOPIC
from reput.formats.message import DLQ_TOPIC_PREFIX as DLQ_TOPIC_PREFIX
from reput.formats.message import MAX_TOPIC_SIZE, RETRY_TOPIC_PREFIX, TOPIC_CHARACTERS

SYSTEM_TOPIC_PREFIX = "rmq_sys_"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
MAX_GROUP_LENGTH = 255

#: The template of topics that a send makes.
AUTO_CREATE_TOPIC = "TBW102"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
BENCHMARK_TOPIC = "BenchmarkTest"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
OFFSET_MOVED_EVENT = "OFFSET_MOVED_EVENT"
TRANS_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
#: A cluster's name before it is its topic of replies (`MixAll.REPLY_TOPIC_POSTFIX`).
REPLY_TOPIC_POSTFIX = "REPLY_TOPIC"
#: A broker's name after it is the topic of the brokers of its group (`TopicValidator.SYNC_BROKER_MEMBER_GROUP_PREFIX`).
SYNC_BROKER_MEMBER_PREFIX = SYSTEM_TOPIC_PREFIX + "SYNC_BROKER_MEMBER_"
TIMER_TOPIC = SYSTEM_TOPIC_PREFIX + "wheel_timer"
_ROCKSDB_OFFSET_TOPIC = "CHECKPOINT_TOPIC"

#: Topics that no client may send to.
NOT_ALLOWED_SEND_TOPICS = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
    }
)
#: Topics of every broker; a broker's own, by its names, come on top (`TopicConfigManager.system_topics`).
SYSTEM_TOPICS = NOT_ALLOWED_SEND_TOPICS | {AUTO_CREATE_TOPIC, BENCHMARK_TOPIC, TRACE_TOPIC, _ROCKSDB_OFFSET_TOPIC}

#: The group in whose dead letters is what waited for its time, and no topic takes (`MixAll.SCHEDULE_CONSUMER_GROUP`).
SCHEDULE_GROUP = "SCHEDULE_CONSUMER"
#: The group of who pulls without a group (`MixAll.TOOLS_CONSUMER_GROUP`).
TOOLS_GROUP = "TOOLS_CONSUMER"
#: The group whose offsets say how far half and op messages are judged.
TRANS_GROUP = "CID_RMQ_SYS_TRANS"
#: Consumer groups that a broker has from its start.
SYSTEM_GROUPS = (
    TOOLS_GROUP,
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    TRANS_GROUP,
)


def validate_topic(topic: str) -> str | None:
    """RocketMQ's remark on a topic's name that a broker refuses; None for a name that it takes."""
    if not topic or topic.isspace():
        return "The specified topic is blank."
    if not set(topic) <= TOPIC_CHARACTERS:
        return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(topic) > MAX_TOPIC_SIZE:
        return "The specified topic is longer than topic max length."
    return None


def is_legal_group(group: str) -> bool:
    """Whether a broker makes a consumer group of this name by itself, and a client may have it."""
    return 0 < len(group) <= MAX_GROUP_LENGTH and set(group) <= TOPIC_CHARACTERS


def check_group(group: object) -> None:
    """Raises ConfigError for a group that no client may have (`Validators.checkGroup`)."""
    if not isinstance(group, str) or not is_legal_group(group):
        raise ConfigError(
            f"group {group!r}: expected a text of 1 to {MAX_GROUP_LENGTH} letters a-z A-Z, digits, %, |, _ and -"
        )


def is_system_group(group: str) -> bool:
    """`MixAll.isSysConsumerGroup`."""
    return group.startswith(SYSTEM_GROUP_PREFIX)


def is_retry_or_dlq_topic(topic: str) -> bool:
    """Whether messages wait in the topic because a group could not consume them."""
    return topic.startswith((RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX))


def retry_topic_of(group: str) -> str:
    """`MixAll.getRetryTopic`: where messages that a group could not consume wait for their next turn."""
    return RETRY_TOPIC_PREFIX + group


def dlq_topic_of(group: str) -> str:
    """`MixAll.getDLQTopic`: where messages go that a group could not consume at all."""
    return DLQ_TOPIC_PREFIX + group
