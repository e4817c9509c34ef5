"""CachedMessages: messages of one queue between their pull and the end of their handling (`msgTreeMap`); pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from reput.client.instance.message_client_ext import MessageClientExt


class CachedMessages:
    """Messages that are not handled yet, by their queue offsets, and the offset that may be committed.

    Attributes:
        bytes: Size of the messages' records.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._messages: dict[int, MessageClientExt] = {}
        self._after_last: int | None = None

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[MessageClientExt]:
        return iter(self._messages.values())

    @property
    def first(self) -> MessageClientExt | None:
        """The message with the smallest offset."""
        return next(iter(self._messages.values()), None)

    @property
    def last(self) -> MessageClientExt | None:
        """The message with the largest offset."""
        return next(reversed(self._messages.values()), None)

    @property
    def span(self) -> int:
        """Distance between the offsets of the first and the last message."""
        first = self.first
        return 0 if first is None or self._after_last is None else self._after_last - first.queue_offset

    def put(self, messages: Iterable[MessageClientExt], next_begin_offset: int) -> None:
        """Add messages of the next pull, whose offsets are behind all others; where the pull after it begins."""
        for message in messages:
            self._messages[message.queue_offset] = message
            self.bytes += message.store_size
        self._after_last = next_begin_offset

    def __contains__(self, message: MessageClientExt) -> bool:
        return self._messages.get(message.queue_offset) is message  # and not another copy, of a later pull

    def remove(self, message: MessageClientExt) -> bool:
        """A message is handled; False for one that is not here."""
        offset = message.queue_offset
        if self._messages.get(offset) is not message:
            return False
        del self._messages[offset]
        self.bytes -= message.store_size
        return True

    @property
    def commit_offset(self) -> int | None:
        """All messages before this offset are handled; None before the first pull."""
        first = self.first
        return self._after_last if first is None else first.queue_offset
