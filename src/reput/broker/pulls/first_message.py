"""First offset of a new group: the queue's first message, while that is in memory (`checkInMemByConsumeOffset`)."""

from __future__ import annotations

from reput.broker.state import BrokerState
from reput.store.results import GetMessageStatus


def begins_in_memory(state: BrokerState, topic: str, queue_id: int) -> bool | None:
    """Whether offset 0 is there and in memory; None where the disk must be asked, by `asked_of_disk` in a thread."""
    raw = state.store.get_raw(topic, queue_id, 0, 1, may_wait=False)
    return None if raw is None else _is_in_memory(state, topic, queue_id)


def asked_of_disk(state: BrokerState, topic: str, queue_id: int) -> bool:
    """The same, for a thread that may wait."""
    state.store.get_raw(topic, queue_id, 0, 1)  # brings it into memory without the interpreter lock
    return _is_in_memory(state, topic, queue_id)


def _is_in_memory(state: BrokerState, topic: str, queue_id: int) -> bool:
    first = state.store.get_message(topic, queue_id, 0, 1)
    return first.status is GetMessageStatus.FOUND and not first.suggest_pulling_from_slave
