"""Sidecars: what later plans save by them, and when they are not believed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import reput
from reput.formats.record_layout import STORE_TIMESTAMP
from reput.log.directory import StoreDirectory
from reput.log.plans.header_walk import MAX_STORE_MS, MIN_STORE_MS, walk
from reput.log.plans.plan import PlanOptions, plan_read
from reput.log.plans.pruning import Range, Wanted
from reput.log.plans.statistics import ZONE_BYTES, read_statistics, write_statistics
from reput.log.scan import OnDamage
from reput.log.selection import make_selection
from tests.support.damage import flip

CLEAN = Path(__file__).parents[3] / "golden" / "5.3.3" / "clean" / "store"


@pytest.fixture
def store(tmp_path: Path) -> StoreDirectory:
    return StoreDirectory(shutil.copytree(CLEAN, tmp_path / "store"))


def test_a_walk_is_kept_as_it_is(store: StoreDirectory, tmp_path: Path) -> None:
    for file in store.log_files()[:-1]:
        found = walk(file, 10_000)
        write_statistics(str(tmp_path / "kept"), found)
        kept = read_statistics(str(tmp_path / "kept"), file)
        assert kept is not None
        assert kept.zones.tolist() == found.zones.tolist()
        assert (kept.last_record, kept.goes_on, kept.end) == (found.last_record, True, file.end_offset)


def test_zones_bound_the_times_of_all_their_records(store: StoreDirectory) -> None:
    table = reput.read_log(CLEAN, ["commit_log_offset", "store_timestamp"]).read_all()
    offsets = table["commit_log_offset"].to_numpy()
    times = table["store_timestamp"].cast("int64").to_numpy() // 1000
    for file in store.log_files():
        for begin, end, low, high, *_ in walk(file, 5000).zones.tolist():
            inside = times[(offsets >= begin) & (offsets < end)]
            assert (inside.min(), inside.max()) == (low, high)


def edited(name: str, value: object) -> Callable[[Path], None]:
    """Another value, and no CRC that says so."""

    def edit(path: Path) -> None:
        outer = json.loads(path.read_text())
        outer["statistics"] = json.dumps(json.loads(outer["statistics"]) | {name: value})
        path.write_text(json.dumps(outer))

    return edit


@pytest.mark.parametrize(
    "spoil",
    [
        partial(flip, position=3),
        partial(flip, position=-10),
        edited("zones", []),
        edited("size", 1),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"[]"),
        lambda path: path.write_bytes(b"\xff"),
    ],
)
def test_a_damaged_sidecar_is_not_believed(
    store: StoreDirectory, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    file = store.log_files()[0]
    write_statistics(str(tmp_path / "kept"), walk(file, 10_000))
    (sidecar,) = (tmp_path / "kept").iterdir()
    spoil(sidecar)
    assert read_statistics(str(tmp_path / "kept"), file) is None


@pytest.mark.parametrize("record", ["first", "last"])
def test_a_sidecar_of_other_records_is_not_believed(store: StoreDirectory, tmp_path: Path, record: str) -> None:
    """One put at another time lies where the first or the last one was."""
    file = store.log_files()[0]
    found = walk(file, 10_000)
    write_statistics(str(tmp_path / "kept"), found)
    at = 0 if record == "first" else found.last_record
    flip(Path(file.path), at + STORE_TIMESTAMP + 7 if record == "first" else at + 40)
    assert read_statistics(str(tmp_path / "kept"), file) is None


def test_damage_and_files_without_records_leave_no_sidecar(store: StoreDirectory, tmp_path: Path) -> None:
    file = store.log_files()[0]
    flip(Path(file.path), 60_000)
    write_statistics(str(tmp_path / "kept"), walk(file, 10_000, on_damage=OnDamage.SKIP))
    Path(file.path).write_bytes(bytes(file.size))
    write_statistics(str(tmp_path / "kept"), walk(file, 10_000, on_damage=OnDamage.SKIP))
    assert not (tmp_path / "kept").exists()


def test_a_folder_that_cannot_be_written_costs_only_the_time(
    store: StoreDirectory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "kept").touch()
    write_statistics(str(tmp_path / "kept" / "deeper"), walk(store.log_files()[0], 10_000))
    assert "are not kept" in caplog.text


def test_a_second_plan_walks_only_what_is_new_and_reads_only_the_wanted_zones(tmp_path: Path) -> None:
    """Three MiB of messages, then one more; the log is taken for one of an hour a MiB."""
    path, folder = tmp_path / "store", str(tmp_path / "kept")
    with reput.MessageStore.open(path) as store:
        messages = [reput.Message("t", bytes(10_000)) for _ in range(320)]
        store.put_messages(messages)
        options = PlanOptions(processors=2, statistics=folder)
        selection = make_selection(store="")
        everything = plan_read(StoreDirectory(path), selection, options)
        (file,) = StoreDirectory(path).log_files()
        before = read_statistics(folder, file)
        assert before is not None
        assert len(before.zones) == -(-everything.read_bytes // (ZONE_BYTES + 10_000))
        store.put_messages(messages[:100])
        plan_read(StoreDirectory(path), selection, options)
        after = read_statistics(folder, file)
        assert after is not None
        assert after.zones[: len(before.zones)].tolist() == before.zones.tolist()
        assert after.end > before.end
    low, high = after.zones[:, MIN_STORE_MS].min(), after.zones[:, MAX_STORE_MS].max()
    for range_, part in ((Range(high=int(low) - 1), 0), (Range(low=int(high) + 1), 0), (Range(int(low), int(high)), 1)):
        plan = plan_read(StoreDirectory(path), selection, options, Wanted(store_ms=range_))
        assert plan.read_bytes == part * (after.end - file.start_offset)
    assert np.all(after.zones[1:, 0] == after.zones[:-1, 1])
