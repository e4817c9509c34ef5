"""First offset of a new group: the queue's first message, while that is in memory (`checkInMemByConsumeOffset`)."""

from __future__ import annotations

from reput.store.message_store import MessageStore
from reput.store.results import GetMessageStatus


def begins_in_memory(store: MessageStore, topic: str, queue_id: int) -> bool | None:
    """Whether offset 0 is there and in memory; None if the disk must be asked, by `asked_of_disk` in a thread."""
    raw = store.get_raw(topic, queue_id, 0, 1, may_wait=False)
    return None if raw is None else _is_in_memory(store, topic, queue_id)


def asked_of_disk(store: MessageStore, topic: str, queue_id: int) -> bool:
    """The same, for a thread that may wait."""
    store.get_raw(topic, queue_id, 0, 1)  # brings it into memory without the interpreter lock
    return _is_in_memory(store, topic, queue_id)


def _is_in_memory(store: MessageStore, topic: str, queue_id: int) -> bool:
    first = store.get_message(topic, queue_id, 0, 1)
    return first.status is GetMessageStatus.FOUND and not first.suggest_pulling_from_slave
