"""Names of the topics that POP uses (`KeyBuilder`, `PopAckConstants`)."""

from __future__ import annotations

from reput.formats.message import RETRY_TOPIC_PREFIX
from reput.remoting.topic_validator import SYSTEM_TOPIC_PREFIX

REVIVE_TOPIC_PREFIX = SYSTEM_TOPIC_PREFIX + "REVIVE_LOG_"


def revive_topic_of(cluster: str) -> str:
    """The topic of a cluster's check points and acks."""
    return REVIVE_TOPIC_PREFIX + cluster


def pop_retry_topic_of(topic: str, group: str, *, v2: bool) -> str:
    """The topic with the messages of a topic that a group popped and did not ack.

    v2: as of `enableRetryTopicV2`; without it group `a_b` with topic `c`, and `a` with `b_c`, share one.
    """
    return f"{RETRY_TOPIC_PREFIX}{group}{'+' if v2 else '_'}{topic}"


def normal_topic_of(topic: str, group: str) -> str:
    """The topic whose messages a retry topic has; of another topic, itself (`KeyBuilder.parseNormalTopic`)."""
    for mark in "_+":
        prefix = f"{RETRY_TOPIC_PREFIX}{group}{mark}"
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return topic
