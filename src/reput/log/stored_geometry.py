"""The sizes that a store's files have, as keys of a configuration: who writes to a store need not know them."""

from __future__ import annotations

from typing import Any

from reput.config.message_store import MessageStoreConfig
from reput.log.directory import StoreDirectory, usual_file_size
from reput.log.index_geometry import index_geometry
from reput.log.queue_extensions import queue_extensions
from reput.log.queue_sizes import BATCH, SIMPLE, check_file_sizes


def stored_geometry(directory: StoreDirectory, config: MessageStoreConfig) -> dict[str, Any]:
    """The keys, in snake_case, of which the store has files; sizes in bytes, index files in slots and entries.

    Args:
        directory: The store.
        config: Its slots and entries count where the index files fit them, and do not tell others.

    Raises:
        StoreFormatError: Files of one kind that are of several sizes, or index files that do not tell their numbers.
    """
    geometry: dict[str, Any] = {}
    log_files, index_files = directory.log_files(), directory.index_files()
    if log_files:
        geometry["mapped_file_size_commit_log"] = log_files[0].size
    for key, kind, queues in (
        ("mapped_file_size_consume_queue", SIMPLE, directory.queues()),
        ("mapper_file_size_batch_consume_queue", BATCH, directory.batch_queues()),
    ):
        if queues:
            check_file_sizes(queues, kind, directory.path)
            geometry[key] = usual_file_size(queues)
    extensions = queue_extensions(directory.path, directory.files)
    if extensions:
        geometry["mapped_file_size_consume_queue_ext"] = usual_file_size(extensions)
    if index_files and config.message_index_enable:
        slots, entries = index_geometry(index_files, config.max_hash_slot_num, config.max_index_num, directory.files)
        geometry |= {"max_hash_slot_num": slots, "max_index_num": entries}
    return geometry


def is_size_proven(directory: StoreDirectory) -> bool:
    """Whether more than one queue file tells the size of all of them, or it is RocketMQ's default."""
    queues = directory.queues()
    default = MessageStoreConfig().mapped_file_size_consume_queue
    return sum(len(queue.paths) for queue in queues) != 1 or queues[0].file_size == default
