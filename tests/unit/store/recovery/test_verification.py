"""Pieces of the log that two threads scan and a third one compares: the same records as one scan after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.config.message_store import MessageStoreConfig
from reput.errors import CorruptConsumeQueueError
from reput.files import Mapping
from reput.formats.message import Message
from reput.formats.record import encode_blank, encode_record
from reput.kernels.records.columns import RecordColumns, RecordStatus, ScanStop
from reput.kernels.records.record_scan import RecordScanner
from reput.store.dispatch import redispatch
from reput.store.queues.tables import QueueTables
from reput.store.recovery.verification import _SLOTS, Verification
from tests.support.forged_log import BORN_MS, HOST

BASE = 4096


class Queues:
    """Says of every piece what a test says of it, in the comparing thread."""

    def __init__(self, verify: Callable[[RecordColumns], bool]) -> None:
        self.verify = verify

    def queues(self) -> list[object]:
        return []


class Memory:
    """Where records lie that are in no file."""

    def release(self, begin: int, end: int) -> None:
        """Is not given back."""


def verification(verify: Callable[[RecordColumns], bool]) -> Verification:
    queues = cast(QueueTables, Queues(verify))
    return Verification(queues, None, MessageStoreConfig(), BASE, lambda columns: None)


def record(offset: int, body: bytes, number: int) -> bytes:
    return encode_record(
        Message(f"topic{number % 3}", body, keys=[f"key{number}"]),
        queue_id=0, queue_offset=number, commit_log_offset=offset, store_timestamp=BORN_MS, store_host=HOST,
        born_timestamp=BORN_MS, born_host=HOST,
    )  # fmt: skip


def log_of(sizes: list[int], end: bytes = b"") -> npt.NDArray[np.uint8]:
    """Records with bodies of so many bytes; those of -1 hold a chain of true records that say truly where they lie."""
    content = b""
    for number, size in enumerate(sizes):
        offset, body = BASE + len(content), bytes(max(size, 0))
        while size < 0 and len(body) < 1000:
            body += record(offset + 88 + len(body), b"stolen", 99)
        content += record(offset, body, number)
    return np.frombuffer(content + end, np.uint8)


def facts(columns: RecordColumns) -> list[tuple[object, ...]]:
    """What a scan says of each record, wherever its piece begins."""
    names = ("commit_log_offset", "store_size", "queue_offset", "status", "tags_code")
    keys = [columns.key_hashes[columns.key_rows == row].tolist() for row in range(columns.rows)]
    queues = columns.queues()
    return [
        (*(columns[name][row] for name in names), queues[columns["queue"][row]], keys[row])
        for row in range(columns.rows)
    ]


def walk(
    scan: Callable[..., RecordColumns], data: npt.NDArray[np.uint8], then: Callable[[RecordColumns], Any]
) -> object:
    """Scan piece by piece, as a start does; why and where it ended."""
    position = 0
    while True:
        columns = scan(data[position:], BASE + position, check_crc=True)
        then(columns)
        position += columns.consumed
        if columns.stop is not ScanStop.FULL:
            return columns.stop, position


SIZES = st.lists(st.one_of(st.integers(0, 40), st.integers(500, 1500), st.just(-1)), max_size=40)


@given(
    sizes=SIZES,
    rows=st.integers(1, 8),
    flipped=st.none() | st.integers(0, 1 << 30),
    end=st.sampled_from([b"", bytes(64), encode_blank(64), b"\x01" * 30]),
)
def test_pieces_say_what_one_scan_after_the_other_says(
    sizes: list[int], rows: int, flipped: int | None, end: bytes
) -> None:
    data = log_of(sizes, end).copy()
    if flipped is not None and data.size:
        data[flipped % data.size] ^= 0x10
    expected: list[tuple[object, ...]] = []
    scanner = RecordScanner(rows)
    stop = walk(scanner.scan, data, lambda columns: expected.extend(facts(columns)))
    compared: list[tuple[object, ...]] = []

    def verify(columns: RecordColumns) -> bool:
        compared.extend(facts(columns))
        return True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redispatch, "_MAX_ROWS", rows)
        confirming = verification(verify)
    memory = cast(Mapping, Memory())
    found = walk(confirming.scan, data, lambda columns: confirming.take(columns, memory, 0))
    confirming.finish()
    assert (found, compared) == (stop, expected)
    assert (confirming.is_going, confirming.records) == (True, len(expected))
    assert confirming.offset == BASE + sum(int(cast(int, fact[1])) for fact in expected)


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redispatch, "_MAX_ROWS", 4)


@pytest.mark.usefixtures("few_rows")
def test_the_next_piece_is_scanned_by_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    names: set[str] = set()
    scan = RecordScanner.scan

    def watched(self: RecordScanner, *arguments: Any, **checks: bool) -> RecordColumns:
        names.add(threading.current_thread().name)
        return scan(self, *arguments, **checks)

    monkeypatch.setattr(RecordScanner, "scan", watched)
    confirming = verification(lambda columns: True)
    walk(confirming.scan, log_of([10] * 40), lambda columns: confirming.take(columns, cast(Mapping, Memory()), 0))
    confirming.finish()
    assert {name.partition("_")[0] for name in names} == {"MainThread", "reput-scan"}


@pytest.mark.usefixtures("few_rows")
def test_a_piece_stays_as_it_is_until_it_was_compared() -> None:
    went_on = threading.Event()
    compared: list[int] = []

    def verify(columns: RecordColumns) -> bool:
        if not compared:
            assert not went_on.wait(0.2), "the memory of the oldest piece was given to a new one"
        compared.extend(columns["queue_offset"].tolist())
        return True

    confirming = verification(verify)
    pieces = 0

    def take(columns: RecordColumns) -> None:
        nonlocal pieces
        pieces += 1
        if pieces > _SLOTS:
            went_on.set()
        confirming.take(columns, cast(Mapping, Memory()), 0)

    walk(confirming.scan, log_of([10] * 60), take)
    confirming.finish()
    assert compared == list(range(60))


@pytest.mark.usefixtures("few_rows")
def test_what_was_scanned_ahead_without_a_check_is_scanned_again_with_it() -> None:
    data = log_of([10] * 20).copy()
    confirming = verification(lambda columns: True)
    memory = cast(Mapping, Memory())
    first = confirming.scan(data, BASE)
    confirming.take(first, memory, 0)
    second = confirming.scan(data[first.consumed :], first.next_offset)  # which has the third one scanned ahead
    confirming.take(second, memory, 0)
    position = first.consumed + second.consumed
    data[position + 90] ^= 1  # in the body of the record behind
    third = confirming.scan(data[position:], BASE + position, check_crc=True)
    confirming.take(third, memory, 0)
    confirming.finish()
    assert third["status"][0] & RecordStatus.BAD_BODY_CRC


@pytest.mark.usefixtures("few_rows")
def test_nothing_behind_a_piece_that_differs_counts() -> None:
    confirming = verification(lambda columns: 9 not in columns["queue_offset"])
    taken: list[int] = []

    def take(columns: RecordColumns) -> None:
        taken.append(columns.base_offset)
        confirming.take(columns, cast(Mapping, Memory()), 0)

    walk(confirming.scan, log_of([10] * 40), take)
    confirming.finish()
    assert not confirming.is_going
    assert 0 < confirming.records <= 9
    assert confirming.offset in taken


@pytest.mark.usefixtures("few_rows")
def test_an_error_ends_the_comparing_and_is_told() -> None:
    compared: list[int] = []

    def verify(columns: RecordColumns) -> bool:
        if 9 in columns["queue_offset"]:
            raise CorruptConsumeQueueError("a queue", 20, "expected a unit")
        compared.extend(columns["queue_offset"].tolist())
        return True

    confirming = verification(verify)

    def start() -> None:
        try:
            walk(confirming.scan, log_of([10] * 40), lambda piece: confirming.take(piece, cast(Mapping, Memory()), 0))
        finally:
            confirming.finish()

    with pytest.raises(CorruptConsumeQueueError, match="expected a unit"):
        start()
    assert compared == list(range(len(compared)))
    assert len(compared) <= 9
    assert not any(thread.name.startswith(("reput-scan", "reput-verify")) for thread in threading.enumerate())
