"""Every single bit of every byte in use of every file turned over, one at a time: who tells it, and what it does.

A flip is *told* where an audit has a finding, or refuses. It is *harmless* where all that the store gives is the same:
every column of the log, and every queue, key and time, to a reader and after a start that writes. Else it is *silent*.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, TypeVar

import pyarrow as pa

import reput
import reput.log.scan
from lab.campaign.cases import Part
from lab.campaign.fields import FileField, fields_of
from lab.campaign.samples import TOPICS, Sample, answers, log_answers, sample
from reput.errors import ReputError
from reput.jobs.audit.job import audit
from reput.progress import Progress
from tests.support.faulty_files import FaultyFiles

T = TypeVar("T")
R = TypeVar("R")

#: Of the log's fields, those that a flip must never change in silence, even without a CRC of the whole record.
PROTECTED = frozenset(
    {
        "TOTALSIZE", "MAGICCODE", "BODYCRC", "QUEUEID", "QUEUEOFFSET", "PHYSICALOFFSET", "BODYLENGTH", "BODY",
        "TOPICLENGTH", "TOPIC", "PROPERTIESLENGTH",
    }
)  # fmt: skip
#: Of these, what nothing contradicts in some records: no queue has prepared and rolled back messages, and the CRC of
#: an empty body is compared with nothing.
_SOMETIMES = frozenset({"QUEUEID", "TOPIC", "BODYCRC"})
#: The parts of a store that also stand in one that was killed, and mean something else to its next start.
_SMALL_FILES = ("checkpoint", "config", "abort", "lock")
#: Neighbouring cases look at bytes far from each other: a share of them sees all files.
STRIDE = 7919


class _InTurn:
    """A Runner without threads."""

    def run(
        self, task: Callable[[T], R], items: Sequence[T], *, description: str, progress: Progress | None = None
    ) -> list[R]:
        return [task(item) for item in items]


class _Target(NamedTuple):
    """A store, and what it gives while it is whole."""

    sample: Sample
    name: str
    with_crc: bool
    log: pa.Table
    to_a_reader: list[object]
    after_start: tuple[list[object], list[object]]


@cache
def _places() -> tuple[list[_Target], list[tuple[int, FileField, int]]]:
    """The stores, and every byte in use: number of the store, field, position in the file."""
    reput.log.scan._REREAD_PAUSE_S = 0.0  # nobody writes to these logs
    targets: list[_Target] = []
    places: list[tuple[int, FileField, int]] = []
    for with_crc in (False, True):
        for closed in (True, False):
            one = sample(with_crc=with_crc, closed=closed)
            name = f"{'with' if with_crc else 'without'} a property CRC{'' if closed else ', killed'}"
            target = _Target(one, name, with_crc, log_answers(one.path), _to_a_reader(one), _after_start(one))
            assert not _is_told(target), "the store is not whole"
            for field in fields_of(one.path):
                is_small = field.file.relative_to(one.path).parts[0] in _SMALL_FILES
                if (closed == with_crc) if is_small else closed:
                    span = range(field.position, field.position + field.size)
                    places += [(len(targets), field, position) for position in span]
            targets.append(target)
    return targets, places


def count_bytes() -> int:
    """Bytes in use of all stores: after this number of cases each of them was looked at once."""
    return len(_places()[1])


def run(folder: Path, seed: int) -> Counter[str]:
    """All eight flips of one byte."""
    targets, places = _places()
    number, field, position = places[seed * STRIDE % len(places)]
    target = targets[number]
    counts: Counter[str] = Counter()
    for bit in range(8):
        verdict = _verdict_of(target, field.file, position, 1 << bit)
        counts["flips"] += 1
        counts[f"{verdict}: {target.name}: {field.name}"] += 1
        if verdict == "silent" and not may_be_silent(field.name, target.with_crc):
            where = f"{field.file.relative_to(target.sample.path)}, byte {position}, bit {bit}"
            raise AssertionError(f"a flip in silence, {target.name}: {field.name}: {where}")
    return counts


def may_be_silent(name: str, with_crc: bool) -> bool:
    """Whether RocketMQ's format cannot show a flip in a field."""
    if not name.startswith("log "):
        return False
    field, _, in_some_records = name.removeprefix("log ").partition(",")
    return not with_crc and (field not in PROTECTED or bool(in_some_records and field in _SOMETIMES))


def _verdict_of(target: _Target, file: Path, position: int, mask: int) -> str:
    descriptor = os.open(file, os.O_RDWR)
    try:
        before = os.pread(descriptor, 1, position)
        os.pwrite(descriptor, bytes([before[0] ^ mask]), position)
        try:
            return "told" if _is_told(target) else "harmless" if _is_harmless(target) else "silent"
        finally:
            os.pwrite(descriptor, before, position)
    finally:
        os.close(descriptor)


def _is_told(target: _Target) -> bool:
    """Whether an audit has any finding, or refuses."""
    try:
        found = audit(target.sample.path, runner=_InTurn(), force_verify_prop_crc=target.with_crc)
        return bool(found.findings)
    except ReputError:
        return True


def _is_harmless(target: _Target) -> bool:
    """Whether all that the store gives is what it gave. An error of any kind is not."""
    one = target.sample
    return (
        log_answers(one.path).equals(target.log)
        and _to_a_reader(one) == target.to_a_reader
        and _after_start(one) == target.after_start
    )


def _to_a_reader(one: Sample) -> list[object]:
    with reput.MessageStore.open(one.path, read_only=True, **one.options) as store:
        return answers(store)


def _after_start(one: Sample) -> tuple[list[object], list[object]]:
    """Answers of a copy after a start that may write: at once, and once each queue has one more message."""
    with TemporaryDirectory(prefix="reput-campaign-") as folder:
        path = Path(shutil.copytree(one.path, Path(folder) / "store"))
        with reput.MessageStore.open(path, files=FaultyFiles(), **one.options) as store:
            before = answers(store)
            for topic, queue_id in product(TOPICS, range(2)):
                more = reput.Message(topic, b"later", properties={"INNER_MULTI_DISPATCH": "%LMQ%a"}, born_timestamp=1)
                store.put_message(more, queue_id)
            store.wait_dispatched()
            return before, answers(store)


PART = Part("flips", "every single bit of every byte in use of every file, turned over", 14_451, run, ("flips",))
