"""Queue types: which topics of a store have batch consume queues, and whether the store's files agree."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

import numpy as np

from reput.errors import StoreFormatError
from reput.formats.message_batch import INNER_BATCH
from reput.formats.metadata import TopicConfig, Topics
from reput.formats.paths import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, topic_folder_name
from reput.formats.shutdown import Shutdown
from reput.kernels.records.columns import RecordColumns
from reput.log.directory import StoreDirectory
from reput.log.metadata import metadata_path, read_metadata, read_shutdown

QUEUE_TYPE = "queue.type"
BATCH_CQ = "BatchCQ"


def is_batch_cq(topic: TopicConfig) -> bool:
    """Whether a topic's queues are batch consume queues (`QueueTypeUtils.isBatchCq`)."""
    return topic.attributes.get(QUEUE_TYPE) == BATCH_CQ


@dataclass(slots=True)
class QueueTypes:
    """Types of the queues of topics.

    Attributes:
        batch: Topics with batch consume queues; more may be added.
        simple: Topics that have consume queues according to `config/topics.json`.
    """

    batch: set[str] = field(default_factory=set)
    simple: frozenset[str] = frozenset()

    def undeclared(self, columns: RecordColumns) -> set[str]:
        """Topics of scanned inner batches that have no type yet: only topics with batch consume queues have these."""
        rows = np.flatnonzero((columns["sys_flag"] & INNER_BATCH) == INNER_BATCH)
        if not rows.size:
            return set()
        queues = columns.queues()
        names = {topic_folder_name(queues[k][0]) for k in np.unique(columns["queue"][rows]).tolist()}
        return {name for name in names if name is not None} - self.batch - self.simple


def find_queue_types(
    directory: StoreDirectory, batch_folders: Set[str] | None = None, shutdown: Shutdown | None = None
) -> QueueTypes:
    """Queue types by `config/topics.json`; a topic that the file lacks is `batch` if it has a batch queue folder.

    So it is without a folder of either kind, if `config/reputShutdown.json` says so.

    Args:
        directory: The store.
        batch_folders: The topics with such a folder; None: the topics that `directory` lists.
        shutdown: What that file says; None: it is read.

    Raises:
        CorruptMetadataError: `topics.json` and its backup are damaged.
    """
    topics = read_metadata(directory.path, Topics, directory.files)
    table: Mapping[str, TopicConfig] = topics.topic_config_table if topics is not None else {}
    batch = {name for name, topic in table.items() if is_batch_cq(topic)}
    found = {queue.topic for queue in directory.batch_queues()} if batch_folders is None else set(batch_folders)
    shutdown = shutdown or read_shutdown(directory.path, directory.files)
    for topic in shutdown.batch_topics if shutdown is not None else ():
        is_name = topic_folder_name(topic.encode("utf-8", "replace")) == topic
        if is_name and not directory.files.is_directory(f"{directory.path}/{CONSUME_QUEUE}/{topic}"):
            found.add(topic)
    return QueueTypes(batch | (found - table.keys()), frozenset(table.keys() - batch))


def check_queue_folders(directory: StoreDirectory, types: QueueTypes) -> None:
    """Raises StoreFormatError if a topic has queues of the wrong type, or of both types.

    RocketMQ does not start with such a store (`ConsumeQueueStore.queueTypeShouldBe`).
    """
    for folder, queues, wrong in (
        (CONSUME_QUEUE, directory.queues(), types.batch),
        (BATCH_CONSUME_QUEUE, directory.batch_queues(), types.simple),
    ):
        for queue in queues:
            if queue.topic in wrong:
                other = BATCH_CONSUME_QUEUE if folder == CONSUME_QUEUE else CONSUME_QUEUE
                topics = metadata_path(directory.path, Topics)
                raise StoreFormatError(
                    f"{directory.path}/{folder}/{queue.topic}: this topic's queues belong into {other}, by "
                    f"{QUEUE_TYPE} in {topics}, or {other} has it, too; correct what is wrong, or move the wrong "
                    "folder away: queues are built again from the log"
                )
