"""PopStats: what POP has done since the broker's start, for a monitoring system (`PopMetricsManager`)."""

from __future__ import annotations

from collections import Counter

from reput.formats.pop_messages import CheckPointKey

#: `PutMessageStatus` of what is in the log, and of what could not be put, whatever the reason.
PUT_OK, PUT_FAILED = "PUT_OK", "UNKNOWN_ERROR"
#: `PopReviveMessageType`.
CK, ACK = "CK", "ACK"


class PopStats:
    """Counts of check points, acks and revived messages.

    Attributes:
        put: Put into the revive topic, by (group, topic, CK or ACK, status).
        got: Read from it when due, by (group, topic, CK or ACK, revive queue).
        retried: Messages that nobody acked, put into a retry topic, by (group, topic, status).
    """

    def __init__(self) -> None:
        self.put: Counter[tuple[str, str, str, str]] = Counter()
        self.got: Counter[tuple[str, str, str, int]] = Counter()
        self.retried: Counter[tuple[str, str, str]] = Counter()

    def inc_put(self, key: CheckPointKey, kind: str, status: str) -> None:
        """Count a check point or an ack that was put, or could not be."""
        self.put[key.group, key.topic, kind, status] += 1

    def inc_got(self, key: CheckPointKey, kind: str, queue_id: int) -> None:
        """Count a check point or an ack that was read; one that is read again counts again."""
        self.got[key.group, key.topic, kind, queue_id] += 1

    def inc_retried(self, key: CheckPointKey, status: str) -> None:
        """Count a message of a check point that was revived, or could not be."""
        self.retried[key.group, key.topic, status] += 1
