"""Lives of a store with batch queues."""

from __future__ import annotations

from pathlib import Path

import reput
from reput.formats.metadata import TopicConfig
from tests.support.faulty_files import (
    FaultyFiles,
    Judge,
    no_objection,
    wait_dispatched,
)
from tests.support.invariants import Acknowledged, check_store
from tests.support.lives.puts import Life, live_under

#: Messages of each batch; 1 is a message by itself.
BATCHES = (1, 3, 5, 1, 2, 4, 1, 3)


class BatchLife(Life):
    """A topic with batch queues is made and gets messages and inner batches, and another gets ordinary batches."""

    def run(self, files: FaultyFiles) -> None:
        """Live to the end, or to the first error that is not a full disk; a full disk is tried again once."""
        self.store = self._trying_again(lambda: reput.MessageStore.open(self.path, files=files, **self.options))
        config = TopicConfig("batches", attributes={"queue.type": "BatchCQ"})
        self._trying_again(lambda: self.store.update_topic(config))
        for number, count in enumerate(BATCHES):
            self._trying_again(lambda number=number, count=count: self._put_some(number, count))
        wait_dispatched(self.store, files)
        self.store.close()

    def _put_some(self, number: int, count: int) -> None:
        assert self.store is not None
        key = f"batch-{number}-{len(self.errors)}"
        bodies = [bytes([number, i]) * 60 for i in range(count)]
        messages = [reput.Message("batches", body) for body in bodies]
        if count == 1:
            messages[0].keys = [key]
            single = self.store.put_message(messages[0], number % 2)
            offset, at, body = single.queue_offset, single.commit_log_offset, bodies[0]
            status = single.status
        else:
            batch = reput.MessageExtBatch.of(messages, unique_key="U")
            batch.keys = [key]
            result = self.store.put_batch(batch, number % 2)
            offset, (at,), body, status = result.queue_offset, result.commit_log_offsets, batch.body, result.status
        if status is reput.PutMessageStatus.PUT_OK:
            self.acknowledged.append(Acknowledged("batches", number % 2, offset, at, key, bytes(body)))
        plain = [reput.Message("plain", body, keys=[f"{key}-{i}"]) for i, body in enumerate(bodies)]
        several = self.store.put_batch(plain)
        if several.status is reput.PutMessageStatus.PUT_OK:
            for i, offset in enumerate(several.commit_log_offsets):
                queue_offset = several.queue_offset + i
                self.acknowledged.append(Acknowledged("plain", 0, queue_offset, offset, f"{key}-{i}", bodies[i]))


def live(path: Path, flush_disk_type: str, judge: Judge) -> tuple[BatchLife, FaultyFiles]:
    life = BatchLife(path, flush_disk_type)
    return life, live_under(life, judge)


def count_operations(path: Path, flush_disk_type: str) -> int:
    """Number of operations of a life without faults; threads make it differ a little from run to run."""
    life, files = live(path, flush_disk_type, no_objection)
    assert len(life.acknowledged) == len(BATCHES) + sum(BATCHES)
    assert not life.errors
    records = check_store(path)
    assert sum(record.row["sys_flag"] == 0xC0 for record in records) == sum(count > 1 for count in BATCHES)
    return len(files.operations)
