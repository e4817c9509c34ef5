"""What a rebuild makes beside one unit a message, and the sizes of its files: as told, else as the store has them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from reput.config.message_store import MessageStoreConfig
from reput.errors import StoreFormatError
from reput.formats.consume_queue_ext import DEFAULT_FILE_SIZE
from reput.formats.multi_dispatch import LMQ_PREFIX
from reput.jobs.unit_writer import FurtherUnits
from reput.log.directory import QueueFiles, StoreDirectory
from reput.log.index_geometry import index_geometry
from reput.log.queue_extensions import queue_extensions

if TYPE_CHECKING:
    from reput.kernels.consume_queue_ext import BitMaps


def find_further_units(
    directory: StoreDirectory, ext: bool | None, ext_file_size: int | None, bit_maps: BitMaps | None, lmq: bool | None
) -> FurtherUnits:
    """What was asked for, else what the store has."""
    found = queue_extensions(directory.path) if ext is not False else []
    if ext is None:
        ext = bool(found)
    if ext_file_size is None:
        ext_file_size = found[0].file_size if found else DEFAULT_FILE_SIZE
    if lmq is None:
        lmq = any(queue.topic.startswith(LMQ_PREFIX) for queue in directory.queues())
    return FurtherUnits(ext_file_size if ext else None, bit_maps, multi_dispatch=lmq, enable_lmq=lmq)


def _one_size(queues: list[QueueFiles], directory: StoreDirectory, key: str) -> int | None:
    """The size of a store's queue files of one kind; None where it has none."""
    found = {queue.file_size for queue in queues}
    if len(found) > 1:
        raise StoreFormatError(f"{directory.path}: queue files of {sorted(found)} bytes; give {key}")
    return found.pop() if found else None


def find_file_sizes(
    directory: StoreDirectory,
    queue_file_size: int | None,
    batch_file_size: int | None,
    slots: int | None,
    entries: int | None,
    index: bool,
) -> MessageStoreConfig:
    """The sizes that were given, else those of the store's files, else RocketMQ's; the rest of the result is unused."""
    if queue_file_size is None:
        queue_file_size = _one_size(directory.queues(), directory, "mapped_file_size_consume_queue")
    if batch_file_size is None:
        batch_file_size = _one_size(directory.batch_queues(), directory, "mapper_file_size_batch_consume_queue")
    given = {
        "mapped_file_size_consume_queue": queue_file_size,
        "mapper_file_size_batch_consume_queue": batch_file_size,
        "max_hash_slot_num": slots,
        "max_index_num": entries,
    }
    sizes = MessageStoreConfig.from_mapping({name: value for name, value in given.items() if value is not None})
    if index and slots is None and entries is None:
        slots, entries = index_geometry(directory.index_files(), sizes.max_hash_slot_num, sizes.max_index_num)
        sizes = replace(sizes, max_hash_slot_num=slots, max_index_num=entries)
    return sizes
