"""Sizes of files that are built anew, as the user gives them, else as the store's files have.

Derived files are never a reason to refuse a build: a file that was cut does not count, and becomes a finding. Only
if two sizes are equally likely the user must give one.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from reput.config.message_store import MessageStoreConfig
from reput.errors import CorruptConsumeQueueError, CorruptMetadataError
from reput.formats.multi_dispatch import LMQ_PREFIX
from reput.log.all_queues import database_queues
from reput.log.directory import StoreDirectory
from reput.log.dispatch_marks import read_config
from reput.log.geometry.file_sizes import BATCH, SIMPLE, OddSize, find_file_sizes, queue_files


def find_sizes(
    directory: StoreDirectory, given: Mapping[str, Any], *, index: bool
) -> tuple[MessageStoreConfig, list[str]]:
    """Find the sizes of files that are built beside the log of a store.

    Args:
        directory: The store.
        given: Values by configuration key (snake_case) that the user gives.
        index: Whether index files are built.

    Returns:
        The sizes as a configuration, whose other keys mean nothing, and texts about files that do not count.

    Raises:
        ConfigError: A value that RocketMQ does not allow.
        StoreFormatError: The store's files do not tell a size.
    """
    findings = list[str]()
    config = MessageStoreConfig.from_mapping(given, _written_config(directory, findings))
    sizes = find_file_sizes(directory, config, OddSize.REPORT, index=index, given=given.keys())
    found = sizes.values
    topics = {queue.topic for queue in queue_files(directory, SIMPLE)}
    with suppress(CorruptConsumeQueueError):
        in_databases = database_queues(directory)
        topics |= {queue.topic for queue in in_databases.queues} if in_databases is not None else set()
    if any(topic.startswith(LMQ_PREFIX) for topic in topics):
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
