"""Small passes of dispatch: they leave the files, counts and arrivals that the plain way leaves."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from hypothesis import example, given, settings
from hypothesis import strategies as st

from reput import Message, MessageStore, TopicConfig
from reput.formats.message_batch import MessageExtBatch
from reput.formats.record_layout import SysFlag
from reput.store.dispatch.arrivals import Arrivals
from reput.store.dispatch.by_caller import DispatchByCaller
from tests.support.dispatched import derived
from tests.support.examples import examples

#: Files of a few units and keys, so that they end in the middle of a stream.
KEYS = {
    "flush_disk_type": "ASYNC_FLUSH",
    "mapped_file_size_commit_log": 1 << 16,
    "mapped_file_size_consume_queue": 20 * 7,
    "max_hash_slot_num": 5,
    "max_index_num": 30,
}


@dataclass(frozen=True)
class Put:
    """A message, or a producer's batch of several; of an inner batch where `key` is set."""

    topic: str
    queue_id: int
    tags: str
    keys: Sequence[str]
    key: str | None
    size: int
    sys_flag: int
    count: int

    def __call__(self, store: MessageStore) -> None:
        """Put it."""
        properties = {"DELAY": "3"} if self.topic == "SCHEDULE_TOPIC_XXXX" else {}
        message = Message(
            self.topic, bytes(self.size), self.tags, self.keys, properties, unique_key=self.key, sys_flag=self.sys_flag
        )
        if self.count > 1:
            messages = [Message(self.topic, b"x", self.tags, self.keys)] * self.count
            store.put_batch(MessageExtBatch.of(messages, unique_key=self.key), self.queue_id)
        else:
            store.put_message(message, self.queue_id)


@dataclass(frozen=True)
class Pass:
    """All is dispatched, by passes of so many bytes."""

    max_bytes: int


_PUTS = st.builds(
    Put,
    st.sampled_from(["orders", "orders", "日本", "x" * 70, "batches", "SCHEDULE_TOPIC_XXXX"]),
    st.integers(0, 1),
    st.sampled_from(["", "a", "b", "標"]),
    st.lists(st.sampled_from(["k", "l", "m"]), max_size=3),
    st.none() | st.just("unique"),
    st.sampled_from([0, 1, 50, 900]),
    st.sampled_from(
        [0, 0, 0, 0, SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_COMMIT, SysFlag.TRANSACTION_ROLLBACK]
    ),
    st.sampled_from([1, 1, 1, 1, 4]),
)
_PASSES = st.builds(Pass, st.sampled_from([1, 300, 5000, 1 << 20]))
_STREAMS = st.lists(st.one_of(_PUTS, _PUTS, _PUTS, _PASSES), min_size=10, max_size=60)


def dispatched(path: Path, stream: Sequence[Put | Pass], rules: str, *, small: bool) -> tuple[object, ...]:
    """What a stream leaves: files, counts, offsets, and what each pass brought; and how many passes were small."""
    brought: list[object] = []
    with (
        mock.patch("time.time", side_effect=lambda: 1_700_000_000 + len(brought) * 0.7),
        MessageStore.open(path, dispatch="caller", dispatch_rules=rules, **KEYS) as store,
    ):
        store.update_topic(TopicConfig("batches", 2, 2, 6, attributes={"queue.type": "BatchCQ"}))
        assert store._writer is not None
        reput, parts = store._writer.reput, store._writer.parts
        assert isinstance(reput, DispatchByCaller)
        reput._takes_small_passes = small
        small_passes = []
        few = reput._dispatch_few

        def counted(max_bytes: int | None) -> Arrivals | None:
            arrivals = few(max_bytes)
            small_passes.append(arrivals is not None)
            return arrivals

        reput._dispatch_few = counted  # type: ignore[method-assign]
        for step in [*stream, Pass(1 << 20)]:
            queues: dict[tuple[str, int], tuple[int, set[int]]] = {}
            if isinstance(step, Put):
                step(store)
            else:
                while (arrivals := store.loop_writer().dispatch(step.max_bytes)) is not None:
                    for key, end, codes in zip(arrivals.queues, arrivals.max_offsets, arrivals.tags_codes, strict=True):
                        queues[key] = end, queues.get(key, (0, set()))[1] | codes
            brought.append(queues)
        counts = {
            topic: (one.put_messages, one.put_bytes, *one.put_sizes) for topic, one in parts.queues.counts.items()
        }
        offsets = {
            (queue.topic, queue.queue_id): (queue.max_offset, queue.max_physical_offset)
            for queue in parts.queues.queues()
        }
        built = parts.queues.simple.built_timestamp
    return derived(path), counts, offsets, built, brought, sum(small_passes)


@settings(max_examples=examples(40))
@given(_STREAMS, st.sampled_from(["4.9.7", "5.3.3", "5.5.0"]))
@example([Put("orders", 0, "a", ["k"], None, 1, 0, 1), Pass(5000)] * 20, "5.3.3")
def test_small_passes_leave_what_the_plain_way_leaves(stream: Sequence[Put | Pass], rules: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        *expected, never = dispatched(Path(folder, "plain"), stream, rules, small=False)
        *found, _ = dispatched(Path(folder, "small"), stream, rules, small=True)
    assert never == 0
    assert found == expected


def test_most_passes_of_a_plain_stream_are_small(tmp_path: Path) -> None:
    stream = [Put("orders", 0, "a", ["k"], None, 1, 0, 1), Pass(5000)] * 70
    *_, small_passes = dispatched(tmp_path / "store", stream, "5.3.3", small=True)
    assert small_passes == 60  # all but the first in each of the ten queue files
