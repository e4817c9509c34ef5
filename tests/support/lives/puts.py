"""Lives in which messages and a table are put, under any judge."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import reput
from reput.errors import ReputError, StoreFullError
from tests.support.faulty_files import (
    Crash,
    FaultyFiles,
    Judge,
    abandon,
    no_objection,
    wait_dispatched,
)
from tests.support.invariants import SMALL, Acknowledged, check_acknowledged, check_store

FILE_SIZE = 4096
MESSAGES = 16
OPTIONS = SMALL | {"sync_flush_timeout": 2000, "flush_interval_consume_queue": 20, "flush_interval_commit_log": 20}


class Life:
    """One life of a store: opened, filled until files of all kinds have rolled, closed; and what it acknowledged."""

    def __init__(self, path: Path, flush_disk_type: str) -> None:
        self.path = path
        self.options = OPTIONS | {"flush_disk_type": flush_disk_type}
        self.acknowledged: list[Acknowledged] = []
        self.errors: list[ReputError] = []
        self.store: reput.MessageStore | None = None

    def run(self, files: FaultyFiles) -> None:
        """Live to the end, or to the first error that is not a full disk; a full disk is tried again once."""
        self.store = self._trying_again(lambda: reput.MessageStore.open(self.path, files=files, **self.options))
        for number in range(MESSAGES):
            self._trying_again(lambda number=number: self._put(number))
        self._trying_again(self._put_table)
        wait_dispatched(self.store, files)
        self.store.close()

    def _trying_again(self, deed):  # type: ignore[no-untyped-def]
        try:
            return deed()
        except StoreFullError as error:
            self.errors.append(error)
            return deed()

    def _put(self, number: int) -> None:
        assert self.store is not None
        key, body = f"key-{number}", bytes([number]) * (250 + 40 * (number % 5))
        result = self.store.put_message(reput.Message("orders", body, keys=[key], tags="ab"), number % 3)
        if result.status is reput.PutMessageStatus.PUT_OK:
            self.acknowledged.append(
                Acknowledged("orders", number % 3, result.queue_offset, result.commit_log_offset, key, body)
            )

    def _put_table(self) -> None:
        assert self.store is not None
        before = [self.store.max_offset("events", queue) for queue in range(2)]
        rows = 10
        keys = [[f"row-{len(self.errors)}-{row}"] for row in range(rows)]
        bodies = [bytes([row]) * 200 for row in range(rows)]
        queues = pa.array([row % 2 for row in range(rows)], pa.int32())
        table = pa.table({"topic": ["events"] * rows, "body": bodies, "keys": keys, "queue_id": queues})
        result = self.store.put_arrow(table)
        if result.status is reput.PutMessageStatus.PUT_OK and not self.errors:
            offset = result.commit_log_offset
            for row, (key, body) in enumerate(zip(keys, bodies, strict=True)):
                message = self.store.look_message_by_offset(offset)
                if message is None:  # the file ended here
                    offset += FILE_SIZE - offset % FILE_SIZE
                    message = self.store.look_message_by_offset(offset)
                assert message is not None
                queue_offset = before[row % 2] + row // 2
                self.acknowledged.append(Acknowledged("events", row % 2, queue_offset, offset, key[0], body))
                offset += message.store_size


def live_under(life: Life, judge: Judge) -> FaultyFiles:
    """Let a life run under a judge; the error that ended it is the last of its errors."""
    files = FaultyFiles(judge)
    try:
        life.run(files)
    except Crash:
        pass
    except ReputError as error:
        life.errors.append(error)
    if life.store is not None:
        abandon(life.store, files)
    files.abandon()
    return files


def live(path: Path, flush_disk_type: str, judge: Judge) -> tuple[Life, FaultyFiles]:
    life = Life(path, flush_disk_type)
    return life, live_under(life, judge)


def check_next_life(life: Life, path: Path) -> None:
    """A healthy start brings back all that was acknowledged, and goes on behind it."""
    with reput.MessageStore.open(path, files=FaultyFiles(), **life.options) as store:
        check_acknowledged(store, life.acknowledged)
        store.put_message(reput.Message("orders", b"afterwards", keys=["afterwards"]))
        store.wait_dispatched()
        assert len(store.query_message("orders", "afterwards")) == 1
    check_store(path)


def count_operations(path: Path, flush_disk_type: str) -> int:
    """Number of operations of a life without faults; threads make it differ a little from run to run."""
    life, files = live(path, flush_disk_type, no_objection)
    assert len(life.acknowledged) == MESSAGES + 10
    assert not life.errors
    return len(files.operations)
