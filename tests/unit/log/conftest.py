"""A commit log written by hand: files of any size, as RocketMQ fills them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from reput.formats.hosts import encode_host
from reput.formats.message import Message
from reput.formats.paths import offset_to_file_name
from reput.formats.record import encode_blank, encode_record
from reput.formats.record_layout import BLANK_SIZE
from tests.support.fixtures import LogWriter

HOST = encode_host("10.0.0.1:10911")


def encode(message: Message, offset: int, queue_offset: int = 0, store_timestamp: int | None = None) -> bytes:
    """A record whose store timestamp is its offset, unless another is given."""
    return encode_record(
        message,
        queue_id=queue_offset % 4,
        queue_offset=queue_offset,
        commit_log_offset=offset,
        store_timestamp=offset if store_timestamp is None else store_timestamp,
        store_host=HOST,
        born_timestamp=1_700_000_000_000,
        born_host=HOST,
    )


@pytest.fixture
def write_log(tmp_path: Path) -> LogWriter:
    """`write_log(messages, file_size, start=0, spare_files=0)` -> offset of each record, in `tmp_path/store`."""

    def write(messages: Sequence[Message], file_size: int, *, start: int = 0, spare_files: int = 0) -> list[int]:
        folder = tmp_path / "store" / "commitlog"
        folder.mkdir(parents=True, exist_ok=True)
        offsets: list[int] = []
        file_start, content = start, b""
        for queue_offset, message in enumerate(messages):
            record = encode(message, file_start + len(content), queue_offset)
            if len(content) + len(record) + BLANK_SIZE > file_size:
                content += encode_blank(file_size - len(content))
                (folder / offset_to_file_name(file_start)).write_bytes(content.ljust(file_size, b"\0"))
                file_start, content = file_start + file_size, b""
                record = encode(message, file_start, queue_offset)
            offsets.append(file_start + len(content))
            content += record
        for _ in range(spare_files + 1):
            (folder / offset_to_file_name(file_start)).write_bytes(content.ljust(file_size, b"\0"))
            file_start, content = file_start + file_size, b""
        return offsets

    return write
