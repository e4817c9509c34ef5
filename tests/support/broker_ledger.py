"""Knowledge of a broker's clients, and the comparison of a store that a broker has left with it."""

from __future__ import annotations

import shutil
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from reput import MessageStore
from reput.files import DISK
from reput.formats.message_id import decode_message_id
from reput.formats.metadata import ConsumerOffsets, SubscriptionGroups, split_topic_group
from reput.jobs.audit.job import audit
from reput.jobs.runner import LocalRunner
from reput.log.metadata import read_metadata
from reput.remoting.codes import ResponseCode
from reput.remoting.command import RemotingCommand
from tests.support.broker import SMALL
from tests.support.faulty_files import FaultyFiles
from tests.support.invariants import Acknowledged, check_acknowledged, check_rebuild, check_store

#: A hundred messages roll a log file.
STORE_KEYS = SMALL | {"mapped_file_size_commit_log": 1 << 16, "mapped_file_size_consume_queue": 20 * 50}

#: Group, topic, queue id.
GroupQueue = tuple[str, str, int]


def body_of(key: str) -> bytes:
    """The body is made from the key: whoever knows the key can check it."""
    return f"{key} ".encode() * (1 + zlib.crc32(key.encode()) % 60)


@dataclass(slots=True)
class Ledger:
    """Knowledge of the clients of one store, over all lives of its broker.

    Attributes:
        sent: Keys of all messages that were sent, whether they were answered or not.
        acknowledged: Messages whose SEND_OK has come.
        seen: By topic, queue id and queue offset: the key of a message that was acknowledged or consumed there.
        consumed: By queue of a group, the offset behind the last message that a consumer got.
        persisted: The same, of the file that the last life has left.
        committed: The same, or of the last commit that was answered since.
        topics: By name, the queues of those whose creation was answered, by itself or with a message.
        groups: Those whose creation was answered.
    """

    sent: set[str] = field(default_factory=set)
    acknowledged: list[Acknowledged] = field(default_factory=list)
    seen: dict[tuple[str, int, int], str] = field(default_factory=dict)
    consumed: dict[GroupQueue, int] = field(default_factory=dict)
    persisted: dict[GroupQueue, int] = field(default_factory=dict)
    committed: dict[GroupQueue, int] = field(default_factory=dict)
    topics: dict[str, int] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)

    # -- what clients hear

    def acknowledge(self, topic: str, keys: list[str], answer: RemotingCommand) -> None:
        """Take the answer to a send of messages with these keys."""
        assert answer.code == ResponseCode.SUCCESS, answer
        fields = answer.ext_fields or {}
        queue_id, first = int(fields["queueId"]), int(fields["queueOffset"])
        for number, (key, text) in enumerate(zip(keys, fields["msgId"].split(","), strict=True)):
            _, offset = decode_message_id(text)
            self.acknowledged.append(Acknowledged(topic, queue_id, first + number, offset, key, body_of(key)))
            self.saw(topic, queue_id, first + number, key)

    def saw(self, topic: str, queue_id: int, queue_offset: int, key: str) -> None:
        """A message was at this place: it must stay there, in all lives."""
        assert key in self.sent, f"{key} was never sent"
        before = self.seen.setdefault((topic, queue_id, queue_offset), key)
        assert before == key, f"{topic} {queue_id} {queue_offset}: {key}, where {before} was before"

    def ends(self, topic: str) -> dict[int, int]:
        """Of each queue of a topic, the offset behind the last message that was acknowledged or consumed."""
        ends: dict[int, int] = {}
        for name, queue_id, offset in self.seen:
            if name == topic:
                ends[queue_id] = max(ends.get(queue_id, 0), offset + 1)
        return ends

    # -- what must be there

    def check(self, store: Path, scratch: Path, *, is_clean: bool) -> None:
        """Compare what a life has left with what clients know; the store itself stays as it is.

        Each acknowledged message is where its answer said, each consumed one where it was consumed, none is there twice
        or was never sent; queues and index are what the log makes; topics, groups and offsets are there. AssertionError
        for what is not.

        Args:
            store: Whose broker is gone.
            scratch: A folder for copies, not there yet.
            is_clean: Whether the broker stopped by itself, so no commit of an offset may be missing.
        """
        if not store.exists():
            assert not self.sent, "the store is gone"
            return  # killed before it had made one
        self._check_offsets(store, is_clean=is_clean)
        assert not (is_clean and (store / "abort").exists())
        groups = read_metadata(str(store), SubscriptionGroups, DISK)
        assert self.groups <= set(() if groups is None else groups.subscription_group_table), "a group is lost"
        recovered = scratch / "recovered"
        shutil.copytree(store, recovered)
        with MessageStore.open(recovered, files=FaultyFiles(), **STORE_KEYS) as opened:
            for topic, queues in self.topics.items():
                assert topic in opened.topics, f"topic {topic} is lost"
                assert opened.topics[topic].write_queue_nums == queues
            check_acknowledged(opened, self.acknowledged)
        places = {}
        for record in check_store(recovered, STORE_KEYS):
            places[*record.queue, record.row["queue_offset"]] = record.row["keys"].decode()
        assert self.seen.items() <= places.items(), f"lost, or elsewhere: {sorted(self.seen.items() - places.items())}"
        keys = list(places.values())
        assert len(set(keys)) == len(keys), "a message is there twice"
        assert set(keys) <= self.sent, "a message is there that was never sent"
        numbers = {name: STORE_KEYS[name] for name in ("max_hash_slot_num", "max_index_num")}
        audited = audit(recovered, runner=LocalRunner(), **numbers)  # an index of few entries does not tell them
        assert audited.is_clean, f"{len(audited.findings)} findings, the worst one: {audited.findings[0]}"
        check_rebuild(recovered, scratch / "rebuilt", STORE_KEYS)

    def _check_offsets(self, store: Path, *, is_clean: bool) -> None:
        """No group is ahead of what it has consumed, none falls behind what an earlier life has left."""
        offsets = read_metadata(str(store), ConsumerOffsets, DISK)
        table = {} if offsets is None else offsets.offset_table
        persisted = {
            (group, topic, queue_id): offset
            for key, queues in table.items()
            for topic, group in [split_topic_group(key)]
            for queue_id, offset in queues.items()
        }
        for queue, offset in persisted.items():
            consumed = self.consumed.get(queue, 0)
            assert offset <= consumed, f"{queue}: committed {offset}, consumed only {consumed}"
        for queue, offset in (self.committed if is_clean else self.persisted).items():
            found = persisted.get(queue, 0)
            assert found >= offset, f"{queue}: the file has {found}, but {offset} was committed before"
        self.persisted, self.committed = persisted, dict(persisted)
