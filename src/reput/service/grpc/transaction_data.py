"""Offsets of half messages, which a client that ends its transaction does not know (`TransactionDataManager`)."""

from __future__ import annotations

from typing import NamedTuple

#: transactionDataExpireMillis, transactionDataMaxNum.
_EXPIRE_MS, _MAX_NUM = 30_000, 15
#: Transactions of which offsets are known; the oldest are forgotten first.
_MOST = 100_000


class HalfMessage(NamedTuple):
    """Offsets of a half message in its queue and in the log, and the time in ms until which they are kept."""

    queue_offset: int
    commit_log_offset: int
    until_ms: int


class TransactionData:
    """Half messages by the topic of their message and by transaction id, the newest last."""

    def __init__(self) -> None:
        self._noted: dict[tuple[str, str], list[HalfMessage]] = {}
        self._ended: dict[tuple[str, str], None] = {}

    def note(self, topic: str, transaction_id: str, queue_offset: int, commit_log_offset: int, now_ms: int) -> None:
        """Keep the offsets of a half message that was put or asked for."""
        self._ended.pop((topic, transaction_id), None)
        noted = self._noted.pop((topic, transaction_id), [])
        noted.append(HalfMessage(queue_offset, commit_log_offset, now_ms + _EXPIRE_MS))
        self._noted[topic, transaction_id] = noted[-_MAX_NUM:]
        while len(self._noted) > _MOST or next(iter(self._noted.values()))[-1].until_ms <= now_ms:
            del self._noted[next(iter(self._noted))]

    def take(self, topic: str, transaction_id: str, now_ms: int) -> HalfMessage | None:
        """The newest half message of a transaction, which is forgotten here; None if none is known."""
        noted = self._noted.pop((topic, transaction_id), [])
        return next((one for one in reversed(noted) if one.until_ms > now_ms), None)

    def end(self, topic: str, transaction_id: str) -> None:
        """Know that a transaction has ended: an end of it that comes again finds nothing."""
        self._ended[topic, transaction_id] = None
        if len(self._ended) > _MOST:
            del self._ended[next(iter(self._ended))]

    def is_ended(self, topic: str, transaction_id: str) -> bool:
        """Whether a transaction has ended a short time ago."""
        return (topic, transaction_id) in self._ended
