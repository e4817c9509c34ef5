"""Geometry of a rebuild: which files it makes, and their sizes, as the user gives them, else as the store's files have.

Derived files are never a reason to refuse a rebuild: a file that was cut does not count, and becomes a finding. Only
where two sizes are equally likely the user must give one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from reput.config.message_store import MessageStoreConfig
from reput.errors import CorruptMetadataError
from reput.formats.multi_dispatch import LMQ_PREFIX
from reput.jobs.rebuild.options import RebuildOptions
from reput.jobs.rebuild.unit_writer import FurtherUnits
from reput.log.directory import StoreDirectory
from reput.log.dispatch_marks import read_config
from reput.log.geometry.file_sizes import BATCH, SIMPLE, OddSize, find_file_sizes, queue_files
from reput.log.queue_types import QueueTypes, find_queue_types


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


def find_geometry(directory: StoreDirectory, options: RebuildOptions) -> Geometry:
    """Find the geometry of a rebuild of this store.

    Raises:
        ConfigError: a value that RocketMQ does not allow.
        StoreFormatError: the store's files do not tell a size.
        CorruptMetadataError: `topics.json` and its backup are damaged.
    """
    config, findings = find_sizes(directory, options.config, index=options.index)
    further = FurtherUnits(
        config.mapped_file_size_consume_queue_ext if config.enable_consume_queue_ext else None,
        options.bit_maps,
        multi_dispatch=config.enable_lmq,
        enable_lmq=config.enable_lmq,
        any_topic=options.rules.multi_dispatches_any_topic,
    )
    types = find_queue_types(directory, {queue.topic for queue in queue_files(directory, BATCH)})
    return Geometry(config, types, further, tuple(findings))


def find_sizes(
    directory: StoreDirectory, given: Mapping[str, Any], *, index: bool
) -> tuple[MessageStoreConfig, list[str]]:
    """`Geometry.config` and `Geometry.findings`, without reading `topics.json`; raises as `find_geometry`."""
    findings = list[str]()
    config = MessageStoreConfig.from_mapping(given, _written_config(directory, findings))
    sizes = find_file_sizes(directory, config, OddSize.REPORT, index=index, given=given.keys())
    found = sizes.values
    if sizes.has_extensions:
        found["enable_consume_queue_ext"] = True
    if any(queue.topic.startswith(LMQ_PREFIX) for queue in queue_files(directory, SIMPLE)):
        found["enable_lmq"] = True
    config = replace(config, **{key: value for key, value in found.items() if key not in given})
    return config, findings + sizes.findings


def has_queue_files(directory: StoreDirectory) -> bool:
    """Whether the store has any queue file; without one `find_sizes` takes RocketMQ's defaults."""
    return any(queue_files(directory, kind) for kind in (SIMPLE, BATCH))


def _written_config(directory: StoreDirectory, findings: list[str]) -> MessageStoreConfig:
    """Config of the store's external dispatcher, if it has one: it may not have made its first files yet."""
    try:
        return read_config(directory.path, directory.files) or MessageStoreConfig()
    except CorruptMetadataError as error:
        findings.append(str(error))
        return MessageStoreConfig()
