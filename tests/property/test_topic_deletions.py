"""Deletions of topics against a model: whatever happens, a topic has the messages since its last deletion."""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Literal, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reput
from tests.support.examples import examples
from tests.support.faulty_files import abandon
from tests.support.invariants import SMALL
from tests.support.retained import RoomyFiles, age

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

FILE_SIZE = 4096
OPTIONS = SMALL | {"delete_commit_log_files_interval": 0, "delete_consume_queue_files_interval": 0}
#: The third one has batch consume queues.
TOPICS = {"a": {}, "b": {}, "c": {"+queue.type": "BatchCQ"}}
ONE = st.sampled_from(sorted(TOPICS))
STEPS = st.one_of(
    st.tuples(st.just("put"), ONE, st.integers(1, 12)),
    st.tuples(st.just("put"), ONE, st.integers(1, 12)),
    st.tuples(st.sampled_from(["make", "delete"]), ONE),
    st.tuples(st.just("delete"), ONE),
    st.tuples(st.just("retention"), st.integers(1, 2)),
    st.tuples(st.sampled_from(["dispatch", "close", "kill", "power cut", "rebuild"])),
)


class Kept(NamedTuple):
    """A message of the model."""

    commit_log_offset: int
    queue_offset: int
    body: bytes


class Topics:
    """A store, and what its topics have by the model."""

    def __init__(self, folder: Path, flush_disk_type: str, dispatch: Literal["thread", "caller"]) -> None:
        self.folder, self.path = folder, folder / "store"
        self.options = OPTIONS | {"flush_disk_type": flush_disk_type, "dispatch": dispatch}
        self.files = RoomyFiles()
        self.number = self.lives = 0
        #: By queue: all messages ever, and those since the topic was deleted last.
        self.ever: dict[tuple[str, int], list[Kept]] = defaultdict(list)
        self.kept: dict[tuple[str, int], list[Kept]] = defaultdict(list)
        self.store = self.opened()

    def opened(self) -> reput.MessageStore:
        return reput.MessageStore.open(self.path, files=self.files, **self.options)

    def put(self, topic: str, count: int) -> None:
        for _ in range(count):
            self.number += 1
            key, body = (topic, self.number % 2), b"%d" % self.number
            result = self.store.put_message(reput.Message(topic, body.ljust(200)), key[1])
            assert result.queue_offset == (self.ever[key][-1].queue_offset + 1 if self.ever[key] else 0), "it goes on"
            for table in (self.ever, self.kept):
                table[key].append(Kept(result.commit_log_offset, result.queue_offset, body))

    def make(self, topic: str) -> None:
        self.store.update_topic(reput.TopicConfig(topic, 2, 2, attributes=TOPICS[topic]))

    def delete(self, topic: str) -> None:
        self.store.delete_topic_config([topic])
        for key in [key for key in self.kept if key[0] == topic]:
            del self.kept[key]

    def retention(self, count: int) -> None:
        count = min(
            count,
            max(self.store.max_commit_log_offset - 1, 0) // FILE_SIZE - self.store.min_commit_log_offset // FILE_SIZE,
        )
        if count > 0:
            age(self.path, count)
        self.store.delete_expired()

    def live_again(self, how: str) -> None:
        before = self.files
        if how in ("close", "rebuild"):
            self.store.close()
        else:
            abandon(self.store, before)
        if how == "rebuild":
            for name in ("consumequeue", "batchconsumequeue"):
                shutil.rmtree(self.path / name, ignore_errors=True)
        self.files = RoomyFiles()
        if how == "power cut":
            self.lives += 1
            before.cut_power(self.path, self.folder / f"store-{self.lives}")
            self.path = self.folder / f"store-{self.lives}"
            self.files.all_is_durable(self.path)
        else:
            self.files.goes_on_after(before)
        self.store = self.opened()
        end = self.store.max_commit_log_offset
        for table in (self.ever, self.kept):
            for messages in table.values():
                messages[:] = [one for one in messages if one.commit_log_offset < end]

    def shown(self, store: reput.MessageStore, topic: str, queue_id: int) -> list[bytes]:
        offset, bodies = 0, []
        while offset < store.max_offset(topic, queue_id):
            result = store.get_message(topic, queue_id, offset)
            bodies += [bytes(message.body).rstrip() for message in result.messages()]
            assert result.next_begin_offset > offset
            offset = result.next_begin_offset
        return bodies

    def check(self, store: reput.MessageStore, *, is_dispatched: bool) -> None:
        for topic in TOPICS:
            for queue_id in range(2):
                expected = [
                    one.body
                    for one in self.kept[topic, queue_id]
                    if one.commit_log_offset >= store.min_commit_log_offset
                ]
                shown = self.shown(store, topic, queue_id)
                assert shown == (expected if is_dispatched else expected[: len(shown)]), (topic, queue_id)


@settings(max_examples=examples(60), deadline=None)
@given(
    steps=st.lists(STEPS, min_size=4, max_size=16),
    flush_disk_type=st.sampled_from(["SYNC_FLUSH", "ASYNC_FLUSH"]),
    dispatch=st.sampled_from(["thread", "caller"]),
)
def test_a_topic_has_the_messages_since_its_last_deletion_and_all_of_them(
    steps: list[tuple], flush_disk_type: str, dispatch: Literal["thread", "caller"]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = Topics(Path(folder), flush_disk_type, dispatch)
        model.make("c")
        for step, *arguments in [*steps, ("close",)]:
            if step in ("close", "kill", "power cut", "rebuild"):
                model.live_again(step)
            elif step == "dispatch":
                model.store.wait_dispatched()
            else:
                getattr(model, step)(*arguments)
            model.check(model.store, is_dispatched=step in ("close", "kill", "power cut", "rebuild", "dispatch"))
        model.store.close()
        with reput.MessageStore.open(model.path, read_only=True) as reader:
            model.check(reader, is_dispatched=True)
