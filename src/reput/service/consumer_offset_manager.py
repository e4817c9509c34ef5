"""Offsets of each group in each queue (`ConsumerOffsetManager`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from reput.files import DISK, FileLayer
from reput.formats.metadata import ConsumerOffsets, split_topic_group
from reput.service.config_manager import ConfigManager, Snapshot

_Offsets = dict[str, dict[int, int]]
#: Derived from the offsets; RocketMQ writes it and does not read it.
_GROUP_TOPIC_MAP = "groupTopicMap"


class ConsumerOffsetManager(ConfigManager[ConsumerOffsets]):
    """The offsets of `config/consumerOffset.json`, and resets that consumers do not know of yet.

    Offsets are in memory at once and in the file after the next `persist`: a broker that is killed gives messages of
    the last seconds again. RocketMQ persists every 5 seconds (`flushConsumerOffsetInterval`).

    Args:
        root: The store directory.
        files: The file layer.
        consumer_offset_update_version_step: The data version goes on by one after this number of commits.

    Raises:
        CorruptMetadataError: The file and its backup are damaged.
    """

    follows_log = True

    def __init__(self, root: str, files: FileLayer = DISK, *, consumer_offset_update_version_step: int = 500) -> None:
        super().__init__(ConsumerOffsets, root, files)
        self._step = consumer_offset_update_version_step
        self._offsets: _Offsets = {key: dict(queues) for key, queues in self._loaded.offset_table.items()}
        #: What was last copied of a master; None of a master itself.
        self._copied: _Offsets | None = None
        self._resets: _Offsets = {}
        self._pulls: _Offsets = {}

    def content(self) -> ConsumerOffsets:
        """The content of `consumerOffset.json`, as of now."""
        offsets = {key: queues.copy() for key, queues in self._offsets.items()}
        others = {name: value for name, value in self._loaded.others.items() if name != _GROUP_TOPIC_MAP}
        return ConsumerOffsets(offsets, self.data_version, others, self._other_than_copied())

    def _other_than_copied(self) -> _Offsets | None:
        """The master's offset of each queue with another one here; None if there is none."""
        found: _Offsets = {}
        for key, queues in self._offsets.items() if self._copied is not None else ():
            before = (self._copied or {}).get(key, {})
            if other := {one: before.get(one, -1) for one, offset in queues.items() if before.get(one) != offset}:
                found[key] = other
        return found or None

    def _before(self) -> _Offsets:
        """Offsets that were copied last, perhaps before a restart."""
        if self._copied is not None:
            return self._copied
        kept = self._loaded.copied_offset_table or {}
        return {key: {**queues, **kept.get(key, {})} for key, queues in self._offsets.items()}

    def persist(self, snapshot: Snapshot[ConsumerOffsets]) -> None:
        """See `ConfigManager.persist`; a broker also writes the topics of each group."""
        topics: dict[str, list[str]] = {}
        for topic, group in map(split_topic_group, snapshot.content.offset_table):
            topics.setdefault(group, []).append(topic)
        of_groups = {group: tuple(names) for group, names in topics.items()}
        others = {**snapshot.content.others, _GROUP_TOPIC_MAP: of_groups}
        super().persist(replace(snapshot, content=replace(snapshot.content, others=others)))

    def commit_offset(self, group: str, topic: str, queue_id: int, offset: int, now_ms: int) -> None:
        """Keep the next offset that a group will consume; a smaller one than before is taken, too.

        UPDATE_CONSUMER_OFFSET is to be ignored while `has_offset_reset`.
        """
        key = f"{topic}@{group}"
        queues = self._offsets.get(key)
        if queues is None:
            queues = self._offsets[key] = {}
        queues[queue_id] = offset
        self._count(self._step, now_ms)

    def query_offset(self, group: str, topic: str, queue_id: int) -> int:
        """The offset of a pending reset, else the committed one, else -1."""
        key = f"{topic}@{group}"
        for table in (self._resets, self._offsets):
            offset = table.get(key, {}).get(queue_id)
            if offset is not None:
                return offset
        return -1

    def query_offsets(self, group: str, topic: str) -> Mapping[int, int]:
        """The committed offsets of a group by queue id; empty if there are none."""
        return dict(self._offsets.get(f"{topic}@{group}", {}))

    def copy(self, content: ConsumerOffsets, max_offset: Callable[[str, int], int]) -> None:
        """Take over the offsets of a master, and have no others.

        A group that was served here, as its master was away, is farther than the master knows: an offset that was
        committed here counts until the master's has reached it, or goes back: that is a reset.

        Args:
            max_offset: The end of a queue, by topic and queue id: an offset is taken up to it.
        """
        ours = self._offsets
        before = self._before()
        table: _Offsets = {}
        copied: _Offsets = {}
        for key, theirs in content.offset_table.items():
            topic = split_topic_group(key)[0]
            known, old = ours.get(key, {}), before.get(key, {})
            copied[key] = queues = {
                queue_id: offset if old.get(queue_id) == offset else min(offset, max_offset(topic, queue_id))
                for queue_id, offset in theirs.items()
            }
            table[key] = {
                queue_id: max(offset, known.get(queue_id, offset))
                if known.get(queue_id) != old.get(queue_id) and offset >= old.get(queue_id, offset)
                else offset
                for queue_id, offset in queues.items()
            }
        for key, known in ours.items():
            for queue_id, offset in known.items():
                if before.get(key, {}).get(queue_id) != offset and queue_id not in table.get(key, {}):
                    table.setdefault(key, {})[queue_id] = offset
        is_new = copied != self._copied
        self._copied = copied
        if table != ours:
            self._offsets, self.data_version = table, content.data_version
        self._changes += is_new or table != ours

    def commit_pull_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Keep how far a group has pulled; it is lost with the process."""
        self._pulls.setdefault(f"{topic}@{group}", {})[queue_id] = offset

    def query_pull_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Offset up to which a group has pulled, else the result of `query_offset`."""
        offset = self._pulls.get(f"{topic}@{group}", {}).get(queue_id)
        return self.query_offset(group, topic, queue_id) if offset is None else offset

    def topics_and_groups(self) -> list[tuple[str, str]]:
        """Each topic and group with committed offsets."""
        return [split_topic_group(key) for key in self._offsets]

    def which_topic_by_consumer(self, group: str) -> set[str]:
        """The topics in which a group has offsets."""
        return {topic for topic, one in map(split_topic_group, self._offsets) if one == group}

    def which_group_by_topic(self, topic: str) -> set[str]:
        """The groups that have offsets in a topic."""
        return {group for one, group in map(split_topic_group, self._offsets) if one == topic}

    def clone_offset(self, src_group: str, dest_group: str, topic: str, now_ms: int) -> None:
        """Give a group the offsets of another one in a topic; nothing changes if that one has none."""
        offsets = self._offsets.get(f"{topic}@{src_group}")
        if offsets is not None:
            self._offsets[f"{topic}@{dest_group}"] = dict(offsets)
            self._next_version(now_ms)

    def remove_offset(self, group: str, now_ms: int) -> None:
        """Forget all offsets of a group."""
        self._remove(lambda key: split_topic_group(key)[1] == group, now_ms)

    def clean_offset_by_topic(self, topic: str, now_ms: int) -> None:
        """Forget all offsets in a topic."""
        self._remove(lambda key: split_topic_group(key)[0] == topic, now_ms)

    def _remove(self, is_removed: Callable[[str], bool], now_ms: int) -> None:
        before = len(self._offsets)
        for table in (self._offsets, self._resets, self._pulls):
            for key in [key for key in table if is_removed(key)]:
                del table[key]
        if len(self._offsets) < before:
            self._next_version(now_ms)

    def assign_reset_offset(self, topic: str, group: str, queue_id: int, offset: int, now_ms: int) -> bool:
        """Reset a queue of a group: the next pull gets the offset, and commits before it are ignored.

        False, and nothing is done, for an empty name or a negative number.
        """
        if not topic or not group or queue_id < 0 or offset < 0:
            return False
        self._resets.setdefault(f"{topic}@{group}", {})[queue_id] = offset
        self.commit_offset(group, topic, queue_id, offset, now_ms)
        return True

    def has_offset_reset(self, topic: str, group: str, queue_id: int) -> bool:
        """Whether a reset of the queue waits for the group's next pull."""
        return queue_id in self._resets.get(f"{topic}@{group}", {})

    def query_then_erase_reset_offset(self, topic: str, group: str, queue_id: int) -> int | None:
        """The offset of a pending reset, which one pull gets; None if there is none.

        That pull's own commitOffset is older than the reset: it is not to be committed.
        """
        key = f"{topic}@{group}"
        resets = self._resets.get(key)
        if resets is None:
            return None
        offset = resets.pop(queue_id, None)
        if not resets:
            del self._resets[key]
        return offset
