"""MessageExt: a stored message, a view of a record whose fields are decoded at their first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from reput.formats.hosts import decode_host
from reput.formats.message_batch import INNER_BATCH, unfold_record
from reput.formats.message_id import encode_message_id
from reput.formats.properties import KEYS, TAGS, UNIQ_KEY, decode_properties, split_keys
from reput.formats.record_layout import Bounds, Buffer, Head, unpack_record

_FIELD_NAMES = (
    *("topic", "body", "tags", "keys", "properties", "flag", "unique_key"),
    *("queue_id", "queue_offset", "commit_log_offset", "store_size", "magic_code", "sys_flag"),
    *("born_timestamp", "born_host", "store_timestamp", "store_host", "reconsume_times"),
    *("prepared_transaction_offset", "body_crc"),
)


class MessageExt:
    """A stored message: a record at a position of a buffer, whose fields are decoded at their first use.

    buffer: bytes-like; it must not change while the message is in use (decode_record checks the record before).
    body: the bytes as stored, compressed if sys_flag says so. properties: all except TAGS, KEYS and UNIQ_KEY.
    Timestamps in ms since 1970 UTC; hosts as "ip:port". Bytes that are no UTF-8 are shown as U+FFFD.
    A field of a damaged record raises CorruptRecordError (path '', offset = position).
    """

    # A slot is empty at first. Python calls __getattr__ for empty slots only; it fills the slot.
    __slots__ = ("_bounds", "_buffer", "_head", "_position", *_FIELD_NAMES)

    topic: str
    body: bytes
    tags: str | None
    keys: tuple[str, ...]
    properties: dict[str, str]
    flag: int
    unique_key: str | None
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    store_size: int
    magic_code: int
    sys_flag: int
    born_timestamp: int
    born_host: str
    store_timestamp: int
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    body_crc: int
    _bounds: Bounds
    _head: Head

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        self._buffer = buffer
        self._position = position

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            decode = _DECODE.get(name)
            if decode is None:
                raise AttributeError(f"MessageExt has no field {name!r}")
            decode(self)
            return getattr(self, name)

    @property
    def message_id(self) -> str:
        """RocketMQ's offset message id (MessageDecoder.createMessageId)."""
        return encode_message_id(self._head[11], self._head[6])

    @property
    def raw(self) -> bytes:
        """The record's bytes, as they lie in the log."""
        return bytes(self._buffer[self._position : self._position + self.store_size])

    def unfold(self) -> list[MessageExt]:
        """The messages of an inner batch, each as the store would have stored it alone; of another record, itself.

        A client does this with messages of a topic with batch consume queues (`MessageDecoder.decodesBatch`).
        """
        if self.sys_flag & INNER_BATCH != INNER_BATCH:
            return [self]
        return [MessageExt(one) for one in unfold_record(self.raw) or ()] or [self]

    def _unpack(self) -> None:
        self._head, self._bounds = unpack_record(self._buffer, self._position)

    def _decode_head(self) -> None:
        head = self._head
        self.store_size, self.magic_code, self.body_crc, self.queue_id, self.flag = head[:5]
        self.queue_offset, self.commit_log_offset, self.sys_flag, self.born_timestamp = head[5:9]
        self.born_host = decode_host(head[9])
        self.store_timestamp = head[10]
        self.store_host = decode_host(head[11])
        self.reconsume_times, self.prepared_transaction_offset = head[12:14]

    def _decode_body(self) -> None:
        start, end = self._bounds[:2]
        self.body = bytes(self._buffer[start:end])

    def _decode_topic(self) -> None:
        start, end = self._bounds[2:4]
        self.topic = bytes(self._buffer[start:end]).decode(errors="replace")

    def _decode_properties(self) -> None:
        start, end = self._bounds[4:]
        properties = decode_properties(bytes(self._buffer[start:end]))
        self._keep_tags_and_keys(properties.pop(TAGS, None), split_keys(properties.pop(KEYS, "")))
        self.unique_key = properties.pop(UNIQ_KEY, None)
        self.properties = properties

    def _keep_tags_and_keys(self, tags: str | None, keys: tuple[str, ...]) -> None:
        self.tags, self.keys = tags, keys

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MessageExt):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _FIELD_NAMES)

    def __repr__(self) -> str:
        return f"MessageExt({', '.join(f'{name}={getattr(self, name)!r}' for name in _FIELD_NAMES)})"

    def __reduce__(self) -> tuple[type[MessageExt], tuple[bytes]]:
        """Copy and pickle only the record's bytes, not the buffer that holds them."""
        return MessageExt, (bytes(self._buffer[self._position : self._position + self.store_size]),)


_DECODE: dict[str, Callable[[MessageExt], None]] = {
    **dict.fromkeys(("_head", "_bounds"), MessageExt._unpack),
    **dict.fromkeys(_FIELD_NAMES, MessageExt._decode_head),
    **dict.fromkeys(("tags", "keys", "unique_key", "properties"), MessageExt._decode_properties),
    "topic": MessageExt._decode_topic,
    "body": MessageExt._decode_body,
}
