"""Readers beside a sink that begins, breaks off and takes back batches at any moment show nothing that goes again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import reput
from reput.errors import CorruptRecordError, StoreError
from reput.files import DISK, Entry, File, FileLayer
from reput.jobs.rebuild.job import rebuild
from reput.jobs.runner import LocalRunner
from reput.jobs.statistics.job import statistics
from reput.log import StoreDirectory
from reput.log.plans.plan import PlanOptions, plan_read
from reput.log.plans.plan_parts import read_part
from reput.log.resume_points import ResumePoint
from reput.log.selection import make_selection
from reput.log.tail import LogTail
from reput.store.dispatch.log_dispatch import LogDispatch
from reput.store.recovery.read_only import open_for_reading
from tests.support.faulty_files import FaultyFiles
from tests.support.invariants import SMALL, log_records
from tests.support.lives.sink import CONFIG, break_off, write_some
from tests.support.shares import Share, in_shares, sampled

#: Takes a store and a file layer; returns the commit log offset behind the last record that it shows.
Reader = Callable[[Path, FileLayer], int]


class WatchedFiles(FileLayer):
    """A layer that does something in the middle of what a reader does: before its look number `at` at the disk."""

    def __init__(self, events: dict[int, Callable[[], None]]) -> None:
        self._events = events
        self.looks = 0

    def look(self) -> None:
        number, self.looks = self.looks, self.looks + 1
        event = self._events.pop(number, None)
        if event is not None:
            event()

    def open(self, path: str, **options: Any) -> File:  # type: ignore[override]
        self.look()
        opened = super().open(path, **options)
        return _WatchedFile(path, opened.fileno(), self)

    def exists(self, path: str) -> bool:
        self.look()
        return super().exists(path)

    def lock_text(self, path: str) -> bytes:
        self.look()
        return super().lock_text(path)

    def list_directory(self, path: str) -> list[Entry]:
        self.look()
        return super().list_directory(path)


class _WatchedFile(File):
    __slots__ = ("_layer",)

    def __init__(self, path: str, descriptor: int, layer: WatchedFiles) -> None:
        super().__init__(path, descriptor)
        self._layer = layer

    def read_into(self, position: int, target: Any) -> int:
        self._layer.look()
        return super().read_into(position, target)

    def read_runs(self, positions: Any, sizes: Any) -> Any:
        self._layer.look()
        return super().read_runs(positions, sizes)

    def read(self, position: int, size: int) -> bytes:
        self._layer.look()
        return super().read(position, size)


def begins(path: Path) -> None:
    break_off(path, 9)


def settles(path: Path) -> None:
    with reput.MessageStore.open(path, files=FaultyFiles(), **SMALL):
        pass


def comes_and_goes_and_comes(path: Path) -> None:
    """Where it was, others lie that go as well."""
    begins(path)
    settles(path)
    begins(path)


def read_all(path: Path, files: FileLayer) -> int:
    rows = reput.read_log(path, ["commit_log_offset", "store_size"], files=files).read_all().to_pylist()
    return int(rows[-1]["commit_log_offset"] + rows[-1]["store_size"])


def read_plan(path: Path, files: FileLayer) -> int:
    selection = make_selection(columns=["commit_log_offset", "store_size"], store="")
    parts = plan_read(StoreDirectory(path, files=files), selection, PlanOptions(processors=2, split_bytes=600)).parts
    batches = [batch.to_pylist() for part in parts for batch in read_part(part, selection, files)]
    return int(batches[-1][-1]["commit_log_offset"] + batches[-1][-1]["store_size"])


def open_read_only(path: Path, files: FileLayer) -> int:
    parts = open_for_reading(str(path), CONFIG, files, lambda *_: None)
    try:
        return parts.log.max_offset
    finally:
        parts.close()


def follow_from_latest(path: Path, files: FileLayer) -> int:
    return LogTail(StoreDirectory(path, files=files)).latest().offset


def follow_from_earliest(path: Path, files: FileLayer) -> int:
    return LogTail(StoreDirectory(path, files=files)).advance(ResumePoint(0)).offset


def dispatch(path: Path, files: FileLayer) -> int:
    dispatcher = LogDispatch(StoreDirectory(path, files=files), str(path.with_name(path.name + " dispatched")), CONFIG)
    try:
        while dispatcher.run_once() is not None:
            pass
        return dispatcher.point.offset
    finally:
        dispatcher.close()


def rebuild_whole(path: Path, files: FileLayer) -> int:
    """(It reads by the disk's own layer.)"""
    result = rebuild(path, path.with_name(path.name + " rebuilt"), runner=LocalRunner(1), split_bytes=500)
    return result.log_bytes


def count(path: Path, files: FileLayer) -> int:
    """(As above.)"""
    return statistics(path, runner=LocalRunner(1), split_bytes=500).log_bytes


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One that is closed, and one whose sink was killed in the middle of a batch; both end where the whole ones do."""
    folder = tmp_path_factory.mktemp("stores")
    write_some(folder / "closed", (0,))
    shutil.copytree(folder / "closed", folder / "killed")
    begins(folder / "killed")
    return {"closed": folder / "closed", "killed": folder / "killed"}


@sampled(3)
@in_shares(3)
@pytest.mark.parametrize("state", ["closed", "killed"])
@pytest.mark.parametrize("reader", [read_all, read_plan, open_read_only, follow_from_latest, follow_from_earliest])
def test_no_reader_shows_a_record_of_a_batch_that_goes_again(
    stores: dict[str, Path], tmp_path: Path, reader: Reader, state: str, share: Share
) -> None:
    last = log_records(stores["closed"])[-1]
    end = last.offset + last.size
    healthy = WatchedFiles({})
    assert reader(stores[state], healthy) == end
    for at in share.of(range(0, healthy.looks, healthy.looks // 16 + 1)):
        for name, events in {
            "begins": {at: begins},
            "begins, and goes soon": {at: begins, at + 2: settles},
            "comes, goes, comes": {at: comes_and_goes_and_comes},
        }.items():
            path = tmp_path / f"{at} {name}"
            shutil.copytree(stores[state], path)
            files = WatchedFiles({number: partial(event, path) for number, event in events.items()})
            try:
                shown = reader(path, files)
            except StoreError as error:  # a file went with the batch, or an index was made anew
                assert not isinstance(error, CorruptRecordError), f"{name}, before look {at}"  # noqa: PT017
                shown = reader(path, files)
            assert shown == end, f"{name}, before look {at}"
            shutil.rmtree(path)


@pytest.mark.parametrize(
    "reader",
    [read_all, read_plan, open_read_only, follow_from_latest, follow_from_earliest, dispatch, rebuild_whole, count],
)
@pytest.mark.parametrize("torn", [0, 1])
def test_what_a_power_cut_leaves_of_a_batch_is_no_damage(
    stores: dict[str, Path], tmp_path: Path, reader: Reader, torn: int
) -> None:
    """Its sectors reach the disk in any order, so that whole records lie behind one that is none."""
    last = log_records(stores["closed"])[-1]
    end = last.offset + last.size
    path = tmp_path / "store"
    shutil.copytree(stores["killed"], path)
    record = [record for record in log_records(path) if record.offset >= end][torn]
    with (path / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(record.offset)
        file.write(bytes(record.size))
    assert reader(path, DISK) == end
