"""A closed store whose last messages are gone: whoever reads the log to its end says so, and blames no other store."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.compute as pc
import pytest

import reput
from reput.errors import CorruptRecordError
from reput.jobs.damages import find_damages
from reput.jobs.lake.export_job import export
from reput.jobs.lake.export_options import ExportOptions
from reput.jobs.runner import LocalRunner
from reput.jobs.statistics.job import statistics
from reput.log.clean_exit_check import lost_end
from reput.log.directory import StoreDirectory
from tests.support.damage import at, overwrite
from tests.support.invariants import SMALL, log_records

PUT, LOST = 100, 3
SMALL_FILE = int(str(SMALL["mapped_file_size_commit_log"]))
RUNNER = LocalRunner(1)


def put(store: reput.MessageStore, count: int) -> None:
    store.put_messages([reput.Message("orders", b"x" * 100) for _ in range(count)])


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("closed") / "store"
    with reput.MessageStore.open(path, **SMALL) as store:
        put(store, PUT)
    return path


@pytest.fixture
def cut(closed: Path, tmp_path: Path) -> Path:
    """The store without its last messages: zeros are where they were."""
    path = Path(shutil.copytree(closed, tmp_path / "store"))
    for record in log_records(path)[-LOST:]:
        overwrite(*at(path, record.offset), bytes(record.size))
    return path


def by_read_log(store: Path) -> None:
    reput.read_log(store).read_all()


def by_dataset(store: Path) -> None:
    reput.log_dataset(store).to_table(filter=pc.field("queue_offset") >= 0)


def by_export(store: Path) -> None:
    export(store, store.with_name("refused"), runner=RUNNER)


@pytest.mark.parametrize("read", [by_read_log, by_dataset, by_export])
def test_who_refuses_damage_refuses_a_lost_end(read: Callable[[Path], None], cut: Path, closed: Path) -> None:
    read(closed)
    with pytest.raises(
        CorruptRecordError, match="expected a record, for the last clean exit left records up to"
    ) as told:
        read(cut)
    offset = log_records(closed)[-LOST].offset
    assert (told.value.path, told.value.offset) == (str(at(cut, offset)[0]), offset)


def test_who_passes_over_damage_tells_of_a_lost_end(cut: Path, closed: Path, caplog: pytest.LogCaptureFixture) -> None:
    records = log_records(closed)
    begin, end = records[-LOST].offset, records[-1].offset + records[-1].size
    for mode, rows in (("PERMISSIVE", PUT - LOST + 1), ("DROPMALFORMED", PUT - LOST)):
        table = reput.read_log(cut, mode=mode).read_all()
        assert table.num_rows == rows
        assert "expected a record, for the last clean exit" in caplog.text
        caplog.clear()
    (damage,) = find_damages(cut, runner=RUNNER)
    counted = statistics(cut, runner=RUNNER)
    exported = export(cut, cut.with_name("skipped"), runner=RUNNER, options=ExportOptions(damaged="skip"))
    assert (damage.begin, damage.end) == (begin, end)
    assert (counted.messages, counted.damages.told) == (PUT - LOST, (damage,))
    assert (exported.messages, exported.damages.told) == (PUT - LOST, (damage,))


def test_the_last_log_file_that_is_gone_is_a_lost_end(closed: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(closed, tmp_path / "store"))
    files = sorted((path / "commitlog").iterdir())
    written = [file for file in files if file.read_bytes().strip(b"\0")]
    for file in files[len(written) - 1 :]:
        file.unlink()
    with pytest.raises(CorruptRecordError, match="expected a record") as told:
        by_read_log(path)
    assert told.value.path == str(written[-1])


def test_nothing_is_lost_of_a_store_that_is_open_was_killed_or_was_written_to(
    closed: Path, cut: Path, tmp_path: Path
) -> None:
    def found(path: Path, end: int) -> bool:
        return lost_end(StoreDirectory(path), end) is not None

    records = log_records(closed)
    before = records[-LOST].offset
    assert found(cut, before)
    assert len({record.offset // SMALL_FILE for record in records}) > 2
    for record in records:  # written since, as if the read had ended there: the end of a log file is one of them
        assert not found(closed, record.offset + record.size)
    (cut / "abort").touch()
    assert not found(cut, before)
    (cut / "abort").unlink()
    (cut / "config/reputShutdown.json").unlink()
    assert not found(cut, before)
    with reput.MessageStore.open(tmp_path / "living", **SMALL) as store:
        put(store, 3)
        assert not found(tmp_path / "living", 0)
