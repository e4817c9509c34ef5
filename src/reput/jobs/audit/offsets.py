"""Consumer offsets after the end of their queue: the group has consumed messages that a power cut or damage took."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reput.errors import CorruptMetadataError
from reput.files import DISK
from reput.formats.java import INT64_MAX
from reput.formats.metadata import ConsumerOffsets, split_topic_group
from reput.formats.pop_messages import greatest_offset
from reput.jobs.audit.rest import QueueRest
from reput.jobs.findings import Finding
from reput.log.metadata import metadata_path, read_metadata


def read_offsets(root: str) -> ConsumerOffsets:
    """Read the consumer offsets of a store. Read them before the log: then the log has what a group has consumed."""
    try:
        return read_metadata(root, ConsumerOffsets, DISK) or ConsumerOffsets()
    except CorruptMetadataError:  # another finding reports it
        return ConsumerOffsets()


def offset_findings(root: str, offsets: ConsumerOffsets, queues: Sequence[QueueRest]) -> Iterator[Finding]:
    """Findings of consumer offsets after the end of a queue.

    Queues without records are left out, as their end is unknown, and batch queues, as they count otherwise.
    """
    ends = {(queue.topic, queue.queue_id): queue.known[-1][1] for queue in queues if queue.known and not queue.is_batch}
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
