"""PulledMessage: a message of a pull, whose body, tags and keys are made for the whole pull at once."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from reput.formats.message_ext import MessageExt
from reput.formats.record_layout import Buffer
from reput.kernels.records.columns import RecordColumns
from reput.kernels.records.message_lists import body_list, keys_list, tags_list


class PulledFields:
    """Fields of all messages of a pull, each made at its first use for all of them.

    records: Its rows are the messages.
    """

    def __init__(self, records: RecordColumns) -> None:
        self._records = records
        self._address: int = records.buffer.ctypes.data

    @cached_property
    def bodies(self) -> list[bytes]:
        """As stored."""
        return body_list(self._records, self._address)

    @cached_property
    def tags(self) -> list[str | None]:
        """None for a message without tags."""
        return tags_list(self._records, self._address)

    @cached_property
    def keys(self) -> list[tuple[str, ...]]:
        """Of the property KEYS."""
        return keys_list(self._records, self._address)


class PulledMessage(MessageExt):
    """A message of a pull. As long as it lives, so do the fields of the pull; a copy of it has its own alone."""

    __slots__ = ("_fields", "_row")

    def __init__(self, buffer: Buffer, position: int, fields: PulledFields, row: int) -> None:
        self._buffer = buffer
        self._position = position
        self._fields = fields
        self._row = row

    if not TYPE_CHECKING:  # attributes of a MessageExt
        body = property(lambda self: self._fields.bodies[self._row])
        tags = property(lambda self: self._fields.tags[self._row])
        keys = property(lambda self: self._fields.keys[self._row])

    def _keep_tags_and_keys(self, tags: str | None, keys: tuple[str, ...]) -> None:
        """They are in the fields of the pull."""
