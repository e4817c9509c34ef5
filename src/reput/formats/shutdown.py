"""What a clean shutdown of reput leaves in `config/reputShutdown.json`, so that the next start need not look for it.

RocketMQ does not know the file and leaves it alone. It counts only as long as the log ends where it says: after another
writer it is void. Without it a start scans the last commit log file, and everything else works the same.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from reput.formats.own_json import decode_json

SHUTDOWN_FILE = "reputShutdown.json"


class Shutdown(NamedTuple):
    """How far the derived files were when the store was closed."""

    commit_log_end: int
    index_file_count: int
    #: Next queue offset of each (topic, queue id).
    max_offsets: dict[tuple[str, int], int]


def encode_shutdown(shutdown: Shutdown) -> bytes:
    """The file's bytes."""
    queues: dict[str, dict[str, int]] = {}
    for (topic, queue_id), offset in sorted(shutdown.max_offsets.items()):
        queues.setdefault(topic, {})[str(queue_id)] = offset
    content = {
        "commitLogEnd": shutdown.commit_log_end,
        "indexFileCount": shutdown.index_file_count,
        "maxOffsets": queues,
    }
    return json.dumps(content, ensure_ascii=False, indent="\t").encode()


def decode_shutdown(data: bytes) -> Shutdown | None:
    """What the file says; None where it is garbled, for it only spares work."""
    try:
        content = decode_json(data)
        offsets = {
            (topic, int(queue_id)): int(offset)
            for topic, queues in content["maxOffsets"].items()
            for queue_id, offset in queues.items()
        }
        return Shutdown(int(content["commitLogEnd"]), int(content["indexFileCount"]), offsets)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
