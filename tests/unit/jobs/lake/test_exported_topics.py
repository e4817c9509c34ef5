"""Export of some topics of a large range: it reads their records alone, and writes what a full read finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

import reput
from reput.errors import CorruptRecordError
from reput.formats.message import Message
from reput.jobs.lake import ExportOptions, export, exported_log
from reput.jobs.lake.exported_log import ExportedLog
from reput.jobs.runner import LocalRunner
from reput.log.directory import StoreDirectory
from reput.log.plans import pruning
from reput.log.resume_points import ResumePoint
from reput.log.scan import OnDamage
from reput.log.selection import make_selection
from reput.log.tail import LogTail
from tests.support.damage import at, flip

GOLDEN = Path(__file__).parents[3] / "golden"
RARE = 7


@pytest.fixture(autouse=True)
def small_logs_are_pruned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "SEEK_BYTES", 100)
    monkeypatch.setattr(exported_log, "_SCANNED_BYTES", 1000)


def put(path: Path, begin: int, end: int) -> None:
    """Messages of which each fiftieth is of the rare topic."""
    with reput.MessageStore.open(path, mapped_file_size_commit_log=20_000) as store:
        for n in range(begin, end):
            store.put_message(Message("rare" if n % 50 == 25 else f"often-{n % 3}", json.dumps({"n": n}).encode()))


def exported(path: Path, output: Path, **options: Any) -> list[int]:
    """Offsets of all messages of the rare topic that are exported by now, in order."""
    export(path, output, runner=LocalRunner(), options=ExportOptions(topics=["rare"], **options))
    tables = ds.dataset(output / "messages", format="parquet", exclude_invalid_files=False)
    offsets: list[int] = tables.to_table(columns=["commit_log_offset"])["commit_log_offset"].to_pylist()
    return sorted(offsets)


def wanted(path: Path) -> list[int]:
    return reput.read_log(path, ["commit_log_offset"], ["rare"]).read_all()[0].to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("options", [{}, {"decode": "json"}, {"decode": "json", "schema": "n bigint"}], ids=str)
def test_runs_go_on_and_meet_no_record_of_others(tmp_path: Path, options: dict[str, Any]) -> None:
    path, output = tmp_path / "store", tmp_path / "out"
    put(path, 0, 50 * RARE)
    first = wanted(path)
    often = reput.read_log(path, ["commit_log_offset"], ["often-1"]).read_all()[0].to_pylist()
    flip(*at(path, often[20] + 30))
    with pytest.raises(CorruptRecordError):
        reput.read_log(path).read_all()
    assert exported(path, output, **options) == first
    flip(*at(path, often[20] + 30))  # a store with damage is not opened to put
    put(path, 50 * RARE, 100 * RARE)
    flip(*at(path, often[20] + 30))
    assert exported(path, output, **options) == wanted(path)
    assert len(wanted(path)) == 2 * RARE


def test_what_queues_do_not_have_is_exported_too(tmp_path: Path) -> None:
    path = tmp_path / "store"
    put(path, 0, 50 * RARE)
    all_of_them = wanted(path)
    (queue,) = (path / "consumequeue" / "rare").glob("*/*")
    with queue.open("r+b") as opened:  # a unit in the middle is lost
        opened.seek(3 * 20)
        opened.write(bytes(20))
    assert exported(path, tmp_path / "out") == all_of_them


def test_a_commit_ends_with_the_file_that_fills_it(tmp_path: Path) -> None:
    path, output = tmp_path / "store", tmp_path / "out"
    put(path, 0, 100 * RARE)
    size = reput.read_log(path, ["store_size"], ["rare"]).read_all()[0][0].as_py()
    options = ExportOptions(topics=["rare"], commit_bytes=3 * size)
    done = export(path, output, runner=LocalRunner(), options=options)
    assert 1 < done.commits <= 2 * RARE // 3 + 1
    assert done.messages == 2 * RARE


@pytest.mark.parametrize("store", ["5.3.3/clean/store", "4.9.7/killed/store", "5.5.0/torn/store"])
def test_the_end_that_queues_lead_to_is_the_end_of_the_log(store: str) -> None:
    directory, tail = StoreDirectory(GOLDEN / store), LogTail(StoreDirectory(GOLDEN / store))
    table = reput.read_log(GOLDEN / store, ["topic", "commit_log_offset"]).read_all()
    for topic in {*table["topic"].to_pylist()}:
        selection = make_selection(topics=[topic], store="store")
        for begin in [tail.earliest().offset, *table["commit_log_offset"].to_pylist()[:: len(table) // 5]]:
            log, point = ExportedLog(directory, OnDamage.RAISE), ResumePoint(begin)
            log.begin(None, fail_on_data_loss=True)
            assert log.end(point, selection) == tail.advance(point)


def test_damage_of_others_in_the_last_file_is_not_met(tmp_path: Path) -> None:
    """The end of the log was found by reading all of that file."""
    path = tmp_path / "store"
    put(path, 0, 50 * RARE)
    often = reput.read_log(path, ["commit_log_offset"], ["often-1"]).read_all()[0].to_pylist()
    flip(*at(path, often[-20] + 30))
    end = LogTail(StoreDirectory(path))
    assert end.advance(end.earliest()).offset <= often[-20]
    assert exported(path, tmp_path / "out") == wanted(path)


def test_records_that_queues_do_not_have_yet_are_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "store"
    put(path, 0, 50 * RARE)
    all_of_them = wanted(path)
    for queue in path.glob("consumequeue/*/*/*"):  # the last tenth is not dispatched
        data = queue.read_bytes()
        count = len(data.rstrip(b"\0")) // 20
        queue.write_bytes(data[: (count - count // 10) * 20].ljust(len(data), b"\0"))
    assert exported(path, tmp_path / "out") == all_of_them
