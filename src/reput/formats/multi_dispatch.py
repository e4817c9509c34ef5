"""One record in several queues: multi-dispatch and light message queues (docs/formats/consume-queue.md).

RocketMQ's LmqDispatch, MultiDispatchUtils and `ConsumeQueue.multiDispatchLmqQueue`.
"""

from __future__ import annotations

from reput.formats.consume_queue import SCHEDULE_TOPIC

INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
SEPARATOR = ","

#: Prefix of the names of light message queues; each has only the queue id 0.
LMQ_PREFIX = "%LMQ%"
LMQ_QUEUE_ID = 0

#: Prefixes of topics whose messages have no further queues; nor have messages of the schedule topic.
EXCLUDED_PREFIXES = ("%RETRY%", "rmq_sys_")


def takes_part(topic: str) -> bool:
    """Whether messages of a topic may have further queues (`MixAll.topicAllowsLMQ`)."""
    return not topic.startswith(EXCLUDED_PREFIXES) and topic != SCHEDULE_TOPIC


def split_names(text: str) -> list[str]:
    """The items of a list, split as by Java's `String.split(",")`: empty items at the end are left out."""
    parts = text.split(SEPARATOR)
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts if parts != [""] else []
