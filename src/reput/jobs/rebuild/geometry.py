"""Geometry of a rebuild: which files it makes, and their sizes, as the user gives them, else as the store's files have.

Derived files are never a reason to refuse a rebuild: a file that was cut does not count, and becomes a finding. Only
where two sizes are equally likely the user must give one.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from reput.config.dispatch_rules import DispatchRules
from reput.config.message_store import MessageStoreConfig
from reput.config.properties import camel_case
from reput.errors import CorruptMetadataError, StoreFormatError
from reput.files import FileLayer
from reput.formats.batch_consume_queue import BATCH_UNIT_SIZE
from reput.formats.consume_queue import UNIT_SIZE
from reput.formats.multi_dispatch import LMQ_PREFIX
from reput.formats.paths import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, INDEX, file_name_to_offset, is_index_file_name
from reput.jobs.rebuild.unit_writer import FurtherUnits
from reput.log.directory import IndexFilePath, QueueFiles, StoreDirectory, usual_file_size
from reput.log.dispatch_marks import read_config
from reput.log.index_geometry import entries_of, fitting_slots
from reput.log.queue_extensions import queue_extensions
from reput.log.queue_types import QueueTypes, find_queue_types

if TYPE_CHECKING:
    from reput.kernels.consume_queue_ext import BitMaps


@dataclass(frozen=True, slots=True)
class Geometry:
    """Files that a rebuild makes.

    Attributes:
        config: sizes of files, and delay levels; its other keys mean nothing here.
        types: topics with batch consume queues.
        further: what queues have besides a unit for each message.
        findings: derived files of the store that cannot be right, each with the consequence.
    """

    config: MessageStoreConfig
    types: QueueTypes
    further: FurtherUnits
    findings: tuple[str, ...]


def find_geometry(
    directory: StoreDirectory,
    given: Mapping[str, Any],
    *,
    rules: DispatchRules,
    index: bool = True,
    bit_maps: BitMaps | None = None,
) -> Geometry:
    """Find the geometry of a rebuild of this store.

    Args:
        directory: the store.
        given: the user's values, by the names of `MessageStoreConfig`.
        rules: the RocketMQ version whose files are built.
        index: whether an index is built.
        bit_maps: bit maps of ext units.

    Raises:
        ConfigError: a value that RocketMQ does not allow.
        StoreFormatError: the store's files do not tell a size.
        CorruptMetadataError: `topics.json` and its backup are damaged.
    """
    config, findings = find_sizes(directory, given, index=index)
    further = FurtherUnits(
        config.mapped_file_size_consume_queue_ext if config.enable_consume_queue_ext else None,
        bit_maps,
        multi_dispatch=config.enable_lmq,
        enable_lmq=config.enable_lmq,
        any_topic=rules.multi_dispatches_any_topic,
    )
    types = find_queue_types(directory, {queue.topic for queue in _queue_files(directory, BATCH_CONSUME_QUEUE)})
    return Geometry(config, types, further, tuple(findings))


def find_sizes(
    directory: StoreDirectory, given: Mapping[str, Any], *, index: bool
) -> tuple[MessageStoreConfig, list[str]]:
    """`Geometry.config` and `Geometry.findings`, without reading `topics.json`; raises as `find_geometry`."""
    queues, findings = _queue_files(directory, CONSUME_QUEUE), list[str]()
    config = MessageStoreConfig.from_mapping(given, _written_config(directory, findings))
    batch_queues = _queue_files(directory, BATCH_CONSUME_QUEUE)
    found: dict[str, Any] = {}
    for key, files, unit_size in (
        ("mapped_file_size_consume_queue", queues, UNIT_SIZE),
        ("mapper_file_size_batch_consume_queue", batch_queues, BATCH_UNIT_SIZE),
    ):
        if key not in given:
            found[key] = _file_size(files, unit_size, key, getattr(config, key), findings)
    extensions = queue_extensions(directory.path, directory.files)
    if extensions:
        found["enable_consume_queue_ext"] = True
        found["mapped_file_size_consume_queue_ext"] = usual_file_size(extensions)
    found["enable_lmq"] = config.enable_lmq or any(queue.topic.startswith(LMQ_PREFIX) for queue in queues)
    if index and not given.keys() & {"max_hash_slot_num", "max_index_num"}:
        slots, entries = _index_geometry(directory, config.max_hash_slot_num, config.max_index_num, findings)
        found |= {"max_hash_slot_num": slots, "max_index_num": entries}
    config = replace(config, **{key: value for key, value in found.items() if key not in given})
    return config, findings


def has_queue_files(directory: StoreDirectory) -> bool:
    """Whether the store has any queue file; without one `find_sizes` takes RocketMQ's defaults."""
    return any(_queue_files(directory, folder) for folder in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE))


