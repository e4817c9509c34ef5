"""Orderly pops of groups (`ConsumerOrderInfoManager`): a queue is blocked until its messages are acked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from reput.files import DISK, FileLayer
from reput.formats.metadata import ConsumerOrderInfos, OrderInfo, split_topic_group
from reput.service.config_manager import ConfigManager
from reput.service.pop.revive_round import QUIET_MS

#: What nobody has popped for so long is forgotten.
_KEPT_MS = 86_400_000


class OrderAck(Enum):
    """Reason why an ack in order moves no offset."""

    LATE = "LATE"
    ILLEGAL = "ILLEGAL"


@dataclass(slots=True)
class _Popped:
    """`OrderInfo` with absolute offsets, to be changed."""

    pop_time: int
    invisible_time: int | None
    last_ms: int
    offsets: tuple[int, ...]
    counts: Mapping[int, int]
    attempt_id: str | None
    acked: set[int] = field(default_factory=set)
    visible_times: dict[int, int] = field(default_factory=dict)

    def free_at(self, invisible_time: int) -> int:
        """Time when all messages that are not acked are visible again; 0 if all are acked."""
        invisible = self.invisible_time or invisible_time
        waiting = (offset for offset in self.offsets if offset not in self.acked)
        return max((self.visible_times.get(offset, self.pop_time + invisible) for offset in waiting), default=0)


class ConsumerOrderInfoManager(ConfigManager[ConsumerOrderInfos]):
    """The content of `config/consumerOrderInfo.json`.

    It is in memory at once and in the file after the next `persist`: a broker that is killed gives the messages of the
    last seconds at once again.

    Args:
        root: The store directory.
        files: The file layer.

    Raises:
        CorruptMetadataError: The file and its backup are damaged.
    """

    follows_log = True

    def __init__(self, root: str, files: FileLayer = DISK) -> None:
        super().__init__(ConsumerOrderInfos, root, files)
        self._table: dict[str, dict[int, _Popped]] = {
            key: {queue_id: _popped(one) for queue_id, one in queues.items()}
            for key, queues in self._loaded.table.items()
        }

    def content(self) -> ConsumerOrderInfos:
        """The content of `consumerOrderInfo.json`, as of now."""
        table = {
            key: {queue_id: _order_info(one) for queue_id, one in queues.items()} for key, queues in self._table.items()
        }
        return ConsumerOrderInfos(table, self._loaded.others)

    def _find(self, topic: str, group: str, queue_id: int) -> _Popped | None:
        return self._table.get(f"{topic}@{group}", {}).get(queue_id)

    def free_at(
        self, topic: str, group: str, queue_id: int, attempt_id: str | None, invisible_time: int, now_ms: int
    ) -> int:
        """Time when a queue can be popped, ms since 1970 UTC: before that it is blocked; 0 if nothing blocks it.

        The request with the attemptId of the last pop is not blocked: its answer may have been lost. Nor is any after a
        pop whose time is still to come: the clock was ahead. A clock that is set back by less than `QUIET_MS`, as NTP
        does, opens nothing: the messages of that pop are still on their way.
        """
        popped = self._find(topic, group, queue_id)
        is_ahead = popped is not None and popped.pop_time > now_ms + QUIET_MS
        if popped is None or is_ahead or (attempt_id is not None and attempt_id == popped.attempt_id):
            return 0
        return popped.free_at(invisible_time)

    def update(
        self,
        topic: str,
        group: str,
        queue_id: int,
        *,
        pop_time: int,
        invisible_time: int,
        offsets: Sequence[int],
        attempt_id: str | None,
        now_ms: int,
    ) -> Mapping[int, int]:
        """Keep what was popped; returns by offset how often a message was delivered before, if it was."""
        before, counts = self._find(topic, group, queue_id), {}
        if before is not None and attempt_id is not None and attempt_id == before.attempt_id:
            counts = dict(before.counts)
        elif before is not None:
            known = set(before.offsets)
            counts = {offset: before.counts.get(offset, 0) + 1 for offset in offsets if offset in known}
        popped = _Popped(pop_time, invisible_time, now_ms, tuple(offsets), counts, attempt_id)
        self._table.setdefault(f"{topic}@{group}", {})[queue_id] = popped
        self._next_version(now_ms)
        return counts

    def commit_and_next(
        self, topic: str, group: str, queue_id: int, offset: int, pop_time: int, now_ms: int
    ) -> int | OrderAck:
        """Ack a message; returns the offset that the group gets, or why nothing changes."""
        popped = self._find(topic, group, queue_id)
        if popped is None:
            return offset + 1
        if not popped.offsets:
            return OrderAck.ILLEGAL
        if pop_time != popped.pop_time:
            return OrderAck.LATE
        if offset not in popped.offsets:
            return OrderAck.ILLEGAL
        popped.acked.add(offset)
        self._next_version(now_ms)
        return next((one for one in popped.offsets if one not in popped.acked), popped.offsets[-1] + 1)

    def update_next_visible_time(
        self, topic: str, group: str, queue_id: int, offset: int, pop_time: int, visible_ms: int, now_ms: int
    ) -> None:
        """Change until when a message blocks its queue; nothing changes for one of an older pop."""
        popped = self._find(topic, group, queue_id)
        if popped is not None and popped.pop_time == pop_time and offset in popped.offsets:
            popped.visible_times[offset] = visible_ms
            self._next_version(now_ms)

    def clear_block(self, topic: str, group: str, queue_id: int, now_ms: int) -> None:
        """Forget what was popped of a queue, as its offset was reset."""
        if self._table.get(f"{topic}@{group}", {}).pop(queue_id, None) is not None:
            self._next_version(now_ms)

    def auto_clean(self, is_there: Callable[[str, str, int], bool], now_ms: int) -> None:
        """Forget queues that are not there any more, and what nobody has popped for a day.

        is_there: takes topic, group and queue id.
        """
        for key, queues in list(self._table.items()):
            topic, group = split_topic_group(key)
            for queue_id, popped in list(queues.items()):
                if not is_there(topic, group, queue_id) or now_ms - popped.last_ms > _KEPT_MS:
                    del queues[queue_id]
                    self._next_version(now_ms)
            if not queues:
                del self._table[key]


def _popped(info: OrderInfo) -> _Popped:
    first = info.o[0] if info.o else 0
    offsets = (first, *(first + one for one in info.o[1:])) if info.o else ()
    acked = {offset for number, offset in enumerate(offsets) if info.cm >> number & 1}
    return _Popped(info.pop_time, info.i, info.l, offsets, info.oc or {}, info.a, acked, dict(info.ot or {}))


def _order_info(popped: _Popped) -> OrderInfo:
    offsets = popped.offsets
    bits = sum(1 << number for number, offset in enumerate(offsets) if offset in popped.acked)
    diffs = [*offsets[:1], *(one - offsets[0] for one in offsets[1:])]
    return OrderInfo(
        popped.pop_time, popped.invisible_time, popped.last_ms, diffs, bits, dict(popped.counts),
        dict(popped.visible_times) or None, popped.attempt_id,
    )  # fmt: skip
