"""The twin of `kernels.records.record_encode`: one `Message` after the other through `formats.encode_record`."""

from __future__ import annotations

from dataclasses import dataclass, field

from reput.formats.hosts import decode_host
from reput.formats.message import Message
from reput.formats.record import encode_record
from reput.formats.record_layout import MAX_PROPERTIES_SIZE

_RESERVED = {"TAGS", "KEYS", "UNIQ_KEY"}
_SEPARATORS = {"\x01", "\x02"}


@dataclass
class EncodeRow:
    """One row of the columns that are encoded; texts that are empty are absent."""

    topic: str = "topic"
    queue_id: int = 0
    body: bytes = b""
    tags: str = ""
    keys: list[str] = field(default_factory=list)
    unique_key: str = ""
    properties: list[tuple[str, str]] = field(default_factory=list)
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: bytes = bytes(8)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


def fault_of(row: EncodeRow, max_body_size: int, reserved: int = 0) -> str:
    """The name of the first `EncodeFault` of a row."""
    if len(row.body) > max_body_size:
        return "BODY_TOO_LARGE"
    for name, value in row.properties:
        if not name or not value:
            return "EMPTY_PROPERTY"
        if _SEPARATORS & set(name + value):
            return "SEPARATOR_IN_PROPERTIES"
        if name in _RESERVED:
            return "RESERVED_PROPERTY"
    if _SEPARATORS & set(row.unique_key):
        return "SEPARATOR_IN_UNIQUE_KEY"
    if _SEPARATORS & set(row.tags):
        return "SEPARATOR_IN_TAGS"
    for key in row.keys:
        if _SEPARATORS & set(key):
            return "SEPARATOR_IN_KEYS"
        if not key or " " in key:
            return "BLANK_OR_EMPTY_KEY"
    return "PROPERTIES_TOO_LARGE" if len(properties_of(row)) + reserved > MAX_PROPERTIES_SIZE else "NONE"


def properties_of(row: EncodeRow) -> bytes:
    """The properties text: UNIQ_KEY, TAGS, KEYS, then the others as given."""
    own = [("UNIQ_KEY", row.unique_key), ("TAGS", row.tags), ("KEYS", " ".join(row.keys))]
    pairs = [(name, value) for name, value in own if value]
    pairs += [pair for pair in row.properties if pair[0] != "__CRC32#"]
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs).encode()


def message_of(row: EncodeRow) -> Message:
    """The row as a message; its properties must have no fault and different names."""
    return Message(
        topic=row.topic,
        body=row.body,
        tags=row.tags or None,
        keys=row.keys,
        properties=dict(row.properties),
        flag=row.flag,
        unique_key=row.unique_key or None,
        sys_flag=row.sys_flag,
        born_timestamp=row.born_timestamp,
        born_host=decode_host(row.born_host),
        reconsume_times=row.reconsume_times,
        prepared_transaction_offset=row.prepared_transaction_offset,
    )


def encode_rows(
    rows: list[EncodeRow],
    next_offsets: dict[tuple[str, int], int],
    base_offset: int,
    store_timestamp: int,
    store_host: bytes,
    property_crc: bool = False,
) -> bytes:
    """The records of all rows, one behind the other from `base_offset`; `next_offsets` are advanced."""
    data = b""
    for row in rows:
        queue = row.topic, row.queue_id
        takes_offset = row.sys_flag & 0xC in (0, 0x8)
        data += encode_record(
            message_of(row),
            queue_id=row.queue_id,
            queue_offset=next_offsets[queue] if takes_offset else 0,
            commit_log_offset=base_offset + len(data),
            store_timestamp=store_timestamp,
            store_host=store_host,
            born_timestamp=row.born_timestamp,
            born_host=row.born_host,
            property_crc=property_crc,
        )
        next_offsets[queue] += takes_offset
    return data
