"""Rules of a dispatch: differences between RocketMQ's versions (table in docs/design/differences.md), and keys."""

from __future__ import annotations

from enum import StrEnum

#: Keys of `MessageStoreConfig` that say which files a dispatch makes of a log, and how large they are.
BUILD_KEYS = (
    "mapped_file_size_consume_queue",
    "mapper_file_size_batch_consume_queue",
    "max_hash_slot_num",
    "max_index_num",
    "enable_consume_queue_ext",
    "mapped_file_size_consume_queue_ext",
    "enable_lmq",
    "message_delay_level",
)


class DispatchRules(StrEnum):
    """RocketMQ version whose queues, index and batches are written; each was compared with that version's stores."""

    V4_9_7 = "4.9.7"
    V5_3_3 = "5.3.3"
    V5_5_0 = "5.5.0"
    V5_5_1 = "5.5.1"

    @property
    def indexes_tags(self) -> bool:
        """Whether a message is indexed under `topic#T#TAGS`, too, after its keys (`IndexService.buildIndex`)."""
        return self in _SINCE_5_5

    @property
    def redispatches_deliver_time(self) -> bool:
        """Whether recovery and rebuild give a delayed message's unit the time of delivery, as live dispatch does.

        4.9.7 recovers before it knows the delay levels, and writes the hash of the tags
        (`CommitLog.checkMessageAndReturnSize`).
        """
        return self is not DispatchRules.V4_9_7

    @property
    def multi_dispatches_any_topic(self) -> bool:
        """Whether messages of retry topics, system topics and the schedule topic have further queues, too.

        5.x leaves these topics out (`MixAll.topicAllowsLMQ`), because a retried message keeps its INNER_MULTI_DISPATCH.
        """
        return self is DispatchRules.V4_9_7

    @property
    def items_take_batch_properties(self) -> bool:
        """Whether each item of a batch gets the batch's properties after its own (`MessageExtEncoder.encode`)."""
        return self not in _SINCE_5_5


_SINCE_5_5 = (DispatchRules.V5_5_0, DispatchRules.V5_5_1)
