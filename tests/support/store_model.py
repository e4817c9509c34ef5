"""A store beside a model of it: whatever is called in whatever order, both answer the same."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import reput
from reput.formats.record_layout import SysFlag
from tests.support.faulty_files import FaultyFiles, abandon, crash_at
from tests.support.invariants import SMALL, check_store

TOPICS = st.sampled_from(["a", "b"])
QUEUE_IDS = st.integers(0, 1)
BODIES = st.integers(0, 1500).map(bytes)
TAGS = st.sampled_from([None, "Aa", "BB", "other"])
KEYS = st.lists(st.sampled_from(["Aa", "BB", "k1", "k2", "k3"]), max_size=3)
KINDS = st.sampled_from(
    [0, 0, 0, SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_COMMIT, SysFlag.TRANSACTION_ROLLBACK]
)


#: A machine that stands still is no disk that does not keep up.
_OPTIONS = SMALL | {"os_page_cache_busy_time_out_mills": 60_000}


class Kept(NamedTuple):
    """A message of the model."""

    commit_log_offset: int
    body: bytes
    tags: str | None


class StoreModel(RuleBasedStateMachine):
    """Every rule changes store and model alike; every invariant compares them."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "store"
        self.files = FaultyFiles()
        self.cuts = 0
        self.queues: dict[tuple[str, int], list[Kept]] = defaultdict(list)
        self.keys: dict[tuple[str, str], list[int]] = defaultdict(list)

    def open(self, **options: object) -> None:
        """The next life; the disk has what it had, and the page cache too, but for a power cut."""
        before, self.files = self.files, FaultyFiles()
        self.files.goes_on_after(before)
        self.store = reput.MessageStore.open(self.path, files=self.files, **(_OPTIONS | options))
        # What was put before may be in the page cache alone: a new start makes it durable.
        self.is_synced = options.get("flush_disk_type", "SYNC_FLUSH") == "SYNC_FLUSH"

    @initialize(flush_disk_type=st.sampled_from(["SYNC_FLUSH", "ASYNC_FLUSH"]))
    def begin(self, flush_disk_type: str) -> None:
        self.open(flush_disk_type=flush_disk_type)

    def keep(self, topic: str, queue_id: int, kept: Kept, keys: list[str], sys_flag: int) -> None:
        kind = sys_flag & SysFlag.TRANSACTION_MASK
        if kind not in (SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK):
            self.queues[topic, queue_id].append(kept)
        if kind != SysFlag.TRANSACTION_ROLLBACK:
            for key in dict.fromkeys(keys):
                self.keys[topic, key].append(kept.commit_log_offset)

    @rule(
        topic=TOPICS, queue_id=QUEUE_IDS, body=BODIES, tags=TAGS, keys=KEYS, kind=KINDS,
        way=st.sampled_from(["put_message", "async_put_message", "put_messages"]),
    )  # fmt: skip
    def put(
        self, topic: str, queue_id: int, body: bytes, tags: str | None, keys: list[str], kind: int, way: str
    ) -> None:
        message = reput.Message(topic, body, tags=tags, keys=keys, sys_flag=int(kind))
        if way == "put_message":
            results = [self.store.put_message(message, queue_id)]
        elif way == "async_put_message":
            results = [self.store.async_put_message(message, queue_id).result(30)]
        else:
            results = self.store.put_messages([message, message], queue_id)
        for result in results:
            has_unit = kind not in (SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK)
            assert result.queue_offset == (len(self.queues[topic, queue_id]) if has_unit else 0)
            self.keep(topic, queue_id, Kept(result.commit_log_offset, body, tags), keys, kind)

    @rule(rows=st.lists(st.tuples(TOPICS, QUEUE_IDS, BODIES, TAGS, KEYS), min_size=1, max_size=12))
    def put_table(self, rows: list[tuple[str, int, bytes, str | None, list[str]]]) -> None:
        columns = list(zip(*rows, strict=True))
        types = (pa.string(), pa.int32(), pa.binary(), pa.string(), pa.list_(pa.string()))
        arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
        begin = self.store.max_commit_log_offset
        result = self.store.put_arrow(pa.table(arrays, ["topic", "queue_id", "body", "tags", "keys"]))
        assert result.messages == len(rows)
        offset = result.commit_log_offset
        assert offset >= begin
        for topic, queue_id, body, tags, keys in rows:
            message = self.store.look_message_by_offset(offset)
            if message is None:
                offset += 4096 - offset % 4096
                message = self.store.look_message_by_offset(offset)
            assert message is not None
            self.keep(topic, queue_id, Kept(offset, body, tags), keys, 0)
            offset += message.store_size
        assert offset == result.end_offset

    @rule(bodies=st.lists(BODIES, min_size=2, max_size=4), queue_id=QUEUE_IDS, count=st.integers(1, 6))
    def put_from_threads(self, bodies: list[bytes], queue_id: int, count: int) -> None:
        """A thread for each body puts it some times, one way or another; queue order is log order."""
        store = self.store

        def put_some(number: int) -> list[tuple[int, int, Kept]]:
            message = reput.Message("a", bodies[number], tags="Aa", keys=["k1"])
            puts: dict[int, Callable[[], list[reput.PutMessageResult]]] = {
                0: lambda: [store.put_message(message, queue_id)],
                1: lambda: [store.async_put_message(message, queue_id).result(30)],
                2: lambda: store.put_messages([message, message], queue_id),
            }
            results = [result for _ in range(count) for result in puts[number % 3]()]
            return [
                (result.commit_log_offset, result.queue_offset, Kept(result.commit_log_offset, bodies[number], "Aa"))
                for result in results
            ]

        with ThreadPoolExecutor(len(bodies) + 1) as pool:
            looking = pool.submit(self.look_around)
            stored = sorted(one for found in pool.map(put_some, range(len(bodies))) for one in found)
            looking.result(30)
        for _, queue_offset, kept in stored:
            assert queue_offset == len(self.queues["a", queue_id])
            self.keep("a", queue_id, kept, ["k1"], 0)

    def look_around(self) -> None:
        """Check that a reader beside the writers gets all in order, and that nothing has gone."""
        for topic, queue_id in [*self.queues]:
            kept = self.queues[topic, queue_id]
            got = self.store.get_message(topic, queue_id, max(len(kept) - 1, 0))
            if kept:
                first = got.messages()[0]
                assert (first.commit_log_offset, first.body) == (kept[-1].commit_log_offset, kept[-1].body)
        self.store.query_messages("a", ["k1"], max_num=3)

    @rule()
    def roll(self) -> None:
        left = 4096 - self.store.max_commit_log_offset % 4096
        size = max(left - 8 - 92, 0)
        result = self.store.put_message(reput.Message("a", bytes(size)))
        self.keep("a", 0, Kept(result.commit_log_offset, bytes(size), None), [], 0)

    @rule()
    def reopen(self) -> None:
        self.store.close()
        check_store(self.path)
        self.open()
        assert not self.store.recovery.was_killed
        assert self.store.recovery.dispatched_records == 0

    @rule(flush_disk_type=st.sampled_from(["SYNC_FLUSH", "ASYNC_FLUSH"]))
    def kill(self, flush_disk_type: str) -> None:
        abandon(self.store, self.files)
        self.open(flush_disk_type=flush_disk_type)
        assert self.store.recovery.was_killed

    @precondition(lambda self: self.is_synced)
    @rule(seed=st.integers(0, 2**32), flush_disk_type=st.sampled_from(["SYNC_FLUSH", "ASYNC_FLUSH"]))
    def lose_power(self, seed: int, flush_disk_type: str) -> None:
        """Check that all answers of SYNC_FLUSH hold, whatever sectors and names of the rest reached the disk."""
        self.files.judge = crash_at(0)
        self.cuts += 1
        left = self.folder / f"left-{self.cuts}"
        self.files.cut_power(self.path, left, random.Random(seed))
        abandon(self.store, self.files)
        self.path, self.files = left, FaultyFiles()
        self.files.all_is_durable(left)
        self.open(flush_disk_type=flush_disk_type)

    @precondition(lambda self: self.queues)
    @rule(part=st.sampled_from(["consumequeue", "index", "checkpoint", "config"]))
    def lose(self, part: str) -> None:
        abandon(self.store, self.files)
        lost = self.path / part
        if lost.is_dir():
            shutil.rmtree(lost)
        elif lost.exists():
            lost.unlink()
        self.files = FaultyFiles()
        self.files.all_is_durable(self.path)
        self.open()

    @invariant()
    def store_is_the_model(self) -> None:
        self.store.wait_dispatched()
        self.check_queues()
        self.check_filters()
        self.check_keys()

    def check_queues(self) -> None:
        for (topic, queue_id), kept in self.queues.items():
            assert self.store.max_offset(topic, queue_id) == len(kept)
            got: list[Kept] = []
            while (result := self.store.get_message(topic, queue_id, len(got))).status.name == "FOUND":
                got += [Kept(m.commit_log_offset, m.body, m.tags) for m in result.messages()]
            assert got == kept

    def check_filters(self) -> None:
        for (topic, queue_id), kept in self.queues.items():
            for tag in ("Aa", "BB"):
                got, offset = [], 0
                while offset < len(kept):
                    result = self.store.get_message(topic, queue_id, offset, tags=tag)
                    got += [message.commit_log_offset for message in result.messages()]
                    offset = result.next_begin_offset
                assert got == [one.commit_log_offset for one in kept if one.tags == tag]

    def check_keys(self) -> None:
        for topic in ("a", "b"):
            for most in (1000, 2):
                found = self.store.query_messages(topic, ["Aa", "BB", "k1", "k2", "k3"], max_num=most)
                for key, messages in found.items():
                    assert [m.commit_log_offset for m in messages] == self.keys[topic, key][-most:], key

    def teardown(self) -> None:
        self.store.close()
        check_store(self.path)
        shutil.rmtree(self.folder)
