"""All that a store of `planted_store` answers, to be compared with what it answered before a damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import reput

_KEYS = ("k0", "k299", "k599", "g0", "g7", "last", "UK000100")


def answers(path: Path, *, writable: bool) -> dict[str, Any]:
    """Answers of the store: the messages of each queue, queries by key and time, and offsets by time."""
    found: dict[str, Any] = {}
    with reput.MessageStore.open(path, read_only=not writable) as store:
        for queue in store.queues():
            name, offset, messages = f"{queue.topic}/{queue.queue_id}", queue.min_offset, []
            while offset < queue.max_offset:
                result = store.get_message(queue.topic, queue.queue_id, offset, 32)
                messages += [
                    (one.queue_offset, one.commit_log_offset, one.body, one.keys, one.tags, one.store_timestamp)
                    for one in result.messages()
                ]
                offset = max(result.next_begin_offset, offset + 1)
            found[name] = queue.min_offset, queue.max_offset, messages
            times = [message[-1] for message in messages[:: max(1, len(messages) // 5)]]
            found[f"{name} by time"] = [store.offset_by_time(queue.topic, queue.queue_id, at) for at in times]
        for topic in ("t0", "t1", "t2"):
            for key in _KEYS:
                asked = store.query_message(topic, key, 64)
                found[f"{topic} {key}"] = [one.commit_log_offset for one in asked]
                found[f"{topic} {key} since"] = [
                    len(store.query_message(topic, key, 64, begin=one.store_timestamp)) for one in asked
                ]
    return found
