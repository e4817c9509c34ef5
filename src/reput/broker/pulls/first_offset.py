"""First offset of a new group: the queue's first message, while that is in memory (`checkInMemByConsumeOffset`).

It is offset 0. In a topic that was deleted before it was made, it is the first offset since then.
"""

from __future__ import annotations

from reput.store.message_store import MessageStore
from reput.store.results import GetMessageStatus


def first_offset(store: MessageStore, topic: str, queue_id: int) -> int:
    """Offset of the first message that a queue ever had, as a queue of the topic as it is now."""
    begin = (store.topic_metadata.begin_offset_table or {}).get(topic, 0)
    return store.min_offset(topic, queue_id) if begin > store.min_commit_log_offset else 0


def begins_in_memory(store: MessageStore, topic: str, queue_id: int) -> bool | None:
    """Whether the first message is in memory; None if the disk must be asked, by `asked_of_disk` in a thread."""
    raw = store.get_raw(topic, queue_id, first_offset(store, topic, queue_id), 1, may_wait=False)
    return None if raw is None else _is_in_memory(store, topic, queue_id)


def asked_of_disk(store: MessageStore, topic: str, queue_id: int) -> bool:
    """The same, for a thread that may wait."""
    # brings it into memory without the interpreter lock
    store.get_raw(topic, queue_id, first_offset(store, topic, queue_id), 1)
    return _is_in_memory(store, topic, queue_id)


def _is_in_memory(store: MessageStore, topic: str, queue_id: int) -> bool:
    first = store.get_message(topic, queue_id, first_offset(store, topic, queue_id), 1)
    return first.status is GetMessageStatus.FOUND and not first.suggest_pulling_from_slave
