"""Lives in which messages are put several at once, and later, and tables that end a log file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import reput
from reput.errors import StoreFullError, StoreStateError
from reput.store.results import PutMessageResult
from tests.support.faulty_files import FaultyFiles, Judge, Operation, no_objection, wait_dispatched
from tests.support.invariants import Acknowledged
from tests.support.lives.puts import FILE_SIZE, Life, check_next_life, live_under

ROUNDS = 2
#: Puts of a kind, one behind the other: where they did not wait for their syncs, files would roll before the next one.
IN_A_ROW = 4
MESSAGES = 3


class FurtherPuts(Life):
    """`put_messages` of messages that a kernel encodes, and of others, `async_put_message`, and tables of rows that
    are as large as what is left of the log file. Bodies go over several sectors.

    Attributes:
        served_to: Commit log offset up to which somebody has read messages.
    """

    served_to = 0
    _rows = 0

    def run(self, files: FaultyFiles) -> None:
        """Live to the end, or to the first error that is not a full disk; a full disk is tried again once."""
        self.store = self._trying_again(lambda: reput.MessageStore.open(self.path, files=files, **self.options))
        for number in range(ROUNDS):
            for time in range(IN_A_ROW):
                self._trying_again(lambda number=number, time=time: self._put_several(number, time))
            for time in range(IN_A_ROW):
                self._trying_again(lambda number=number, time=time: self._put_later(number, time, files))
            self._trying_again(lambda number=number: self._put_rows(number))
        wait_dispatched(self.store, files)
        self.store.close()

    def read_on(self) -> None:
        """Read what is served now, and was not when it was read before."""
        while self.store is not None:
            for place in (
                self.served_to,
                self.served_to + -self.served_to % FILE_SIZE,
            ):  # or where the next file begins
                try:
                    message = self.store.look_message_by_offset(place)
                except StoreStateError:  # the last sync is one of its close: nobody is served any more
                    return
                if message is not None:
                    self.served_to = place + message.store_size
                    break
            else:
                return

    def _put_several(self, number: int, time: int) -> None:
        assert self.store is not None
        born_host = "10.0.0.9:4000" if number % 2 else None  # with it a message is none for the kernel
        keys = [f"several-{number}-{time}-{len(self.errors)}-{place}" for place in range(MESSAGES)]
        messages = [reput.Message("several", _body(key), keys=[key], born_host=born_host) for key in keys]
        for key, result in zip(keys, self.store.put_messages(messages, number % 2), strict=True):
            self._acknowledge("several", number % 2, key, result)

    def _put_later(self, number: int, time: int, files: FaultyFiles) -> None:
        assert self.store is not None
        key = f"later-{number}-{time}-{len(self.errors)}"
        future = self.store.async_put_message(reput.Message("later", _body(key), keys=[key]))
        while True:
            try:
                return self._acknowledge("later", 0, key, future.result(timeout=0.1))
            except TimeoutError:
                files.step("wait", "")  # dies here if the flush thread did

    def _put_rows(self, number: int) -> None:
        """A row alone; then two, that together take all that is left, where the file must end with a blank record."""
        assert self.store is not None
        if self.errors:  # a table that meets a full disk leaves the first ones of its rows, or none
            self.store.wait_dispatched()
            self._rows = self.store.max_offset("rows", 0)
        key = f"row-{number}-{len(self.errors)}"
        begin, end = self._put_table_of({f"{key}-a": b""})
        size, left = end - begin, -end % FILE_SIZE
        if left >= 2 * size:
            self._put_table_of({f"{key}-b": b"", f"{key}-c": bytes([number + 1]) * (left - 2 * size)}, end + left)

    def _put_table_of(self, bodies: dict[str, bytes], last_offset: int | None = None) -> tuple[int, int]:
        """Bodies by key; where the last row begins if it is not the first. Begin and end in the log."""
        assert self.store is not None
        count = len(bodies)
        columns = {"topic": ["rows"] * count, "body": list(bodies.values()), "keys": [[key] for key in bodies]}
        try:
            result = self.store.put_arrow(pa.table(columns))
        except StoreFullError:  # the first of two rows may be stored
            self._rows = self.store._log.queue_offsets.get(("rows", 0), 0)
            raise
        if result.status is reput.PutMessageStatus.PUT_OK:
            places = [result.commit_log_offset, last_offset or 0][:count]
            self.acknowledged += [
                Acknowledged("rows", 0, self._rows + row, place, key, body)
                for row, (place, (key, body)) in enumerate(zip(places, bodies.items(), strict=True))
            ]
        self._rows += count
        return result.commit_log_offset, result.end_offset

    def _acknowledge(self, topic: str, queue_id: int, key: str, result: PutMessageResult) -> None:
        if result.status is reput.PutMessageStatus.PUT_OK:
            self.acknowledged.append(
                Acknowledged(topic, queue_id, result.queue_offset, result.commit_log_offset, key, _body(key))
            )


def _body(key: str) -> bytes:
    return key.encode() * 90


def live(path: Path, flush_disk_type: str, judge: Judge) -> tuple[FurtherPuts, FaultyFiles]:
    life = FurtherPuts(path, flush_disk_type)

    def read_before_a_sync(operation: Operation) -> None:
        if operation.kind == "sync" and "commitlog" in operation.path:
            life.read_on()
        judge(operation)

    return life, live_under(life, read_before_a_sync)


def count_operations(path: Path, flush_disk_type: str) -> int:
    """Number of operations of a life without faults; threads make it differ a little from run to run."""
    life, files = live(path, flush_disk_type, no_objection)
    assert len(life.acknowledged) > ROUNDS * (IN_A_ROW * (MESSAGES + 1) + 1)
    assert not life.errors
    assert life.served_to > 2 * FILE_SIZE
    return len(files.operations)


def check_next_life_of(life: FurtherPuts, path: Path) -> None:
    """Check that all is there that was acknowledged, or that somebody has read."""
    with reput.MessageStore.open(path, files=FaultyFiles(), **life.options) as store:
        assert store.max_commit_log_offset >= life.served_to, "messages are lost that were served"
    check_next_life(life, path)
