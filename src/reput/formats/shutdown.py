"""State of a store at a clean exit, `config/reputShutdown.json`: it spares the next start a scan.

RocketMQ does not know the file and leaves it alone. Its content on queues counts only if the log still ends where the
file says: another writer makes it void. Without the file a start scans the last commit log file, with the same result.
Its content on topics counts if `topics.json` has the same data version: `topics.json` itself has no checksum that would
show a wrong bit.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from reput.errors import CorruptMetadataError
from reput.formats.java_bean import decode_bean, encode_bean
from reput.formats.metadata import DataVersion, Topics
from reput.formats.own_json import decode_with_crc, encode_with_crc, number
from reput.formats.paths import queue_folder_id

SHUTDOWN_FILE = "reputShutdown.json"


class Shutdown(NamedTuple):
    """Ends of the derived files when the store was closed, and the topics at that time."""

    commit_log_end: int
    index_file_count: int
    #: Next queue offset of each (topic, queue id).
    max_offsets: dict[tuple[str, int], int]
    #: In the form of `as_json`; None if there were none, or an older reput closed the store.
    topics: dict[str, Any] | None = None
    #: Topics with batch consume queues, sorted: `topics.json` may lack such a topic.
    batch_topics: tuple[str, ...] = ()


def as_json(value: object) -> Any:
    """A value of `reput.formats.metadata` in the types of standard JSON: all keys are strings, all sequences lists."""
    return json.loads(json.dumps(encode_bean(value)))


def encode_shutdown(shutdown: Shutdown) -> bytes:
    """Bytes of the file."""
    queues: dict[str, dict[str, int]] = {}
    for (topic, queue_id), offset in sorted(shutdown.max_offsets.items()):
        queues.setdefault(topic, {})[str(queue_id)] = offset
    content: dict[str, Any] = {
        "commitLogEnd": shutdown.commit_log_end,
        "indexFileCount": shutdown.index_file_count,
        "maxOffsets": queues,
    }
    if shutdown.topics is not None:
        content["topics"] = shutdown.topics
    if shutdown.batch_topics:
        content["batchTopics"] = list(shutdown.batch_topics)
    return encode_with_crc(content)


def decode_shutdown(data: bytes) -> Shutdown | None:
    """Content of the file; None for a damaged one, since the file only spares work."""
    try:
        content = decode_with_crc(data)
        topics, batch_topics = content.get("topics"), content.get("batchTopics", [])
        if topics is not None or batch_topics:  # an older reput wrote neither of them, nor a CRC
            content = decode_with_crc(data, may_lack=False)
        offsets = {
            (topic, _queue_id(queue_id)): number(offset)
            for topic, queues in content["maxOffsets"].items()
            for queue_id, offset in queues.items()
        }
        if not (isinstance(batch_topics, list) and all(isinstance(topic, str) for topic in batch_topics)):
            return None
        end, count = number(content["commitLogEnd"], -1), number(content["indexFileCount"], -1)
        return Shutdown(end, count, offsets, topics, tuple(batch_topics))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def recorded_topics(shutdown: Shutdown | None, version: DataVersion | None = None) -> Topics | None:
    """The topics in the file; None if it has none, or none of this data version (`version` None: of any version)."""
    try:
        topics = None if shutdown is None or shutdown.topics is None else decode_bean(Topics, shutdown.topics)
    except CorruptMetadataError:
        return None
    if topics is None or version is None:
        return topics
    recorded = topics.data_version
    is_same = (recorded.counter, recorded.state_version, recorded.timestamp) == (
        version.counter, version.state_version, version.timestamp,
    )  # fmt: skip
    return topics if is_same else None


def _queue_id(name: str) -> int:
    queue_id = queue_folder_id(name)
    if queue_id is None:
        raise ValueError(f"expected a queue id, found {name[:40]!r}")
    return queue_id
