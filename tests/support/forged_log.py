"""A log that was made to deceive whoever looks for records by their bytes."""

from __future__ import annotations

from pathlib import Path

from reput.formats.hosts import encode_host
from reput.formats.message import Message
from reput.formats.paths import offset_to_file_name
from reput.formats.record import encode_blank, encode_record
from reput.formats.record_layout import BLANK_SIZE

HOST = encode_host("10.0.0.1:10911")
BORN_MS = 1_700_000_000_123


def forged_log(path: Path, file_size: int = 16_384) -> int:
    """A log whose bodies are chains of whole records that say truly where they lie; returns the count of messages."""

    def record(offset: int, body: bytes, queue_offset: int) -> bytes:
        return encode_record(
            Message("topic", body),
            queue_id=0,
            queue_offset=queue_offset,
            commit_log_offset=offset,
            store_timestamp=BORN_MS,
            store_host=HOST,
            born_timestamp=BORN_MS,
            born_host=HOST,
        )

    folder = path / "commitlog"
    folder.mkdir(parents=True)
    count = 0
    for start in (0, file_size, 2 * file_size):
        content = b""
        while True:
            offset = start + len(content)
            body = b""
            for _ in range(10):
                body += record(offset + 88 + len(body), b"stolen", 99)
            genuine = record(offset, body, count)
            if len(content) + len(genuine) + BLANK_SIZE > file_size:
                break
            content, count = content + genuine, count + 1
        content += encode_blank(file_size - len(content))
        (folder / offset_to_file_name(start)).write_bytes(content.ljust(file_size, b"\0"))
    return count
