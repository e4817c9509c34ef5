"""Headers of the request that recalls a message with a time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RecallMessageRequestHeader:
    """A message that is not to be delivered (RECALL_MESSAGE); `recall_handle`: of the answer to its send."""

    topic: str
    recall_handle: str
    producer_group: str | None = None


@dataclass(frozen=True, slots=True)
class RecallMessageResponseHeader:
    """`msg_id`: the unique key of the message."""

    msg_id: str
