"""Tail: the messages of a topic as they come, from the store of this process or of another one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from threading import Lock
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

from reput.config.arguments import check_seconds, check_whole, refusal
from reput.errors import ConfigError, StoreStateError
from reput.formats.message_ext import MessageExt
from reput.store.group_offsets import GroupOffsets
from reput.store.reads.get_result import GetMessageResult
from reput.store.reads.pages import Cold
from reput.store.results import GetMessageStatus
from reput.store.tail_source import TailSource

if TYPE_CHECKING:
    import pyarrow as pa

#: Where a tail begins in a queue of which its group has no offset: at the first message, after the last one, or at a
#: time with its zone.
ConsumeFrom = Literal["first", "last"] | datetime

_logger = logging.getLogger("reput.store")
#: Seconds between two commits while messages come.
_COMMIT_S = 1.0
#: Seconds that a thread waits for an event loop: so long a cancelled task leaves it behind.
_SLICE_S = 0.2
_ALL = 1 << 30
_FOUND = GetMessageStatus.FOUND
_AT_END = GetMessageStatus.OFFSET_OVERFLOW_ONE, GetMessageStatus.NO_MESSAGE_IN_QUEUE
_MOVED = GetMessageStatus.OFFSET_TOO_SMALL, GetMessageStatus.OFFSET_OVERFLOW_BADLY


class _Pull(NamedTuple):
    """Result of one pull: `messages` are given to a loop, or all at once; a table's pull has none."""

    queue_id: int
    offset: int
    messages: list[MessageExt]


_NOTHING = _Pull(-1, 0, [])


