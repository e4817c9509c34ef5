"""File sizes of a store as configuration keys, so that a writer need not be told them."""

from __future__ import annotations

from typing import Any

from reput.config.message_store import MessageStoreConfig
from reput.log.directory import StoreDirectory, usual_file_size
from reput.log.index_geometry import index_geometry
from reput.log.queue_extensions import queue_extensions
from reput.log.queue_sizes import BATCH, SIMPLE, check_file_sizes


def stored_geometry(directory: StoreDirectory, config: MessageStoreConfig) -> dict[str, Any]:
    """Configuration keys (snake_case) of the file kinds that the store has; bytes, or slots and entries of the index.

    Args:
        directory: The store.
        config: Its numbers of slots and entries are kept if the index files fit them and prove no others.

    Raises:
        StoreFormatError: Files of one kind have several sizes, or the index files do not determine their numbers.
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
    """Whether the size of queue files is certain: more than one file has it, or it is RocketMQ's default."""
    queues = directory.queues()
    default = MessageStoreConfig().mapped_file_size_consume_queue
    return sum(len(queue.paths) for queue in queues) != 1 or queues[0].file_size == default
