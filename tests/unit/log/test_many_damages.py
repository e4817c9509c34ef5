"""A log with very many damages: what is read, told and logged does not grow with their number times the log's size."""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.formats.message import Message
from reput.formats.record_layout import BODY, BODY_LENGTH, MAGIC_CODE, PHYSICAL_OFFSET, TOTAL_SIZE, MagicCode
from reput.jobs.damages import find_damages
from reput.jobs.runner import LocalRunner
from reput.log import damages
from reput.log.damages import NO_DAMAGES, Damage, joined
from tests.support.counted_reads import CountedReads
from tests.support.damage import overwrite
from tests.support.fixtures import LogWriter

FILE_SIZE = 1 << 20
COUNT = 2000
MESSAGES = [Message("orders", b"%06d" % i + bytes(300)) for i in range(COUNT)]


def blank(position: int) -> bytes:
    return struct.pack(">ii", FILE_SIZE - position, MagicCode.BLANK)


#: What is written at a record, by its offset and size: position in the record, and bytes.
KINDS: dict[str, Callable[[int, int], tuple[int, bytes]]] = {
    "body": lambda offset, size: (BODY + 100, b"X"),
    "magic code": lambda offset, size: (MAGIC_CODE, b"X"),
    "offset": lambda offset, size: (PHYSICAL_OFFSET, b"\1"),
    "size": lambda offset, size: (TOTAL_SIZE, struct.pack(">i", size + 1)),
    "size that leads far away": lambda offset, size: (TOTAL_SIZE, struct.pack(">i", FILE_SIZE // 2)),
    "lengths that lead far away": lambda offset, size: (BODY_LENGTH, struct.pack(">i", FILE_SIZE // 2)),
    "zeros": lambda offset, size: (0, bytes(size)),
    "anything": lambda offset, size: (0, os.urandom(size)),
    "a blank record": lambda offset, size: (0, blank(offset)),
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def spoil(store: Path, write_log: LogWriter, kind: str) -> tuple[list[int], list[int]]:
    """Damage every second record of a log; returns the offsets of all others, and of these."""
    offsets = write_log(MESSAGES, FILE_SIZE)
    size = offsets[1] - offsets[0]
    for offset in offsets[1:-1:2]:
        position, data = KINDS[kind](offset, size)
        overwrite(store / "commitlog" / f"{0:020d}", offset + position, data)
    lost = offsets[1:-1:2]
    return [offset for offset in offsets if offset not in set(lost)], lost


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_is_whole_is_read_and_a_window_is_read_a_few_times_whatever_its_damages(
    store: Path, write_log: LogWriter, kind: str
) -> None:
    whole, lost = spoil(store, write_log, kind)
    files = CountedReads()
    table = reput.read_log(store, ["commit_log_offset", "status"], mode="PERMISSIVE", files=files).read_all()
    rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    assert [offset for offset, status in rows if status == "OK"] == whole
    assert [offset for offset, status in rows if status.startswith("DAMAGED")] == lost
    assert [offset for offset, _ in rows] == sorted(whole + lost)
    assert files.log_bytes() < 12 * FILE_SIZE


def test_damages_are_all_counted_and_the_first_are_told(
    store: Path, write_log: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, lost = spoil(store, write_log, "body")
    monkeypatch.setattr(damages, "MOST_TOLD", 10)
    found = find_damages(store, runner=LocalRunner(1), split_bytes=FILE_SIZE // 4)
    assert (found.count, [damage.begin for damage in found]) == (len(lost), lost[:10])
    *told, rest = found.texts()
    size = found.size - sum(damage.end - damage.begin for damage in found)
    assert (len(told), rest) == (10, f"and {len(lost) - 10} damages more, of {size} bytes")


def test_a_few_lines_of_the_log_tell_of_any_number_of_damages(
    store: Path, write_log: LogWriter, caplog: pytest.LogCaptureFixture
) -> None:
    _, lost = spoil(store, write_log, "body")
    with caplog.at_level(logging.WARNING, "reput.log"):
        reput.read_log(store, ["topic"], mode="DROPMALFORMED").read_all()
    assert len(caplog.messages) == 21
    assert caplog.messages[-1].startswith(f"and {len(lost) - 20} damages more; passed over ")


def test_damages_of_parts_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damages, "MOST_TOLD", 3)
    some = [Damage("f", n, n + 2, "why") for n in range(0, 20, 4)]
    whole = NO_DAMAGES.followed_by(some)
    assert (whole.told, whole.count, whole.size) == (tuple(some[:3]), 5, 10)
    assert joined([NO_DAMAGES.followed_by(some[:2]), NO_DAMAGES.followed_by(some[2:])]) == whole
    assert NO_DAMAGES.followed_by(some[::2]).merged_with(NO_DAMAGES.followed_by(some[1::2])) == whole
