"""PopStats: what POP has done since the broker's start, for a monitoring system (`PopMetricsManager`)."""

from __future__ import annotations

from reput.formats.pop_messages import CheckPointKey
from reput.service.bounded_counter import BoundedCounter

#: `PutMessageStatus` of what is in the log, and of what could not be put, whatever the reason.
PUT_OK, PUT_FAILED = "PUT_OK", "UNKNOWN_ERROR"
#: `PopReviveMessageType`.
CK, ACK = "CK", "ACK"


class PopStats:
    """Counts of check points, acks and revived messages; without group and topic if these are too many.

    Attributes:
        put: Put into the revive topic, by (group, topic, CK or ACK, status).
        got: Read from it when due, by (group, topic, CK or ACK, revive queue).
        retried: Messages that nobody acked, put into a retry topic, by (group, topic, status).
    """

    def __init__(self) -> None:
        self.put: BoundedCounter[tuple[str, str, str, str]] = BoundedCounter()
        self.got: BoundedCounter[tuple[str, str, str, int]] = BoundedCounter()
        self.retried: BoundedCounter[tuple[str, str, str]] = BoundedCounter()

    def inc_put(self, key: CheckPointKey, kind: str, status: str, count: int = 1) -> None:
        """Count check points or acks that were put, or could not be."""
        self.put.inc((key.group, key.topic, kind, status), ("", "", kind, status), count)

    def inc_got(self, key: CheckPointKey, kind: str, queue_id: int) -> None:
        """Count a check point or an ack that was read; one that is read again counts again."""
        self.got.inc((key.group, key.topic, kind, queue_id), ("", "", kind, queue_id))

    def inc_retried(self, key: CheckPointKey, status: str) -> None:
        """Count a message of a check point that was revived, or could not be."""
        self.retried.inc((key.group, key.topic, status), ("", "", status))
