"""The twin of `kernels.queues.multi_dispatch`: queues that one record names (ConsumeQueue.multiDispatchLmqQueue)."""

from __future__ import annotations

import re
from typing import NamedTuple


class Further(NamedTuple):
    """A queue that a record names beside its own, and its place there."""

    name: bytes
    queue_id: int
    queue_offset: int


def _properties(data: bytes) -> dict[bytes, bytes]:
    found = {}
    for pair in data.split(b"\x02"):
        name, _, value = pair.partition(b"\x01")
        if name and value:
            found[name] = value
    return found


def _parts(text: bytes) -> list[bytes]:
    parts = text.split(b",")
    while parts and not parts[-1]:
        parts.pop()
    return parts


def _names_a_folder(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return name not in (b"", b".", b"..") and b"/" not in name and b"\0" not in name and len(name) <= 255


def further_queues(
    topic: bytes,
    queue_id: int,
    commit_log_offset: int,
    sys_flag: int,
    properties: bytes,
    *,
    enable_lmq: bool,
    any_topic: bool,
) -> list[Further]:
    """The further queues of one record; what does not make sense is left out."""
    if sys_flag & 0xC in (0x4, 0xC) or sys_flag & 0x80:
        return []
    if not any_topic and (topic.startswith((b"%RETRY%", b"rmq_sys_")) or topic == b"SCHEDULE_TOPIC_XXXX"):
        return []
    found = _properties(properties)
    names = _parts(found.get(b"INNER_MULTI_DISPATCH", b""))
    offsets = _parts(found.get(b"INNER_MULTI_QUEUE_OFFSET", b""))
    if len(names) != len(offsets):
        return []
    further = []
    for name, text in zip(names, offsets, strict=True):
        if re.fullmatch(rb"\+?[0-9]+", text) and int(text) <= commit_log_offset // 91 and _names_a_folder(name):
            is_lmq = enable_lmq and name.startswith(b"%LMQ%")
            further.append(Further(name, 0 if is_lmq else queue_id, int(text)))
    return further
