"""Consumer offsets after the end of their queue: the group has consumed messages that a power cut or damage took."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence, Set

from reput.errors import CorruptMetadataError
from reput.files import DISK
from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE, decode_batch_unit
from reput.formats.java import INT64_MAX
from reput.formats.metadata import ConsumerOffsets, split_topic_group
from reput.formats.multi_dispatch import LMQ_PREFIX
from reput.formats.paths import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, offset_to_file_name
from reput.formats.pop_messages import greatest_offset
from reput.jobs.audit.unmatched import ComparedQueue
from reput.jobs.findings import Finding
from reput.log.metadata import metadata_path, read_metadata
from reput.log.next_offsets import end_of_units, recorded_next_offsets


def read_offsets(root: str) -> ConsumerOffsets:
    """Read the consumer offsets of a store. Read them before the log: then the log has what a group has consumed."""
    try:
        return read_metadata(root, ConsumerOffsets, DISK) or ConsumerOffsets()
    except CorruptMetadataError:  # another finding reports it
        return ConsumerOffsets()


def unused_offset_findings(
    root: str, offsets: ConsumerOffsets, log_begin: int, queues: Sequence[ComparedQueue]
) -> Iterator[Finding]:
    """Findings of consumer offsets of queues that have never had a message; the log has all messages.

    Light queues are left out, as other records have their messages.
    """
    if log_begin:
        return
    used = {(queue.topic, queue.queue_id) for queue in queues}
    for key, of_group in offsets.offset_table.items():
        topic, group = split_topic_group(key)
        for queue_id, offset in of_group.items():
            if offset > 0 and (topic, queue_id) not in used and not topic.startswith(LMQ_PREFIX):
                text = f"group {group} stands at {offset}, and the queue has never had a message"
                path = metadata_path(root, ConsumerOffsets)
                yield Finding(
                    "consumer-offset-unused", path, text, topic=topic, queue_id=queue_id, queue_offset=0, count=offset
                )


def lost_offset_findings(
    root: str, log_begin: int, batch_topics: Set[str], queues: Sequence[ComparedQueue]
) -> Iterator[Finding]:
    """Findings of emptied queues whose units do not tell their next offset any more (`reput.log.next_offsets`)."""
    by_key = {(queue.topic, queue.queue_id): queue for queue in queues}
    for (topic, queue_id), offset in recorded_next_offsets(root, DISK, log_begin).items():
        queue = by_key.get((topic, queue_id))
        is_batch = queue.is_batch if queue is not None else topic in batch_topics
        folder = os.path.join(root, BATCH_CONSUME_QUEUE if is_batch else CONSUME_QUEUE, topic, str(queue_id))
        if queue is not None and (len(queue.known) or len(queue.different)):
            continue
        starts = [] if queue is None else list(queue.starts)
        paths = [os.path.join(folder, offset_to_file_name(start)) for start in starts]
        if (end := end_of_units(DISK, paths, starts, is_batch=is_batch)) < offset:
            text = f"by its units the next message gets queue offset {end}, by what is recorded {offset}"
            yield Finding(
                "queue-offset-lost", folder, text, topic=topic, queue_id=queue_id, queue_offset=end, count=offset - end
            )


def _end(queue: ComparedQueue) -> int:
    """Queue offset after the last record of a queue."""
    if not queue.is_batch:
        return int(queue.known.rows[-1, 1])
    without_units, end = queue.different.rows, 0  # by queue offset, while slots are of units
    if len(queue.known):
        last = int(queue.known.rows[-1, 1]) - 1
        with DISK.open(queue.path(last)) as file:
            end = decode_batch_unit(file.read(queue.position(last), BATCH_UNIT_SIZE)).next_offset
    return max(end, int((without_units[:, 0] + without_units[:, 1]).max(initial=0)))


def offset_findings(root: str, offsets: ConsumerOffsets, queues: Sequence[ComparedQueue]) -> Iterator[Finding]:
    """Findings of consumer offsets after the end of a queue; queues without records are left out."""
    used = (queue for queue in queues if len(queue.known) or len(queue.different))
    ends = {(queue.topic, queue.queue_id): _end(queue) for queue in used}
    path = metadata_path(root, ConsumerOffsets)
    for key, of_group in offsets.offset_table.items():
        topic, group = split_topic_group(key)
        for queue_id, offset in of_group.items():
            end = ends.get((topic, queue_id), INT64_MAX)
            if (ahead := offset - greatest_offset(group, end)) > 0:
                text = f"group {group} stands at {offset}, and the next message of the queue gets {end}"
                yield Finding(
                    "consumer-offset-ahead", path, text, topic=topic, queue_id=queue_id, queue_offset=end,
                    count=ahead,
                )  # fmt: skip
