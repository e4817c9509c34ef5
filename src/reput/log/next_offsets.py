"""Next queue offsets that are state: the log has no record of a queue that retention has emptied.

The last file of a queue of either kind tells its next offset, and if that is lost, what a reput store has recorded
(`config/reputShutdown.json`) and how far groups are: offsets are never used twice.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from reput.errors import CorruptMetadataError
from reput.files import FileLayer
from reput.formats.message_batch import MIN_ITEM_SIZE
from reput.formats.metadata import ConsumerOffsets, Topics, split_topic_group
from reput.formats.multi_dispatch import LMQ_PREFIX
from reput.formats.paths import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, file_name_to_offset, topic_folder_name
from reput.kernels.queues.unit_types import BATCH_UNIT_TYPE, UNIT_TYPE
from reput.log.metadata import read_metadata, read_shutdown

#: (topic, queue id).
_Key = tuple[str, int]


def recorded_next_offsets(root: str, files: FileLayer, log_begin: int) -> dict[_Key, int]:
    """The greatest next offset that is recorded of each queue; nothing if the log still has all its messages.

    A number that the log before `log_begin` cannot have held does not count, nor does a group's offset of a topic that
    `config/topics.json` does not have, as it was deleted. If a queue has units, groups' offsets do not count: these
    may be ahead of them, as those that a slave copies, and the messages between are still to come.

    Args:
        root: the store directory.
        files: its file layer.
        log_begin: commit log offset at which the log begins.
    """
    if log_begin <= 0:
        return {}
    offsets: dict[_Key, int] = {}
    shutdown = read_shutdown(root, files)
    recorded = {} if shutdown is None else shutdown.max_offsets
    groups: dict[_Key, int] = {}
    for key, offset in _group_offsets(root, files):
        groups[key] = max(offset, groups.get(key, 0))
    for key, offset in (*recorded.items(), *groups.items()):
        if not (_can_be(key) and offsets.get(key, 0) < offset <= log_begin // MIN_ITEM_SIZE):
            continue
        if offset == recorded.get(key) or not _has_units(root, files, key):
            offsets[key] = offset
    return offsets


def end_of_units(files: FileLayer, paths: list[str], starts: list[int], *, is_batch: bool) -> int:
    """Queue offset after the last unit of a queue, fillers included; 0 without units.

    Args:
        files: the file layer.
        paths, starts: of the queue's files, oldest first; a start is the position of the first byte in the queue.
        is_batch: whether it is a batch consume queue.
    """
    kind = BATCH_UNIT_TYPE if is_batch else UNIT_TYPE
    for path, start in zip(reversed(paths), reversed(starts), strict=True):
        data = files.read_bytes(path)
        units = np.frombuffer(data, kind, len(data) // kind.itemsize)
        used = np.flatnonzero((units["size"] > 0) & (units["message_count"] > 0 if is_batch else True))
        if used.size and is_batch:
            return int(units["base_offset"][used[-1]]) + int(units["message_count"][used[-1]])
        if used.size:
            return start // UNIT_TYPE.itemsize + int(used[-1]) + 1
    return 0


def _can_be(key: _Key) -> bool:
    topic, queue_id = key
    return queue_id >= 0 and not topic.startswith(LMQ_PREFIX) and topic_folder_name(topic.encode()) == topic


def _has_units(root: str, files: FileLayer, key: _Key) -> bool:
    for kind in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE):
        folder = f"{root}/{kind}/{key[0]}/{key[1]}"
        for entry in files.list_directory(folder) if files.is_directory(folder) else ():
            if file_name_to_offset(entry.name) is not None:
                with files.open(f"{folder}/{entry.name}") as file:
                    if file.has_data_from(0):
                        return True
    return False


def _group_offsets(root: str, files: FileLayer) -> Iterator[tuple[_Key, int]]:
    try:
        offsets = read_metadata(root, ConsumerOffsets, files) or ConsumerOffsets()
        topics = read_metadata(root, Topics, files) or Topics()
    except CorruptMetadataError:
        return
    for name, of_group in offsets.offset_table.items():
        topic, _ = split_topic_group(name)
        if topic in topics.topic_config_table:
            for queue_id, offset in of_group.items():
                yield (topic, queue_id), offset
