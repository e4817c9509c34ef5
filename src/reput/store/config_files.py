"""JSON files below `config/` of an open store: how a change becomes durable (RocketMQ's `ConfigManager`)."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import TypeVar
from zlib import crc32

from reput.errors import ConfigError, CorruptMetadataError, MessageIllegalError, StoreError
from reput.files import FileLayer
from reput.formats.message import check_topic as check_topic_name
from reput.formats.message import check_topic_characters
from reput.formats.metadata import (
    DataVersion,
    TopicConfig,
    Topics,
    decode_metadata,
    encode_metadata,
    encode_topic,
    encode_topics,
)
from reput.log.metadata import BACKUP_SUFFIX, decode_file, metadata_path, read_or_backup

_T = TypeVar("_T")

#: By path, the CRC of what this process has read or written there last: what has it still is whole, without a look at
#: each value. Of 10,000 groups that would take 2 s of each write.
_whole: dict[str, int] = {}


def read_to_persist(root: str, kind: type[_T], files: FileLayer) -> _T | None:
    """As `read_metadata`, for one who persists the file: the first write need not look whether it is whole."""
    path = metadata_path(root, kind)

    def decode(data: bytes) -> _T:
        value = decode_metadata(kind, data)
        _whole[path] = crc32(data)
        return value

    return read_or_backup(path, decode, files)


def persist_metadata(root: str, value: object, files: FileLayer) -> None:
    """Replace the file of a value's class, as `persist_metadata_file`."""
    persist_metadata_file(metadata_path(root, type(value)), value, files)


def persist_metadata_file(path: str, value: object, files: FileLayer) -> None:
    """Replace a file, durably; its former content is in its `.bak` then.

    Both files are written aside, synced and renamed, so that at any moment one of the two is whole. A damaged file does
    not replace its backup, and nothing is written that the next start could not read: StoreError.
    """
    data = encode_metadata(value)
    _check_readable(path, type(value), data)
    _replace_file(path, type(value), data, files)


def _check_readable(path: str, kind: type, data: bytes) -> None:
    try:
        decode_metadata(kind, data)
    except CorruptMetadataError as error:
        reason = f"at byte {error.offset} {error.reason}"
        raise StoreError(f"{path}: not replaced, as what is to be written could not be read again: {reason}") from None


def _replace_file(path: str, kind: type, data: bytes, files: FileLayer) -> None:
    """Replace a file by what can be read again."""
    files.make_directories(os.path.dirname(path))

    def checked(data: bytes) -> bytes:
        if _whole.get(path) != crc32(data):
            decode_metadata(kind, data)
        return data

    try:
        before = decode_file(path, checked, files)
    except CorruptMetadataError:
        before = None
    if before is not None:
        files.write_atomically(path + BACKUP_SUFFIX, before)
    files.write_atomically(path, data)
    _whole[path] = crc32(data)


def is_readable(value: object) -> bool:
    """Whether a value, of any class of `reput.formats.metadata`, is the same when it is written and read again."""
    try:
        return decode_metadata(type(value), encode_metadata(value)) == value
    except (CorruptMetadataError, RecursionError):
        return False


def next_version(version: DataVersion, now_ms: int) -> DataVersion:
    """The version after a change (`DataVersion.nextVersion`)."""
    return replace(version, counter=version.counter + 1, state_version=0, timestamp=now_ms)


class StoreTopics:
    """Topics of one store: `config/topics.json` is read at the start, and written with each change.

    The file is written as a whole, as RocketMQ reads it. What is encoded and checked for a change is what has changed:
    of 30,000 topics all of them would take 1.6 s of a processor.

    Args:
        files: The file layer.
        root: The store directory.

    Raises:
        CorruptMetadataError: `config/topics.json` and its backup are damaged.
    """

    def __init__(self, files: FileLayer, root: str) -> None:
        self._files = files
        self._root = root
        self._changing = Lock()
        self._topics = read_to_persist(root, Topics, files) or Topics()
        self._members = _encode_each(self._topics.topic_config_table)

    @property
    def topics(self) -> Topics:
        """The content of `topics.json`, as of now; a later change makes another one."""
        return self._topics

    def find(self, topic: str) -> TopicConfig | None:
        """The configuration of one topic; None if there is no such topic."""
        return self._topics.topic_config_table.get(topic)

    def update(self, configs: Sequence[TopicConfig]) -> None:
        """Make topics or change them, in one write (`StoreTopics.updateTopicConfigList`).

        They are on the disk when this returns.

        Raises:
            ConfigError: RocketMQ would refuse a topic, or could not read it back; nothing was changed.
            StoreError: The change could not be made durable; the store goes on with the topics as they were.
        """
        for config in configs:
            check_topic(config)
        changed = {config.topic_name: config for config in configs}
        members = _encode_each(changed)
        with self._changing:
            table = dict(self._topics.topic_config_table) | changed
            self._replace(table, self._members | members, members, self.begins)

    @property
    def begins(self) -> Mapping[str, int]:
        """See `Topics.begin_offset_table`."""
        return self._topics.begin_offset_table or {}

    def delete(self, topics: Collection[str], begins: Mapping[str, int]) -> None:
        """Forget topics, in one write (`StoreTopics.deleteTopicConfig`); unknown ones change nothing.

        Args:
            topics: Names.
            begins: `Topics.begin_offset_table` from now on, in the same write.

        Raises:
            StoreError: The change could not be made durable; the store goes on with the topics as they were.
        """
        with self._changing:
            before = self._topics.topic_config_table
            after = {name: config for name, config in before.items() if name not in topics}
            if len(after) < len(before) or begins != self.begins:
                self._replace(after, {name: self._members[name] for name in after}, {}, begins)

    def _replace(
        self,
        table: Mapping[str, TopicConfig],
        members: dict[str, bytes],
        changed: Mapping[str, bytes],
        begins: Mapping[str, int],
    ) -> None:
        """Write topics that are encoded; `changed`: of them those that were not in the file before."""
        version = next_version(self._topics.data_version, int(time.time() * 1000))
        topics = replace(
            self._topics, topic_config_table=table, data_version=version, begin_offset_table=begins or None
        )
        path = metadata_path(self._root, Topics)
        _check_readable(path, Topics, encode_topics(topics, changed.values()))
        _replace_file(path, Topics, encode_topics(topics, members.values()), self._files)
        self._topics, self._members = topics, members


def _encode_each(table: Mapping[str, TopicConfig]) -> dict[str, bytes]:
    """Bytes of each topic of a table, by the name that it has there."""
    return {name: encode_topic(name, config) for name, config in table.items()}


def check_topic(config: TopicConfig) -> None:
    """Check a topic; raises ConfigError if RocketMQ would refuse it, or could not read it back."""
    name = config.topic_name
    try:
        check_topic_name(name)
        check_topic_characters(name)
        if decode_metadata(TopicConfig, encode_metadata(config)) != config:
            raise ConfigError(f"topic {name!r}: {config} would be read back as something else")
    except MessageIllegalError as error:
        raise ConfigError(str(error)) from None
    except (CorruptMetadataError, TypeError) as error:
        reason = error.reason if isinstance(error, CorruptMetadataError) else error
        raise ConfigError(f"topic {name!r}: {reason}") from None
    if min(config.read_queue_nums, config.write_queue_nums) < 0 or not 0 <= config.perm <= 7:
        raise ConfigError(f"topic {name!r}: expected numbers of queues of 0 or more, and perm between 0 and 7")