def _written_config(directory: StoreDirectory, findings: list[str]) -> MessageStoreConfig:
    """Config of the store's external dispatcher, if it has one: it may not have made its first files yet."""
    try:
        return read_config(directory.path, directory.files) or MessageStoreConfig()
    except CorruptMetadataError as error:
        findings.append(str(error))
        return MessageStoreConfig()


def _queue_files(directory: StoreDirectory, folder: str) -> list[QueueFiles]:
    """Queue files in a folder, a `QueueFiles` for each file. Empty files are left out."""
    files = directory.files
    return [
        QueueFiles(topic, int(queue_id), (f"{path}/{entry.name}",), entry.size)
        for topic, topic_path in _folders(files, os.path.join(directory.path, folder))
        for queue_id, path in _folders(files, topic_path)
        if queue_id.isascii() and queue_id.isdigit()
        for entry in files.list_directory(path)
        if not entry.is_directory and entry.size and file_name_to_offset(entry.name) is not None
    ]


def _folders(files: FileLayer, path: str) -> list[tuple[str, str]]:
    """(name, path) of each subfolder of a folder; none where the folder is missing."""
    if not files.is_directory(path):
        return []
    return [(entry.name, os.path.join(path, entry.name)) for entry in files.list_directory(path) if entry.is_directory]


def _file_size(queues: list[QueueFiles], unit_size: int, key: str, default: int, findings: list[str]) -> int:
    """Size of a store's queue files of one kind: the most frequent size among files whose size can be right."""
    likely = [
        queue
        for queue in queues
        if queue.file_size % unit_size == 0 and int(os.path.basename(queue.paths[0])) % queue.file_size == 0
    ]
    size = usual_file_size(likely) if likely else default
    counts = Counter(queue.file_size for queue in likely)
    if sum(count == counts[size] for count in counts.values()) > 1:
        examples = {queue.file_size: queue.paths[0] for queue in reversed(likely)}
        raise StoreFormatError(
            f"{' and '.join(f'{path}: {size} bytes long' for size, path in sorted(examples.items()))}, and there are "
            f"as many files of each size: give the broker's own with {_advice(key)}"
        )
    origin = "as most of the others are" if likely else "which is RocketMQ's default"
    findings += [
        f"{queue.paths[0]}: {queue.file_size} bytes long: it was cut, or is of another broker; what belongs there is "
        f"built in files of {size} bytes, {origin}; {_advice(key)} gives another size"
        for queue in queues
        if queue.file_size != size
    ]
    return size


def _index_geometry(directory: StoreDirectory, slots: int, entries: int, findings: list[str]) -> tuple[int, int]:
    """Slots and entries of the store's index files, from a file of the most frequent size.

    Of equally frequent sizes the longest counts: files that were cut are shorter. `slots` and `entries` are defaults.
    """
    folder, advice = os.path.join(directory.path, INDEX), _advice("max_hash_slot_num", "max_index_num")
    found = [
        IndexFilePath(os.path.join(folder, entry.name), entry.size)
        for entry in (directory.files.list_directory(folder) if directory.files.is_directory(folder) else ())
        if not entry.is_directory and entry.size and is_index_file_name(entry.name)
    ]
    counts = Counter(entry.size for entry in found)
    found.sort(key=lambda entry: (-counts[entry.size], -entry.size))
    ambiguous: IndexFilePath | None = None
    pair, size, origin = (slots, entries), 0, "RocketMQ's defaults"
    for entry in found:
        fitting = fitting_slots(entry, slots, entries, directory.files)
        if fitting.size == 1:
            pair = int(fitting[0]), entries_of(entry.size, int(fitting[0]))
            size, origin = entry.size, f"those of {os.path.basename(entry.path)}"
            break
        if fitting.size and ambiguous is None:
            ambiguous = entry
    if ambiguous is not None and not size:
        raise StoreFormatError(
            f"{ambiguous.path}: {ambiguous.size} bytes, which several pairs of slots and entries explain: give the "
            f"broker's own with {advice}"
        )
    findings += [
        f"{entry.path}: {entry.size} bytes long: it was cut or damaged, or is of another broker; the index is built "
        f"with {pair[0]} slots and {pair[1]} entries a file, {origin}; {advice} give others"
        for entry in sorted(found, key=lambda entry: entry.path)
        if entry.size != size
    ]
    return pair


def _advice(*keys: str) -> str:
    """Names of options for a size, on the command line and in a call."""
    return f"{' '.join(f'--set {camel_case(key)}=N' for key in keys)} ({', '.join(keys)})"
