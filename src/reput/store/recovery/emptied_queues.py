"""Emptied queues at a start: if their files are lost, the next offset is put back as it was recorded."""

from __future__ import annotations

import logging

from reput.files import FileLayer
from reput.log.next_offsets import recorded_next_offsets
from reput.store.log.commit_log import CommitLog
from reput.store.queues.tables import QueueTables

logger = logging.getLogger("reput.store")


def put_back_next_offsets(root: str, files: FileLayer, log: CommitLog, queues: QueueTables) -> None:
    """Let queues without a record in the log go on where they were, though their units are lost.

    Args:
        root: The store directory.
        files: The file layer.
        log: The log.
        queues: All records of the log have their units.
    """
    for (topic, queue_id), offset in recorded_next_offsets(root, files, log.min_offset).items():
        queue = queues.find(topic, queue_id)
        if queue is not None and (queue.max_offset >= offset or queue.max_physical_offset > log.min_offset):
            continue
        found = 0 if queue is None else queue.max_offset
        queues.begin_at(topic, queue_id, offset)
        logger.warning(
            "%s: queue %s/%d has no message any more, and its files said that the next one gets queue offset %d: they "
            "are lost; it gets %d, as was recorded",
            root, topic, queue_id, found, offset,
        )  # fmt: skip
    for one in queues.simple.queues():
        if 0 < one.min_offset == one.max_offset and one.max_physical_offset < 0:  # fillers, as of an earlier start
            queues.begin_at(one.topic, one.queue_id, one.max_offset)
