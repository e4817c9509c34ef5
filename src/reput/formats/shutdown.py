"""What a clean shutdown of reput leaves in `config/reputShutdown.json`, so that the next start need not look for it.

RocketMQ does not know the file and leaves it alone. What it says of queues counts only as long as the log ends where it
says: after another writer it is void. Without it a start scans the last commit log file, and everything else works the
same. What it says of topics counts as long as `topics.json` has the same data version: that file has nothing of its own
that shows a wrong bit.
"""

from __future__ import annotations

import json
import zlib
from typing import Any, NamedTuple

from reput.errors import CorruptMetadataError
from reput.formats.java_bean import decode_bean, encode_bean
from reput.formats.metadata import DataVersion, Topics
from reput.formats.own_json import decode_json

SHUTDOWN_FILE = "reputShutdown.json"
_CRC = "crc32"


class Shutdown(NamedTuple):
    """How far the derived files were when the store was closed, and what the topics were."""

    commit_log_end: int
    index_file_count: int
    #: Next queue offset of each (topic, queue id).
    max_offsets: dict[tuple[str, int], int]
    #: As `as_json` gives them; None where there were none, or an older reput closed the store.
    topics: dict[str, Any] | None = None


def as_json(value: object) -> Any:
    """A value of `reput.formats.metadata` as any JSON file has it: all keys are strings, and all sequences lists."""
    return json.loads(json.dumps(encode_bean(value)))


def encode_shutdown(shutdown: Shutdown) -> bytes:
    """The file's bytes."""
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
    return json.dumps(content | {_CRC: _checksum(content)}).encode()


def decode_shutdown(data: bytes) -> Shutdown | None:
    """What the file says; None where it is garbled, for it only spares work."""
    try:
        content = decode_json(data)
        crc, topics = content.pop(_CRC, None), content.get("topics")
        if crc != _checksum(content) and not (crc is None and topics is None):  # an older reput wrote neither
            return None
        offsets = {
            (topic, int(queue_id)): int(offset)
            for topic, queues in content["maxOffsets"].items()
            for queue_id, offset in queues.items()
        }
        return Shutdown(int(content["commitLogEnd"]), int(content["indexFileCount"]), offsets, topics)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def recorded_topics(shutdown: Shutdown | None, version: DataVersion | None = None) -> Topics | None:
    """The topics that a file speaks of; None where there are none, or none of this data version (None: of any)."""
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


def _checksum(content: dict[str, Any]) -> str:
    """The CRC-32 of all other members, however they are spelled; 8 hex digits."""
    return f"{zlib.crc32(json.dumps(content, sort_keys=True).encode()):08x}"
