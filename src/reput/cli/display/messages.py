"""Output of stored messages: all fields as JSON, or the main fields as a row of a table."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from reput.cli.display.output import iso_time, write_json, write_table
from reput.errors import CorruptRecordError
from reput.formats.message_ext import MessageExt
from reput.formats.paths import COMMIT_LOG
from reput.formats.record_layout import SysFlag
from reput.jobs.text_values import bytes_fields

#: Columns of the table; the first two are left out if all messages are of one queue.
_COLUMNS = ("topic", "queue", "queue offset", "log offset", "stored", "tags", "keys", "body")


def message_fields(message: MessageExt, body: bytes) -> dict[str, Any]:
    """Fields of a message under the names of `MessageExt`, and `body_fields`."""
    return {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "commit_log_offset": message.commit_log_offset,
        "store_size": message.store_size,
        "message_id": message.message_id,
        "tags": message.tags,
        "keys": list(message.keys),
        "unique_key": message.unique_key,
        "properties": message.properties,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "magic_code": message.magic_code,
        "born_timestamp": message.born_timestamp,
        "born_host": message.born_host,
        "store_timestamp": message.store_timestamp,
        "store_host": message.store_host,
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
        "body_crc": message.body_crc,
        **body_fields(body),
    }


def body_fields(body: bytes) -> dict[str, str]:
    """Field `body` with text if the body is UTF-8, else field `body_base64`."""
    return bytes_fields("body", body)


def write_messages(messages: Iterable[MessageExt], *, as_json: bool, of_one_queue: bool = False) -> None:
    """Print a line of JSON for each message, or one table. Bodies are decompressed if possible."""
    if as_json:
        for message in messages:
            write_json(message_fields(message, _shown_body(message)))
    else:
        first = 2 if of_one_queue else 0
        write_table(
            _COLUMNS[first:],
            [_row(message)[first:] for message in messages],
            one_line=("topic", "tags", "keys", "body"),
        )


def body_damage(store: str, message: MessageExt) -> CorruptRecordError | None:
    """Damage of a message whose body does not fit its CRC; an empty body has none, as in RocketMQ."""
    from reput.formats.java import body_crc

    if not message.body or body_crc(message.body) == message.body_crc:
        return None
    reason = f"body CRC: BODYCRC says {message.body_crc}, the body gives {body_crc(message.body)}"
    return CorruptRecordError(os.path.join(store, COMMIT_LOG), message.commit_log_offset, reason)


def _row(message: MessageExt) -> tuple[str | int, ...]:
    return (
        message.topic,
        message.queue_id,
        message.queue_offset,
        message.commit_log_offset,
        iso_time(message.store_timestamp),
        message.tags or "",
        " ".join(message.keys),
        next(iter(body_fields(_shown_body(message)).values())),
    )


def _shown_body(message: MessageExt) -> bytes:
    """Decompressed body; as stored if it is not compressed, or cannot be decompressed."""
    if not message.sys_flag & SysFlag.COMPRESSED:
        return message.body
    from reput.log.reads.compression import decompress

    plain = decompress(message.body, message.sys_flag)
    return message.body if plain is None else plain
