"""Trace data: what happened to messages, as RocketMQ's clients write it (`TraceDataEncoder`); pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

#: Separates the fields of a context, and ends it.
FIELD, CONTEXT = "\x01", "\x02"


class MessageType(IntEnum):
    """Kinds of messages (`MessageType`)."""

    NORMAL = 0
    TRANS_HALF = 1
    TRANS_COMMIT = 2
    DELAY = 3


class ConsumeReturnType(IntEnum):
    """Result of a handler (`ConsumeReturnType`)."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURN_NULL = 3
    FAILED = 4


@dataclass(frozen=True, slots=True)
class TracedMessage:
    """A message in traces; `keys` as one text."""

    topic: str
    message_id: str
    tags: str | None
    keys: str | None

    @property
    def index_keys(self) -> set[str]:
        """Keys by which the trace is found: the message's id, and its own keys."""
        return {self.message_id, *(self.keys or "").split()} - {""}


@dataclass(frozen=True, slots=True)
class SentContext:
    """A send (`Pub`). Times are ms since 1970 UTC, costs in ms."""

    message: TracedMessage
    timestamp: int
    region_id: str
    group: str
    broker_address: str
    body_length: int
    cost_time: int
    message_type: MessageType
    offset_message_id: str
    is_success: bool

    def encode(self) -> str:
        """The context as text."""
        one = self.message
        return _context(
            "Pub", self.timestamp, self.region_id, self.group, one.topic, one.message_id, one.tags, one.keys,
            self.broker_address, self.body_length, self.cost_time, int(self.message_type), self.offset_message_id,
            self.is_success,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ConsumedContext:
    """A message that a handler was given (`SubBefore`, `SubAfter`); `request_id` joins the two."""

    message: TracedMessage
    timestamp: int
    region_id: str
    group: str
    request_id: str
    retry_times: int
    cost_time: int | None = None
    return_type: ConsumeReturnType = ConsumeReturnType.SUCCESS

    def encode(self) -> str:
        """The context as text: before the handler if there is no `cost_time` yet."""
        one = self.message
        if self.cost_time is None:
            return _context(
                "SubBefore", self.timestamp, self.region_id, self.group, self.request_id, one.message_id,
                self.retry_times, one.keys,
            )  # fmt: skip
        return _context(
            "SubAfter", self.request_id, one.message_id, self.cost_time,
            self.return_type is ConsumeReturnType.SUCCESS, one.keys, int(self.return_type), self.timestamp, self.group,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class EndedContext:
    """The end of a transaction (`EndTransaction`)."""

    message: TracedMessage
    timestamp: int
    region_id: str
    group: str
    broker_address: str
    transaction_id: str
    state: str
    is_from_check: bool

    def encode(self) -> str:
        """The context as text."""
        one = self.message
        return _context(
            "EndTransaction", self.timestamp, self.region_id, self.group, one.topic, one.message_id, one.tags, one.keys,
            self.broker_address, int(MessageType.TRANS_COMMIT), self.transaction_id, self.state, self.is_from_check,
        )  # fmt: skip


TraceContext = SentContext | ConsumedContext | EndedContext


def _context(*fields: str | int | bool | None) -> str:
    return FIELD.join(map(_text, fields)) + CONTEXT


def _text(value: str | int | bool | None) -> str:
    """A field as Java's StringBuilder writes it."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
