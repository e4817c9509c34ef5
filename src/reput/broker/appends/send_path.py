"""SendPath: what a client's send goes through, from the queue where it is counted to its answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reput.broker.appends.durable_answers import DurableAnswers
from reput.broker.appends.put_hooks import PutHooks
from reput.broker.appends.replica_acks import ReplicaAcks
from reput.broker.appends.room_waiters import RoomWaiters
from reput.store.loop_writer import LoopWriter
from reput.transport.request_queue import RequestQueue


@dataclass(frozen=True, slots=True)
class SendPath:
    """Parts of a broker that sends share, in the order in which a send meets them.

    Attributes:
        queue: Counts the sends that wait.
        replicas: Slaves that acknowledge; None if the broker is no SYNC_MASTER.
        hooks: What is done to each message before it is put.
        room: Room in the log for what is sent.
        writer: What appends to the store, and dispatches.
        on_append: To call after an append: there is something to dispatch, if not before it is synced.
        waits: Whether answers wait, for a sync or for slaves.
        answers: Answers that wait.
    """

    queue: RequestQueue
    replicas: ReplicaAcks | None
    hooks: PutHooks
    room: RoomWaiters
    writer: LoopWriter
    on_append: Callable[[], None]
    waits: bool
    answers: DurableAnswers