class Tail:
    """Messages of a topic as they come; made by `MessageStore.tail`, an iterator and an asynchronous one.

        with store.tail("orders", group="billing") as tail:
            for message in tail: ...

    Messages of one queue come in their order. Messages count as handled once more of them are asked for, or when the
    `with` block ends without an error. What is handled is committed once a second, before each wait and at the end, so
    a process that is killed gets messages of the last second again, and loses none.

    Used by one thread, or one task, at a time.
    """

    def __init__(
        self,
        source: TailSource,
        topic: str,
        *,
        check_open: Callable[[], None],
        group: str | None,
        offsets: GroupOffsets | None,
        queue_ids: Collection[int] | None,
        tags: str | None,
        consume_from: ConsumeFrom,
        timeout: float | None,
    ) -> None:
        """See `MessageStore.tail`."""
        if isinstance(consume_from, datetime) and consume_from.tzinfo is None:
            raise ConfigError(f"consume_from={consume_from}: a time needs its zone, as datetime.now(UTC) has it")
        if not isinstance(consume_from, datetime) and consume_from not in ("first", "last"):
            raise ConfigError(f"consume_from={consume_from!r}: expected 'first', 'last' or a datetime")
        self.topic, self.group = topic, group
        self._source = source
        self._check_store = check_open
        self._offsets = offsets
        self._queue_ids = None if queue_ids is None else sorted(queue_ids)
        self._tags = tags
        self._timeout = timeout
        self._busy = Lock()  # a thread that a cancelled task has left may still pull
        self._is_open = True
        #: The last pull, and which of its messages were given last: from `_first` on, up to `_given`.
        self._pull, self._first, self._given = _NOTHING, 0, 0
        self._committed = offsets.read(group, topic) if offsets is not None and group is not None else {}
        self._commit_at = time.monotonic() + _COMMIT_S
        #: Offset of the next pull by queue id; those of queues that come later begin at their first message.
        self._next: dict[int, int] = {}
        #: Queues that may have messages for the next pull, in the order of their turn.
        self._ready: dict[int, None] = {}
        for queue_id in self._queues():
            self._next[queue_id] = self._begin(queue_id, consume_from)
        self._uncommitted = set(self._next)

    def __repr__(self) -> str:
        state = "open" if self._is_open else "closed"
        return f"Tail({self.topic!r}, group={self.group!r}, {state}, positions={self.positions})"

    def _queues(self) -> list[int]:
        if self._queue_ids is not None:
            return self._queue_ids
        return self._source.parts.queues.queue_ids(self.topic)

    def _begin(self, queue_id: int, consume_from: ConsumeFrom) -> int:
        committed = self._committed.get(queue_id)
        if committed is not None:
            return committed
        queue = self._source.parts.queues.find(self.topic, queue_id)
        if queue is None:
            return 0
        if consume_from == "first":
            return queue.min_offset
        if consume_from == "last":
            return queue.max_offset
        assert isinstance(consume_from, datetime), "checked"
        return self._source.querying.offset_by_time(queue, int(consume_from.timestamp() * 1000), upper=False)

    # -- messages

    def poll(self, max_messages: int = 1000, timeout: float = 1.0) -> list[MessageExt]:
        """Messages of one queue that have come, `max_messages` at most; none if none comes in `timeout` seconds.

        Raises:
            ConfigError: An argument that is none.
            CorruptRecordError: A message is damaged, and `seek` goes past it; or damage ends the log.
            StoreStateError: The tail or its store is closed.
        """
        check_whole("max_messages", max_messages, 1)
        check_seconds("timeout", timeout, may_be_zero=True)
        with self._busy:
            if not self._has_more() and not self._pull_messages(max_messages, timeout):
                return []
            self._first = self._given
            self._given = min(self._first + max_messages, len(self._pull.messages))
            return self._pull.messages[self._first : self._given]

    def poll_arrow(self, timeout: float = 1.0, *, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Messages of one queue that have come, as one Arrow batch; an empty one if none comes in time.

        Args:
            timeout: Seconds to wait at most.
            columns: Of `reput.read_log`, all of them else. What is not asked for is not decoded.

        Raises:
            ConfigError: There is no such column, or a timeout is none.
            StoreStateError: The tail or its store is closed; a loop over this tail has messages left.
            CorruptRecordError: As `poll`.
        """
        check_seconds("timeout", timeout, may_be_zero=True)
        nothing = GetMessageResult(_AT_END[0], 0, 0, 0).to_arrow(columns)  # refuses a column before messages are taken
        with self._busy:
            if self._has_more():
                raise StoreStateError("a loop over this tail has messages left: make another tail for batches")
            found = self._wait_for(_ALL, timeout)
            if found is None:
                return nothing
            batch = found[1].to_arrow(columns)
            self._take(*found, [])
            self._given = 1  # the table
            return batch

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> MessageExt:
        if self._must_work() and not self._work(self._timeout):
            raise StopIteration
        return self._give()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MessageExt:
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        while self._must_work():
            left = _SLICE_S if deadline is None else max(0.0, deadline - time.monotonic())
            if await asyncio.to_thread(self._work, min(left, _SLICE_S)):
                break
            if not left:
                raise StopAsyncIteration
        return self._give()

    def _must_work(self) -> bool:
        """Whether a loop has no message left, or a commit is due: then `_work` comes before `_give`."""
        return not self._has_more() or time.monotonic() >= self._commit_at

    def _work(self, timeout: float | None) -> bool:
        """Commit what is handled, and pull if nothing is held; False if nothing comes in time."""
        with self._busy:
            if not self._has_more():  # the thread of a cancelled task may have pulled meanwhile
                return self._pull_messages(_ALL, timeout)
            self._check_open()
            self._commit()
            return True

    def _has_more(self) -> bool:
        return self._given < len(self._pull.messages)

    def _give(self) -> MessageExt:
        self._first = self._given
        self._given += 1
        return self._pull.messages[self._first]

    def _pull_messages(self, max_messages: int, timeout: float | None) -> bool:
        found = self._wait_for(max_messages, timeout)
        if found is not None:
            self._take(*found, found[1].messages())
        return found is not None

    def _take(self, queue_id: int, result: GetMessageResult, messages: list[MessageExt]) -> None:
        self._pull = _Pull(queue_id, self._next[queue_id], messages)
        self._next[queue_id] = result.next_begin_offset
        del self._ready[queue_id]
        self._ready[queue_id] = None  # as the last one: the other queues come first next time
        self._uncommitted.add(queue_id)

    def _wait_for(self, max_messages: int, timeout: float | None) -> tuple[int, GetMessageResult] | None:
        """The queue and the result of the next pull that finds messages; None after the time."""
        self._check_open()
        self._pull, self._first, self._given = _NOTHING, 0, 0  # all that was given is handled
        if time.monotonic() >= self._commit_at:
            self._commit()
        deadline = None if timeout is None else time.monotonic() + timeout
        while (found := self._look(max_messages)) is None:
            self._commit()
            if (damage := self._source.parts.report.damage) is not None:  # it ends the log for a reader
                raise damage
            left = _SLICE_S if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return None
            self._source.wait(min(left, _SLICE_S))
            self._check_open()
        return found

    def _look(self, max_messages: int) -> tuple[int, GetMessageResult] | None:
        news = self._source.news()
        for queue_id in self._queues() if news is None else sorted(news):
            if self._queue_ids is not None and queue_id not in self._queue_ids:
                continue
            if queue_id not in self._next:
                self._next[queue_id] = self._begin(queue_id, "first")
                self._uncommitted.add(queue_id)
            self._ready.setdefault(queue_id)
        for queue_id in list(self._ready):
            while True:
                offset = self._next[queue_id]
                result = self._source.getting.get(
                    self.topic, queue_id, offset, max_messages, self._tags, None, Cold.READ
                )
                if result.status is _FOUND:
                    return queue_id, result
                if result.status in _AT_END:
                    del self._ready[queue_id]
                    break
                if result.status in _MOVED:
                    self._tell_moved(queue_id, offset, result)
                self._next[queue_id] = result.next_begin_offset
                self._uncommitted.add(queue_id)
        return None

    def _tell_moved(self, queue_id: int, offset: int, result: GetMessageResult) -> None:
        _logger.warning(
            "%s, queue %d: the next message was to have offset %d, but the queue has [%d, %d); going on at %d",
            self.topic, queue_id, offset, result.min_offset, result.max_offset, result.next_begin_offset,
        )  # fmt: skip

    # -- offsets

    @property
    def positions(self) -> dict[int, int]:
        """The offset after the last message that was given, by queue id."""
        return self._positions(self._given)

    def _positions(self, given: int, queue_ids: Collection[int] | None = None) -> dict[int, int]:
        """The offsets after the first `given` messages of the last pull, of all queues or of some."""
        positions = {one: self._next[one] for one in sorted(self._next if queue_ids is None else queue_ids)}
        queue_id, offset, messages = self._pull
        if queue_id in positions and given < len(messages):
            positions[queue_id] = messages[given].queue_offset
        elif queue_id in positions and not given:  # before a table
            positions[queue_id] = offset
        return positions

    def seek(self, queue_id: int, offset: int) -> None:
        """Go on at an offset of a queue; raises ConfigError for a queue that is not there, and for no offset."""
        check_whole("queue_id", queue_id, 0)
        check_whole("offset", offset, 0)
        with self._busy:
            if queue_id not in (there := self._next.keys() | self._queues()):
                raise refusal("queue_id", queue_id, f"a queue of topic {self.topic!r}, as {sorted(there)} are")
            if self._pull.queue_id == queue_id:
                self._pull, self._first, self._given = _NOTHING, 0, 0
            self._next[queue_id] = offset
            self._ready.setdefault(queue_id)
            self._uncommitted.add(queue_id)

    def commit(self) -> None:
        """Keep the group's offsets: those after all messages that were given. They are on the disk when this returns.

        Raises:
            StoreStateError: The tail has no group; or another process writes the store, and `offsets` was not given.
            StoreError: They cannot be written.
        """
        if self._offsets is None:
            raise StoreStateError(
                "this tail keeps no offsets: give it a group, and `offsets`, a file, if another process writes the "
                "store"
            )
        with self._busy:
            self._commit()

    def _commit(self, *, last_is_handled: bool = True) -> None:
        self._commit_at = time.monotonic() + _COMMIT_S
        if self._offsets is None or self.group is None:
            return
        positions = self._positions(self._given if last_is_handled else self._first, self._uncommitted)
        changed = {queue: offset for queue, offset in positions.items() if self._committed.get(queue) != offset}
        if changed:
            self._offsets.commit(self.group, self.topic, changed)
            self._committed |= changed
        self._uncommitted = {self._pull.queue_id} & self._next.keys()  # of which more may be given

    # -- lifecycle

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreStateError(f"this tail of {self.topic!r} is closed; make another one with `tail`")
        self._check_store()

    def close(self) -> None:
        """Commit what is handled, all but the last message that was given; closing again does nothing."""
        self._close(last_is_handled=False)

    def _close(self, *, last_is_handled: bool) -> None:
        with self._busy:
            if not self._is_open:
                return
            self._is_open = False
            try:
                self._commit(last_is_handled=last_is_handled)
            finally:
                self._commit_at = 0.0  # a loop that has messages left looks whether the tail is open
                self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._close(last_is_handled=error is None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, error: type[BaseException] | None, *_: object) -> None:
        await asyncio.to_thread(self._close, last_is_handled=error is None)
