"""Offset message ids: a store's host and a commit log offset as a text."""

from __future__ import annotations

from reput.errors import MessageIllegalError
from reput.formats.hosts import HOST_V4_SIZE, HOST_V6_SIZE

_OFFSET_SIZE = 8
#: Hexadecimal digits of a host of 8 bytes, and of an offset.
HOST_V4_DIGITS, OFFSET_DIGITS = 2 * HOST_V4_SIZE, 2 * _OFFSET_SIZE


def encode_message_id(store_host: bytes, commit_log_offset: int) -> str:
    """Offset message id: upper-case hex of the store's host (8 or 20 bytes) and the offset, 32 or 56 digits."""
    return (store_host + commit_log_offset.to_bytes(_OFFSET_SIZE, "big", signed=True)).hex().upper()


def decode_message_id(text: str) -> tuple[bytes, int]:
    """Store host (8 or 20 bytes) and CommitLog offset of an offset message id; raises MessageIllegalError."""
    sizes = (HOST_V4_SIZE + _OFFSET_SIZE, HOST_V6_SIZE + _OFFSET_SIZE)
    try:
        data = bytes.fromhex(text)
    except ValueError:
        data = b""
    if len(data) not in sizes or 2 * len(data) != len(text):
        raise MessageIllegalError(f"message id {text!r}: expected 32 or 56 hexadecimal digits (host, port, offset)")
    return data[:-_OFFSET_SIZE], int.from_bytes(data[-_OFFSET_SIZE:], "big", signed=True)
