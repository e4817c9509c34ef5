"""Archives of stores: what is archived, when, by whom; and the stores that are made of them."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import compute as pc
from pyarrow import parquet as pq

import reput
from reput.errors import ConfigError, CorruptBackupError, StoreError, StoreFormatError, StoreLockedError
from reput.files import DISK, FileLayer
from reput.formats.archive import REST, ROWS
from reput.formats.backup import Manifest
from reput.formats.consume_queue import UNIT_SIZE
from reput.jobs import archived_files
from reput.jobs.archive import Archived, archive, follow, states, verify, write_file
from reput.jobs.archive.write_file import WriteFile
from reput.jobs.archived_files import check_objects, read_archived_file, restore_file
from reput.jobs.backup import Restored, backup, list_backups, prune, restore
from reput.jobs.runner import LocalRunner
from reput.kernels.archive.archived_rows import ROWS_SCHEMA
from reput.log.directory import LogFile
from tests.support.archives import FILE_SIZE, OPTIONS, log_files, store_with_sealed_files, there_and_back
from tests.support.damage import at, flip
from tests.support.faulty_files import FaultyFiles
from tests.support.invariants import SMALL
from tests.support.trees import tree


def take(store: Path, target: Path, **options: Any) -> Archived:
    return archive(store, target, **({"runner": LocalRunner(2)} | options))


def make(target: Path, store: Path, **options: Any) -> Restored:
    result = restore(target, store, **({"runner": LocalRunner(2)} | options))
    assert result.is_clean, result.findings
    return result


def put_more(store: Path, count: int) -> None:
    with reput.MessageStore.open(store, files=FaultyFiles(), **OPTIONS) as opened:
        for n in range(count):
            opened.put_message(reput.Message("orders", bytes(300), keys=(f"more-{n}",)), queue_id=n % 4)


@pytest.fixture(scope="module")
def closed_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store_with_sealed_files(tmp_path_factory.mktemp("archive") / "store")


@pytest.fixture
def store(closed_store: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(closed_store, tmp_path / "store"))


def test_sealed_files_come_back_byte_for_byte(store: Path, tmp_path: Path) -> None:
    before = tree(store)
    result = take(store, tmp_path / "archive")
    assert tree(store) == before
    sealed = dict(list(log_files(store).items())[: result.files])
    assert result.files == result.new_files > 2
    assert result.end_offset == result.files * FILE_SIZE == result.new_log_bytes
    assert result.findings == ()
    made = make(tmp_path / "archive", tmp_path / "restored")
    assert made.end_offset == result.end_offset
    assert made.messages == result.new_messages
    restored = log_files(tmp_path / "restored")
    assert {name: data for name, data in restored.items() if name in sealed} == sealed
    assert not any(any(data) for name, data in restored.items() if name not in sealed)


def test_a_restored_store_serves_its_messages_and_no_group_stands_after_them(store: Path, tmp_path: Path) -> None:
    take(store, tmp_path / "archive")
    made = make(tmp_path / "archive", tmp_path / "restored")
    with reput.MessageStore.open(tmp_path / "restored", read_only=True) as opened:
        ends = {queue: opened.max_offset("orders", queue) for queue in range(4)}
        assert sum(ends.values()) == made.messages
    text = (tmp_path / "restored/config/consumerOffset.json").read_text()
    assert f"0:{ends[0]}" in text
    assert "orders" in (tmp_path / "restored/config/topics.json").read_text()


def test_the_next_run_archives_what_is_new_and_changes_nothing_else(store: Path, tmp_path: Path) -> None:
    first = take(store, tmp_path / "archive")
    before = tree(tmp_path / "archive")
    again = take(store, tmp_path / "archive")
    assert (again.new_files, again.files) == (0, first.files)
    assert tree(tmp_path / "archive") == before
    put_more(store, 60)
    later = take(store, tmp_path / "archive")
    assert later.new_files > 0
    assert tree(tmp_path / "archive").items() >= before.items()
    names = [one.name for one in list_backups(tmp_path / "archive")]  # type: ignore[union-attr]
    assert len(names) == 2
    for name, end in zip(names, (first.end_offset, later.end_offset), strict=True):
        assert make(tmp_path / "archive", tmp_path / name, backup=name).end_offset == end


def test_an_archive_goes_on_when_retention_has_deleted_what_it_has(store: Path, tmp_path: Path) -> None:
    take(store, tmp_path / "archive")
    before = log_files(store)
    for name in list(before)[:2]:
        (store / "commitlog" / name).unlink()
    put_more(store, 60)
    result = take(store, tmp_path / "archive")
    assert result.begin_offset == 0
    make(tmp_path / "archive", tmp_path / "restored")
    restored = log_files(tmp_path / "restored")
    assert [restored[name] for name in list(before)[:2]] == [before[name] for name in list(before)[:2]]


@pytest.mark.parametrize("point", ["time", "offset"])
def test_a_restore_ends_at_a_point_in_time(store: Path, tmp_path: Path, point: str) -> None:
    take(store, tmp_path / "archive")
    table = reput.read_log(store).read_all()
    offset = table["commit_log_offset"][40].as_py()
    if point == "offset":
        made = make(tmp_path / "archive", tmp_path / "restored", until_offset=offset + 1)
        assert made.messages == 41
    else:
        times = [round(time.as_py().timestamp() * 1000) for time in table["store_timestamp"]]
        made = make(tmp_path / "archive", tmp_path / "restored", until_ms=times[40])
        assert made.messages == sum(time <= times[40] for time in times)
    end = made.end_offset
    assert b"".join(log_files(tmp_path / "restored").values())[:end] == b"".join(log_files(store).values())[:end]


def test_a_store_without_a_sealed_file_begins_an_archive_and_one_without_a_log_none(tmp_path: Path) -> None:
    store = store_with_sealed_files(tmp_path / "store", 3)
    assert take(store, tmp_path / "archive").files == 0
    assert {path.name for path in (tmp_path / "archive").iterdir()} == {"archive.json", "lock"}
    assert verify(tmp_path / "archive", runner=LocalRunner(1)).findings == ()
    shutil.rmtree(store / "commitlog")
    assert take(store, tmp_path / "other").files == 0
    assert not (tmp_path / "other").exists()


def test_a_damaged_file_is_kept_as_it_is_and_told(store: Path, tmp_path: Path) -> None:
    offset = reput.read_log(store, columns=["commit_log_offset"]).read_all()["commit_log_offset"][5].as_py()
    path, position = at(store, offset)
    flip(path, position + 90)
    before = path.read_bytes()
    result = take(store, tmp_path / "archive")
    assert len(result.findings) == 1
    assert str(path) in result.findings[0]
    archived = read_archived_file(str(tmp_path / "archive"), 0, DISK)
    restore_file(str(tmp_path / "archive"), archived, str(tmp_path / "file"), DISK)
    assert (tmp_path / "file").read_bytes() == before


def test_row_groups_and_groups_of_the_rest_join(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_GROUP_BYTES", 700), ("_PIECES", 2), ("_PIECE_BYTES", 30)):
        monkeypatch.setattr(write_file, name, value)
    data = bytearray(log_files(store)[f"{0:020}"])
    for position in range(2000, FILE_SIZE, 1500):
        data[position] ^= 1
    archived = there_and_back(bytes(data), 0, tmp_path / "alone")
    path = tmp_path / "alone/archive" / archived.name
    groups = {ending: pq.ParquetFile(f"{path}{ending}").num_row_groups for ending in (ROWS, REST)}
    assert min(groups.values()) > 2


def test_rows_are_in_the_order_of_topics_and_queues_and_are_those_of_read_log(store: Path, tmp_path: Path) -> None:
    result = take(store, tmp_path / "archive")
    names = [name for name in ROWS_SCHEMA.names if name not in ("property_order", "raw_properties")]
    parts = [pq.read_table(path) for path in sorted((tmp_path / "archive").glob("?" * 20 + ROWS))]
    for part in parts:
        order = [("topic", "ascending"), ("queue_id", "ascending"), ("commit_log_offset", "ascending")]
        assert part.equals(part.sort_by(order))
    found = pa.concat_tables(parts).select(names).sort_by("commit_log_offset")
    expected = reput.read_log(store, columns=names, raw_body=True).read_all()
    expected = expected.filter(pc.less(expected["commit_log_offset"], result.end_offset))
    assert found.to_pylist() == expected.to_pylist()
    assert found.num_rows == result.new_messages


class WrongFiles(FileLayer):
    """A disk that has another byte than was written to a file with rows or rest."""

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        if target.endswith(ROWS):
            flip(Path(target), os.path.getsize(target) // 2)


def test_a_file_counts_only_if_the_target_has_what_was_written(store: Path, tmp_path: Path) -> None:
    with pytest.raises(CorruptBackupError, match="SHA-256"):
        take(store, tmp_path / "archive", files=WrongFiles())
    assert not list((tmp_path / "archive").glob("0*.json"))
    assert take(store, tmp_path / "archive").new_files > 0
    assert verify(tmp_path / "archive", runner=LocalRunner(1)).findings == ()


def test_no_file_has_a_name_while_it_is_proven(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a kill leaves nothing where the system has temporary files."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    restore_rows, seen = archived_files._restore_rows, []

    def watched(*arguments: Any) -> None:
        seen.append(list((tmp_path / "temporary").iterdir()))
        restore_rows(*arguments)

    monkeypatch.setattr(archived_files, "_restore_rows", watched)
    result = take(store, tmp_path / "archive")
    verify(tmp_path / "archive", runner=LocalRunner(1))
    assert seen == [[]] * 2 * result.files


class OtherAttempt(FileLayer):
    """Another attempt of the same task ends when this one is about to name a file; what it made counts from then on."""

    def __init__(self, log_file: LogFile, names_before: int) -> None:
        self.log_file, self.names_before = log_file, names_before
        self.archive = ""

    def rename(self, source: str, target: str) -> None:
        if not self.names_before:
            self.archive = os.path.dirname(target)
            assert WriteFile(self.archive, DISK)(self.log_file).is_new
        self.names_before -= 1
        super().rename(source, target)
        self.check()

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self.check()

    def check(self) -> None:
        """What counts is there, and whole."""
        if self.archive:
            check_objects(self.archive, read_archived_file(self.archive, self.log_file.start_offset, DISK), DISK)


@pytest.mark.parametrize("names_before", range(3))
def test_a_second_attempt_of_a_task_takes_nothing_away_of_what_counts(
    names_before: int, store: Path, tmp_path: Path
) -> None:
    path = min((store / "commitlog").iterdir())
    log_file = LogFile(str(path), 0, FILE_SIZE)
    (tmp_path / "archive").mkdir()
    files = OtherAttempt(log_file, names_before)
    WriteFile(str(tmp_path / "archive"), files)(log_file)
    assert files.archive
    files.check()


def test_who_follows_a_log_archives_each_file_once_it_is_sealed_and_nobody_else_does_meanwhile(
    store: Path, tmp_path: Path
) -> None:
    target, waits = tmp_path / "archive", iter([60, 0, 30, None])

    def wait() -> bool:
        count = next(waits)
        with pytest.raises(StoreLockedError, match="another process archives"):
            take(store, target)
        if count:
            put_more(store, count)
        return count is not None

    results = list(follow(store, target, runner=LocalRunner(2), wait=wait))
    assert [result.new_files > 0 for result in results] == [True, True, False, True]
    assert results[-1].files == len(log_files(store)) - 1 == sum(result.new_files for result in results)
    assert verify(target, runner=LocalRunner(1)).findings == ()
    assert take(store, target).new_files == 0
    make(target, tmp_path / "restored")
    assert log_files(tmp_path / "restored").items() <= log_files(store).items()


def test_who_follows_keeps_the_last_state_of_a_day_and_the_json_files_of_the_states_that_stay(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "archive"
    take(store, target)
    days = iter([1, 1, 2, 2, 2])
    now_ms = itertools.count(2 * 10**12)
    monkeypatch.setattr(states, "new_backup_time", lambda names: next(now_ms) + next(days) * 86_400_000)
    turns = iter(range(5))

    def wait() -> bool:
        turn = next(turns)
        (store / "config/consumerOffset.json").write_bytes(b'{"offsetTable":{"orders@g":{0:%d}}}' % turn)
        put_more(store, 30)
        return turn < 4

    results = list(follow(store, target, runner=LocalRunner(2), wait=wait))
    listed = list_backups(target)
    ends = [one.end_offset for one in listed if isinstance(one, Manifest)]
    assert ends == [results[0].end_offset, results[2].end_offset, results[4].end_offset]
    named = {file.sha256 for one in listed if isinstance(one, Manifest) for file in one.config}
    assert {path.name for path in (target / "config").iterdir()} == named
    assert verify(target, runner=LocalRunner(1)).findings == ()


def test_who_follows_a_store_without_a_log_waits_for_it(tmp_path: Path) -> None:
    store, target = tmp_path / "store", tmp_path / "archive"
    (store / "config").mkdir(parents=True)
    (store / "commitlog").mkdir()
    turns = iter([True, False])

    def wait() -> bool:
        if not (is_due := next(turns)):
            return False
        assert not target.exists()
        store_with_sealed_files(store)
        return is_due

    assert [result.new_files > 0 for result in follow(store, target, runner=LocalRunner(1), wait=wait)] == [False, True]


def refused(store: Path, target: Path, kind: type[Exception], text: str) -> None:
    """Archive, and see it refused; nothing is changed."""
    before = tree(target) | {"lock": ""}
    with pytest.raises(kind, match=text):
        take(store, target)
    assert tree(target) | {"lock": ""} == before


def test_another_store_is_refused(store: Path, tmp_path: Path) -> None:
    take(store, tmp_path / "archive")
    other = store_with_sealed_files(tmp_path / "other")
    refused(other, tmp_path / "archive", ConfigError, "give another target")


def test_a_store_that_was_moved_goes_on(store: Path, tmp_path: Path) -> None:
    first = take(store, tmp_path / "archive")
    store.rename(tmp_path / "moved")
    assert take(tmp_path / "moved", tmp_path / "archive").files == first.files


def test_a_log_that_was_cut_and_has_grown_again_is_refused(store: Path, tmp_path: Path) -> None:
    made = tmp_path / "again"
    backup(store, tmp_path / "backups", runner=LocalRunner(1))
    take(store, tmp_path / "archive")
    restore(tmp_path / "backups", made, runner=LocalRunner(1), until_offset=FILE_SIZE + 10)
    refused(made, tmp_path / "archive", ConfigError, "was cut")
    put_more(made, 100)
    refused(made, tmp_path / "archive", ConfigError, "other records")


def test_a_gap_between_archive_and_log_is_refused(store: Path, tmp_path: Path) -> None:
    take(store, tmp_path / "archive")
    archived = list(log_files(store))
    put_more(store, 100)
    for name in archived:
        (store / "commitlog" / name).unlink()
    min((store / "commitlog").iterdir()).unlink()
    refused(store, tmp_path / "archive", ConfigError, "in neither")


def test_a_file_that_nobody_has_any_more_is_told_with_what_to_do(store: Path, tmp_path: Path) -> None:
    """As retention leaves it that deletes a file while the first archive runs."""
    take(store, tmp_path / "archive")
    for number in range(3):
        (store / f"commitlog/{number * FILE_SIZE:020}").unlink()
    for path in (tmp_path / "archive").glob(f"{FILE_SIZE:020}*"):
        path.unlink()
    shutil.rmtree(tmp_path / "archive/backups")
    text = "deleted there before it was archived.*give another target"
    refused(store, tmp_path / "archive", CorruptBackupError, text)
    findings = verify(tmp_path / "archive", runner=LocalRunner(1)).findings
    assert [f"{FILE_SIZE:020}" in finding for finding in findings] == [True, False]
    assert "to another target" in findings[0]


class Deleting(LocalRunner):
    """Retention deletes a file when the tasks are about to begin."""

    def __init__(self, path: Path) -> None:
        super().__init__(1)
        self.path = path

    def run(self, *arguments: Any, **options: Any) -> list[Any]:
        self.path.unlink()
        return super().run(*arguments, **options)


def test_a_file_that_retention_deletes_meanwhile_is_an_error_and_the_rest_is_archived_by_the_next_run(
    store: Path, tmp_path: Path
) -> None:
    path = min((store / "commitlog").iterdir())
    with pytest.raises(StoreError, match=f"{path}: retention has deleted it.*fileReservedTime"):
        archive(store, tmp_path / "archive", runner=Deleting(path))
    assert take(store, tmp_path / "archive").begin_offset == FILE_SIZE


def test_a_queue_that_was_empty_while_its_log_was_archived_goes_on_where_it_was(tmp_path: Path) -> None:
    """Its next messages begin a queue file, and retention has deleted the queue file before."""
    path, units = tmp_path / "store", SMALL["mapped_file_size_consume_queue"] // UNIT_SIZE
    with reput.MessageStore.open(path, files=FaultyFiles(), **OPTIONS) as opened:
        for topic, count in (("rare", units), ("orders", 200), ("rare", 1)):
            for _ in range(count):
                opened.put_message(reput.Message(topic, b"x" * 100))
        opened.wait_dispatched()
    rare = reput.read_log(path, ["commit_log_offset"], ["rare"]).read_all()["commit_log_offset"].to_pylist()
    for log_file in (path / "commitlog").iterdir():
        if int(log_file.name) <= rare[-2]:
            log_file.unlink()
    (path / f"consumequeue/rare/0/{0:020}").unlink()
    result = take(path, tmp_path / "archive")
    assert rare[-2] < result.begin_offset < result.end_offset <= rare[-1]
    make(tmp_path / "archive", tmp_path / "restored")
    with reput.MessageStore.open(tmp_path / "restored", files=FaultyFiles(), **OPTIONS) as opened:
        assert opened.put_message(reput.Message("rare", b"x")).queue_offset == units


def test_targets_that_are_none_are_refused(store: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter").touch()
    (tmp_path / "file").touch()
    refused(store, tmp_path / "mine", StoreFormatError, "not empty")
    refused(store, tmp_path / "file", StoreFormatError, "a file")
    refused(store, store / "archive", ConfigError, "inside the store")
    backup(store, tmp_path / "backups", runner=LocalRunner(1))
    refused(store, tmp_path / "backups", StoreFormatError, "not empty")
    with pytest.raises(ConfigError, match="folders so far"):
        archive(store, "s3://bucket/archive", runner=LocalRunner(1))
    take(store, tmp_path / "archive")
    with pytest.raises(StoreFormatError, match="no target of backups"):
        backup(store, tmp_path / "archive", runner=LocalRunner(1))
    with pytest.raises(StoreFormatError, match="no target of backups"):
        prune(tmp_path / "archive", keep_last=1)


def test_a_second_archiver_is_refused(store: Path, tmp_path: Path) -> None:
    take(store, tmp_path / "archive")
    lock = DISK.lock(str(tmp_path / "archive/lock"))
    try:
        with pytest.raises(StoreLockedError, match="another process archives"):
            take(store, tmp_path / "archive")
    finally:
        lock.release()


def test_a_damaged_manifest_ends_the_run_and_one_that_is_missing_is_written_again(store: Path, tmp_path: Path) -> None:
    take(store, tmp_path / "archive")
    manifest = tmp_path / "archive" / f"{FILE_SIZE:020}.json"
    flip(manifest, 100)
    refused(store, tmp_path / "archive", CorruptBackupError, "put it back")
    manifest.unlink()
    assert take(store, tmp_path / "archive").new_files == 1
    make(tmp_path / "archive", tmp_path / "restored")


def test_a_damaged_state_prevents_no_later_one(store: Path, tmp_path: Path) -> None:
    take(store, tmp_path / "archive")
    (state,) = (tmp_path / "archive" / "backups").iterdir()
    flip(state, 100)
    put_more(store, 60)
    later = take(store, tmp_path / "archive")
    newest = max((tmp_path / "archive" / "backups").iterdir())
    assert newest != state
    assert make(tmp_path / "archive", tmp_path / "restored", backup=newest.stem).end_offset == later.end_offset


def test_a_place_that_a_dictionary_does_not_have_is_damage(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parquet's reader believes the places of a page, and a kernel goes where they lead."""
    take(store, tmp_path / "archive")
    read = pq.ParquetFile.read_row_group

    def forged(self: pq.ParquetFile, number: int, **options: Any) -> pa.Table:
        table = read(self, number, **options)
        if "topic" in table.column_names:
            places = pa.array([1 << 29] * table.num_rows, pa.int32())
            column = pa.DictionaryArray.from_arrays(places, pa.array(["orders"]), safe=False)
            table = table.set_column(table.column_names.index("topic"), "topic", column)
        return table

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", forged)
    archived = read_archived_file(str(tmp_path / "archive"), 0, DISK)
    with pytest.raises(CorruptBackupError, match="it is no Parquet file"):
        restore_file(str(tmp_path / "archive"), archived, str(tmp_path / "file"), DISK)
