"""Messages with a key each, in some queues of one topic."""

from __future__ import annotations

import reput


def put_keyed(store: reput.MessageStore, count: int, queues: int = 1) -> None:
    """Put messages with the keys k0, k1, ... to the queues of topic t in turn, and return when they are dispatched."""
    for number in range(count):
        store.put_message(reput.Message("t", bytes(300), keys=[f"k{number}"]), number % queues)
    store.wait_dispatched()
