"""A clock that jumps back and forward, to 1970 and to 2100, while a store is written, killed, opened and cleaned up."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa

import reput
from lab.campaign.cases import Part
from tests.support.faulty_files import FaultyFiles, abandon
from tests.support.invariants import SMALL, Record, check_store, log_records
from tests.support.retained import RoomyFiles, check_retained

_OPTIONS = SMALL | {
    "delete_commit_log_files_interval": 0, "delete_consume_queue_files_interval": 0, "flush_interval_consume_queue": 10,
    "flush_consume_queue_thorough_interval": 20,
}  # fmt: skip
_JUMPS_S = (0.001, 0.999, 2.999, 3.001, 60, 3600, 86_400, 30 * 86_400, 400 * 86_400)
#: Seconds since 1970: a dead battery, the end of int32, and far away.
_DATES_S = (0.5, (1 << 31) - 1.0, 4_102_444_800.0)
_STEPS = 25


class _Clock:
    """`time.time`, as somebody sets it."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._ahead_s = 0.0
        self._real = time.time

    def __call__(self) -> float:
        return max(self._real() + self._ahead_s, 0.001)

    def jump(self) -> str:
        """Back or forward, or to a date."""
        if self._chance.random() < 0.2:
            self._ahead_s = self._chance.choice(_DATES_S) - self._real()
            return "jumps to a date"
        step = self._chance.choice(_JUMPS_S) * self._chance.choice((-1, 1))
        self._ahead_s += step
        return "jumps back" if step < 0 else "jumps forward"


class _Life:
    """A store under a clock; `put` are the commit log offsets and bodies that were acknowledged."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder = folder
        self.path = folder / "store"
        self.chance = chance
        self.put: dict[int, bytes] = {}
        self.clock = _Clock(chance)
        self.counts: Counter[str] = Counter()
        self.open()

    def open(self) -> None:
        self.files = RoomyFiles()
        if self.path.exists():
            self.files.all_is_durable(self.path)
        self.store = reput.MessageStore.open(self.path, files=self.files, **_OPTIONS)

    def run(self) -> None:
        steps = (self.jump, self.jump, self.put_some, self.put_some, self.put_some, self.put_table, self.close,
                 self.kill, self.lose_power, self.clean, self.look)  # fmt: skip
        for _ in range(_STEPS):
            step = self.chance.choice(steps)
            step()
            self.counts[f"steps: {step.__name__.replace('_', ' ')}"] += 1
        self.look()
        self.store.close()

    def jump(self) -> None:
        self.counts[self.clock.jump()] += 1

    def put_some(self) -> None:
        for _ in range(self.chance.randrange(1, 8)):
            body = self.chance.randbytes(self.chance.randrange(700))
            message = reput.Message("t", body, keys=[f"k{len(self.put)}"])
            way = self.chance.randrange(3)
            if way == 0:
                result = self.store.put_message(message, self.chance.randrange(2))
            elif way == 1:
                result = self.store.async_put_message(message).result(30)
            else:
                batch = self.store.put_batch([message, message])
                self.put |= dict.fromkeys(batch.commit_log_offsets, body)
                continue
            self.put[result.commit_log_offset] = body

    def put_table(self) -> None:
        bodies = [self.chance.randbytes(300) for _ in range(self.chance.randrange(1, 20))]
        self.store.put_arrow(pa.table({"topic": ["t"] * len(bodies), "body": bodies}))

    def close(self) -> None:
        self.store.close()
        self.open()

    def kill(self) -> None:
        abandon(self.store, self.files)
        self.open()

    def lose_power(self) -> None:
        left = self.folder / f"left-{len(list(self.folder.iterdir()))}"
        abandon(self.store, self.files)  # else its threads change files while these are copied
        self.files.cut_power(self.path, left, self.chance)
        self.path = left
        self.open()

    def clean(self) -> None:
        """Delete the files that are old by this clock; the last file stays."""
        self.store.wait_dispatched()
        self.counts["files deleted"] += len(self.store.delete_expired().commit_log_files)
        check_retained(self.store, self.path)

    def look(self) -> None:
        """All that was acknowledged is there, times never fall, and are found."""
        self.store.wait_dispatched()
        records = log_records(self.path)
        first = self.store.min_commit_log_offset
        found = {record.offset: record.row["body"] for record in records}
        for offset, body in self.put.items():
            assert offset < first or found.get(offset) == body, f"the message at {offset} is lost"
        times = [record.row["store_timestamp"] for record in records]
        assert times == sorted(times), "store times fall"
        check_times(self.store, records, self.chance)


def check_times(store: reput.MessageStore, records: list[Record], chance: random.Random) -> None:
    """Searches by time in each queue find what a walk over the records finds."""
    queues: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for record in records:
        queues[record.queue].append((record.row["store_timestamp"], record.row["queue_offset"]))
    for (topic, queue_id), kept in queues.items():
        times = [when for when, _ in kept]
        for when in {0, 1 << 50, *chance.sample(times, min(3, len(times))), times[0] - 1, times[-1] + 1}:
            later = [offset for at, offset in kept if at >= when]
            lower = later[0] if later else store.max_offset(topic, queue_id)
            assert store.offset_by_time(topic, queue_id, when) == lower, (when, kept)
            earlier = [offset for at, offset in kept if at <= when]
            upper = earlier[-1] if earlier else store.min_offset(topic, queue_id)
            assert store.offset_by_time(topic, queue_id, when, "upper") == upper, (when, kept)


def run(folder: Path, seed: int) -> Counter[str]:
    """One life under a clock that jumps."""
    life = None
    chance = random.Random(seed)
    with patch("time.time", clock := _Clock(chance)):
        life = _Life(folder, chance)
        life.clock = clock
        life.run()
    if not life.counts["files deleted"]:
        check_store(life.path)
    with reput.MessageStore.open(life.path, files=FaultyFiles(), **_OPTIONS) as store:  # by the right clock again
        check_retained(store, life.path)
    return life.counts + Counter({"lives": 1, "acknowledged messages": len(life.put)})


PART = Part(
    "clocks",
    "a clock that jumps back and forward, to 1970 and to 2100",
    400,
    run,
    ("lives", "jumps back", "jumps forward", "jumps to a date", "acknowledged messages"),
)
