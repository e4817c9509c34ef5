"""Backups: of a store that is closed or written meanwhile, each with only what is new, and the stores made of them."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import reput
from reput.errors import (
    ConfigError,
    CorruptBackupError,
    CorruptRecordError,
    StoreError,
    StoreFormatError,
    StoreLockedError,
)
from reput.files import DISK, File, FileLayer
from reput.formats.backup import Manifest
from reput.formats.checkpoint import Checkpoint, encode_checkpoint
from reput.formats.sink_commit import SinkIntent, Sinks, StagedPart, decode_sinks, encode_sinks
from reput.jobs.backup import backup_job
from reput.jobs.backup.backup_job import Backup, backup, list_backups
from reput.jobs.backup.restore_job import Restored, restore
from reput.jobs.runner import LocalRunner
from tests.support.damage import flip, overwrite
from tests.support.faulty_files import FaultyFiles, fail_next
from tests.support.invariants import SMALL, check_store, contents, log_records
from tests.support.retained import RoomyFiles, age, check_retained
from tests.support.rocketmq import workload

FILE = 8192
OPTIONS: dict[str, Any] = SMALL | {"mapped_file_size_commit_log": FILE}
CONFIG = b'{\n\t"offsetTable":{"orders@g":{0:12,1:7\n\t\t}\n\t}\n}'


def put_orders(store: reput.MessageStore, count: int, name: str = "m") -> list[int]:
    """Put messages; their commit log offsets."""
    offsets = []
    for n in range(count):
        message = reput.Message("orders", b"x" * (n % 300), tags=f"t{n % 3}", keys=(f"{name}-{n}", "all"))
        offsets.append(store.put_message(message, queue_id=n % 4).commit_log_offset)
    return offsets


def take(store: Path, target: object, **options: Any) -> Backup:
    return backup(store, str(target), **({"runner": LocalRunner(2), "split_bytes": 1000} | options))


def make(target: object, store: Path, **options: Any) -> Restored:
    result = restore(str(target), store, **({"runner": LocalRunner(2)} | options))
    assert result.is_clean, result.findings
    return result


def opened(path: Path, files: FileLayer | None = None, **options: Any) -> reput.MessageStore:
    return reput.MessageStore.open(path, files=files or FaultyFiles(), **(OPTIONS | options))


def log_of(store: Path) -> bytes:
    """The bytes of the log, without the zeros behind it and the file made ahead."""
    return b"".join(path.read_bytes() for path in sorted((store / "commitlog").iterdir())).rstrip(b"\0")


def derived(store: Path) -> dict[str, str]:
    """The files of queues, by their paths, and of the index, by their order."""
    files = {
        name: digest for part in ("consumequeue", "batchconsumequeue") for name, digest in contents(store, part).items()
    }
    return files | {f"index/{number}": digest for number, digest in enumerate(contents(store, "index").values())}


@pytest.fixture(scope="module")
def closed_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both kinds of queues, several files of each kind, and files below config/; no two messages of one millisecond."""
    path = tmp_path_factory.mktemp("backup") / "store"
    options = {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 4096}
    seconds = itertools.count(time.time() - 60, 0.001)
    with patch("time.time", lambda: next(seconds)), opened(path, **options) as store:
        store.update_topic(workload.BATCH_TOPIC)
        workload.put(store, workload.inner_batches(60))
        put_orders(store, 60)
    (path / "config/consumerOffset.json").write_bytes(CONFIG)
    return path


@pytest.fixture
def store(closed_store: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(closed_store, tmp_path / "store"))


@pytest.fixture(params=["folder", "file://", "memory://"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A folder by its path and by an URL, and an object storage."""
    if request.param != "memory://":
        yield f"{request.param.removeprefix('folder')}{tmp_path}/target"
        return
    from fsspec.implementations.memory import MemoryFileSystem

    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]
    yield "memory://bucket/target"


def test_a_restored_store_is_the_one_that_was_backed_up(store: Path, target: str, tmp_path: Path) -> None:
    before = contents(store)
    result = take(store, target)
    assert contents(store) == before
    assert (result.begin_offset, result.reused_bytes, result.findings, result.left_out) == (0, 0, (), ())
    assert result.copied_bytes == result.end_offset == len(log_of(store))
    assert result.messages == len(log_records(store))
    restored = tmp_path / "restored"
    made = make(target, restored)
    assert (made.backup, made.end_offset, made.messages) == (result.name, result.end_offset, result.messages)
    assert log_of(restored) == log_of(store)
    assert derived(restored) == derived(store)
    assert contents(restored, "config") == {
        name: data
        for name, data in contents(store, "config").items()
        if not name.endswith((".bak", "reputShutdown.json"))
    }
    assert {*os.listdir(restored)} <= {*os.listdir(store)}
    assert not (tmp_path / "restored.unfinished").exists()
    with opened(restored) as again, opened(store) as original:
        assert not again.recovery.was_killed
        assert {(queue.topic, queue.queue_id): queue.max_offset for queue in again.queues()} == {
            (queue.topic, queue.queue_id): queue.max_offset for queue in original.queues()
        }
        put_orders(again, 5, "later")
    assert len(log_records(restored)) == result.messages + 5


def test_a_second_backup_copies_what_is_new_and_the_first_one_stays(store: Path, target: str, tmp_path: Path) -> None:
    first = take(store, target)
    with opened(store) as live:
        put_orders(live, 40, "second")
        second = take(store, target)
    third = take(store, target)
    assert (second.copied_bytes, second.reused_bytes) == (second.end_offset - first.end_offset, first.end_offset)
    assert second.messages == 40
    assert (third.copied_bytes, third.messages, third.end_offset) == (0, 0, second.end_offset)
    assert [one.name for one in list_backups(target) if isinstance(one, Manifest)] == [
        first.name,
        second.name,
        third.name,
    ]
    assert make(target, tmp_path / "old", backup=first.name).messages == first.messages
    assert make(target, tmp_path / "new").messages == first.messages + 40
    assert log_of(tmp_path / "new") == log_of(store)


def test_whatever_is_acknowledged_before_the_start_is_in_the_backup(tmp_path: Path) -> None:
    path, target = tmp_path / "store", tmp_path / "target"
    acknowledged: list[int] = []
    taken = []
    with opened(path, flush_disk_type="ASYNC_FLUSH", os_page_cache_busy_time_out_mills=60_000) as live:

        def write() -> None:
            for _ in range(20):
                acknowledged.extend(put_orders(live, 1))

        acknowledged.extend(put_orders(live, 30))
        live.wait_dispatched()
        for _ in range(3):
            writers = [threading.Thread(target=write) for _ in range(3)]
            for writer in writers:
                writer.start()
            before = list(acknowledged)
            taken.append((take(path, target), before))
            for writer in writers:
                writer.join()
    assert len(acknowledged) == 210
    for number, (result, before) in enumerate(taken):
        restored = tmp_path / str(number)
        assert make(target, restored, backup=result.name).messages >= len(before)
        assert {*before} <= {record.offset for record in check_store(restored, OPTIONS)}


def test_a_backup_waits_for_nobody_and_nobody_for_it(tmp_path: Path) -> None:
    with opened(tmp_path / "store") as live:
        put_orders(live, 30)
        with live._log._lock:  # a put that never ends
            result = take(tmp_path / "store", tmp_path / "target")
    assert result.messages == 30


def test_what_a_backup_has_is_synced_before_it_is_read(tmp_path: Path) -> None:
    files = FaultyFiles()
    with opened(tmp_path / "store") as live:
        put_orders(live, 90)
        take(tmp_path / "store", tmp_path / "target", files=files)
    log = [
        name
        for name in os.listdir(tmp_path / "store/commitlog")
        if any((tmp_path / "store/commitlog" / name).read_bytes())
    ]
    synced = [
        operation.number
        for operation in files.operations
        if operation.kind == "sync" and "/commitlog/" in operation.path
    ]
    copied = [
        operation.number for operation in files.operations if operation.kind == "write" and "/log/" in operation.path
    ]
    assert len(synced) == len(log) > 1
    assert max(synced) < min(copied)


def test_the_pieces_make_no_difference(store: Path, tmp_path: Path) -> None:
    for number, options in enumerate(
        (
            {"split_bytes": 500},
            {"split_bytes": 1 << 20},
            {"link": True},
            {"runner": LocalRunner(1), "split_bytes": 3000},
        )
    ):
        take(store, tmp_path / f"target-{number}", **options)
        make(tmp_path / f"target-{number}", tmp_path / f"restored-{number}")
        assert log_of(tmp_path / f"restored-{number}") == log_of(store)


def test_linked_files_are_the_full_ones_and_a_restored_store_has_its_own(store: Path, tmp_path: Path) -> None:
    result = take(store, tmp_path / "target", link=True)
    inodes = {path.stat().st_ino for path in (store / "commitlog").iterdir()}
    linked = [path for path in (tmp_path / "target/log").iterdir() if path.stat().st_ino in inodes]
    assert len(linked) == result.end_offset // FILE > 1
    make(tmp_path / "target", tmp_path / "restored")
    assert not inodes & {path.stat().st_ino for path in (tmp_path / "restored/commitlog").iterdir()}
    assert take(store, tmp_path / "target", link=True).copied_bytes == 0


def test_a_link_to_another_disk_is_refused_with_what_to_do(store: Path, tmp_path: Path) -> None:
    files = FaultyFiles(fail_next("link", errno.EXDEV))
    with pytest.raises(StoreError, match="cross-device link; without --link"):
        take(store, tmp_path / "target", link=True, files=files, runner=LocalRunner(1))
    assert take(store, tmp_path / "target").copied_bytes > 0


class Vanishing(FileLayer):
    """Retention beside a backup: the first log file goes as soon as its backup is about to read it."""

    def __init__(self, path: Path) -> None:
        self.path: str | None = str(path)

    def open(self, path: str, **options: Any) -> File:  # type: ignore[override]
        if self.path is not None and "/log/" in path:  # a first piece is being written
            os.unlink(self.path)
            self.path = None
        return super().open(path, **options)


def test_a_file_that_retention_deletes_meanwhile_is_where_the_backup_begins_later(store: Path, tmp_path: Path) -> None:
    first = store / "commitlog" / f"{0:020}"
    shutil.copytree(store, tmp_path / "older")
    result = take(store, tmp_path / "target", files=Vanishing(first), runner=LocalRunner(1), split_bytes=500)
    assert result.begin_offset == FILE
    make(tmp_path / "target", tmp_path / "restored")
    assert sorted(path.name for path in (tmp_path / "restored/commitlog").iterdir())[0] == f"{FILE:020}"
    records = log_records(tmp_path / "restored")
    assert records == [record for record in log_records(tmp_path / "older") if record.offset >= FILE]


def test_a_log_that_retention_has_emptied_goes_on_where_it_was(tmp_path: Path, target: str) -> None:
    path = tmp_path / "store"
    with opened(path, RoomyFiles()) as live:
        live.put_message(reput.Message("%RETRY%g", b"once"))
        put_orders(live, 3, "early")
        live.put_message(reput.Message("orders", b"x"), queue_id=9)
        for _ in range(12):
            live.put_message(reput.Message("later", b"x" * 1500))
        live.wait_dispatched()
        expected = {(queue.topic, queue.queue_id): queue.max_offset for queue in live.queues()}
    take(path, target)
    age(path, 2)
    with opened(path, RoomyFiles()) as live:
        assert live.delete_expired().commit_log_files
    result = take(path, target)
    assert result.begin_offset >= FILE
    assert result.emptied_queues == 5
    made = make(target, tmp_path / "restored")
    assert len(made.kept_queues) == 5
    with opened(tmp_path / "restored", RoomyFiles()) as again:
        assert {(queue.topic, queue.queue_id): queue.max_offset for queue in again.queues()} == expected
        check_retained(again, tmp_path / "restored")
        assert again.put_message(reput.Message("%RETRY%g", b"twice")).queue_offset == 1


@pytest.mark.parametrize("torn", [b"", CONFIG[:20], None])
def test_a_json_file_in_the_making_is_read_from_its_backup(store: Path, torn: bytes | None, tmp_path: Path) -> None:
    path = store / "config/consumerOffset.json"
    path.with_name("consumerOffset.json.bak").write_bytes(CONFIG)
    if torn is None:
        path.unlink()
    else:
        path.write_bytes(torn)
    assert take(store, tmp_path / "target").findings == ()
    make(tmp_path / "target", tmp_path / "restored")
    assert (tmp_path / "restored/config/consumerOffset.json").read_bytes() == CONFIG


class Consuming(FileLayer):
    """A consumer beside a backup: its offsets are stored as soon as the backup looks for the end of the log."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self, path: str, **options: Any) -> File:  # type: ignore[override]
        if "/commitlog/" in path:
            self.path.write_bytes(CONFIG.replace(b"0:12", b"0:99"))
        return super().open(path, **options)


def test_offsets_of_consumers_are_older_than_the_end_of_the_log(store: Path, tmp_path: Path) -> None:
    path = store / "config/consumerOffset.json"
    take(store, tmp_path / "target", files=Consuming(path))
    assert path.read_bytes() != CONFIG
    make(tmp_path / "target", tmp_path / "restored")
    assert (tmp_path / "restored/config/consumerOffset.json").read_bytes() == CONFIG


def test_a_json_file_that_cannot_be_read_is_copied_and_told(store: Path, tmp_path: Path) -> None:
    path = store / "config/consumerOffset.json"
    path.write_bytes(CONFIG[:20])
    (finding,) = take(store, tmp_path / "target").findings
    assert str(path) in finding
    result = restore(str(tmp_path / "target"), tmp_path / "restored", runner=LocalRunner(1))
    assert {(found.code, found.path) for found in result.findings} == {
        ("config-damaged", str(tmp_path / "restored/config/consumerOffset.json"))
    }
    assert not result.is_clean
    assert (tmp_path / "restored/config/consumerOffset.json").read_bytes() == CONFIG[:20]


def test_a_batch_of_a_sink_that_is_not_committed_is_not_in_the_backup(store: Path, tmp_path: Path) -> None:
    records = log_records(store)
    begin = records[-9].offset
    intent = SinkIntent(None, begin, 2, 1, False, (StagedPart("part", 9, 900, 0),))
    (store / "config/reputSinks.json").write_bytes(encode_sinks(Sinks(intent=intent, begun=1)))
    (store / "lock").write_bytes(b"sink")
    (store / "abort").touch()
    result = take(store, tmp_path / "target")
    assert (result.end_offset, result.messages) == (begin, len(records) - 9)
    make(tmp_path / "target", tmp_path / "restored")
    path = tmp_path / "restored/config/reputSinks.json"
    assert decode_sinks(path.read_bytes(), str(path)) == Sinks(begun=1)


def test_the_last_message_is_there_though_its_properties_end_as_if_they_were_torn(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with opened(path) as live:
        put_orders(live, 3)
        live.put_message(reput.Message("orders", b"last", properties={"a": "b"}))
    log = path / "commitlog" / f"{0:020}"
    end = len(log.read_bytes().rstrip(b"\0"))
    overwrite(log, end - 1, b"\0")  # of the properties, which no CRC covers
    assert take(path, tmp_path / "target").messages == 4


def test_an_empty_store_comes_back_empty(tmp_path: Path) -> None:
    with opened(tmp_path / "store"):
        pass
    assert take(tmp_path / "store", tmp_path / "target").end_offset == 0
    make(tmp_path / "target", tmp_path / "restored")
    with opened(tmp_path / "restored") as again:
        assert put_orders(again, 1) == [0]


def objects(target: Path) -> list[Path]:
    return sorted(path for part in ("log", "config") for path in (target / part).iterdir())


@pytest.mark.parametrize("kind", ["flipped", "cut", "longer", "missing"])
def test_a_damaged_object_is_named_and_no_store_comes_to_be(store: Path, kind: str, tmp_path: Path) -> None:
    target = tmp_path / "target"
    take(store, target)
    for number, path in enumerate((objects(target)[3], objects(target)[-1])):
        restored = tmp_path / f"restored{number}"  # one restore may have made the file of the other's object
        data = path.read_bytes()
        if kind == "missing":
            path.unlink()
        else:
            path.write_bytes(
                {"flipped": bytes([data[0] ^ 1]) + data[1:], "cut": data[:-1], "longer": data + b"x"}[kind]
            )
        with pytest.raises(CorruptBackupError, match="put it back from a copy of the target") as caught:
            make(target, restored)
        assert str(path) in str(caught.value)
        assert not restored.exists()
        path.write_bytes(data)
    make(target, restored)
    assert log_of(restored) == log_of(store)


def test_an_object_of_the_log_that_is_lost_is_copied_again(store: Path, tmp_path: Path) -> None:
    take(store, tmp_path / "target")
    lost = objects(tmp_path / "target")[2]
    size = lost.stat().st_size
    lost.unlink()
    assert take(store, tmp_path / "target").copied_bytes == size
    make(tmp_path / "target", tmp_path / "restored")


def test_a_damaged_manifest_is_told_and_stands_in_nobody_s_way(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    first, second = take(store, target), take(store, target)
    path = target / "backups" / f"{second.name}.json"
    path.write_bytes(path.read_bytes()[:-9])
    whole, damaged = list_backups(str(target))
    assert isinstance(whole, Manifest)
    assert whole.name == first.name
    assert str(path) in str(damaged)
    with pytest.raises(CorruptBackupError, match=f"take another backup; other backups .*: {first.name}$"):
        make(target, tmp_path / "restored")
    assert take(store, target).copied_bytes == 0
    make(target, tmp_path / "restored")


def test_a_damaged_log_is_refused_and_earlier_backups_stay(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    first = take(store, target)
    with opened(store) as live:
        put_orders(live, 60, "more")
    log = store / "commitlog" / f"{first.end_offset // FILE * FILE + FILE:020}"
    flip(log, 0, 0x40)  # of a record's size
    with pytest.raises(CorruptRecordError, match="there is no new backup"):
        take(store, target)
    assert len(list_backups(str(target))) == 1
    make(target, tmp_path / "restored")


def test_a_log_that_went_on_with_other_records_is_copied_beside_the_old_one(store: Path, tmp_path: Path) -> None:
    target, older = tmp_path / "target", shutil.copytree(store, tmp_path / "older")
    with opened(store) as live:
        put_orders(live, 20, "lost")
    first, lost = take(store, target), log_of(store)
    shutil.rmtree(store)
    shutil.copytree(older, store)
    with opened(store) as live:
        put_orders(live, 25, "other")
    second = take(store, target)
    assert 0 < second.copied_bytes < second.end_offset
    make(target, tmp_path / "1", backup=first.name)
    make(target, tmp_path / "2")
    assert (log_of(tmp_path / "1"), log_of(tmp_path / "2")) == (lost, log_of(store))


def test_the_next_backup_of_a_restored_store_goes_to_the_same_target(store: Path, tmp_path: Path) -> None:
    take(store, tmp_path / "target")
    make(tmp_path / "target", tmp_path / "restored")
    with opened(tmp_path / "restored") as live:
        put_orders(live, 3, "later")
    assert take(tmp_path / "restored", tmp_path / "target").messages == 3


def test_names_are_later_than_all_before_whatever_the_clock_says(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = []
    for now_ms in (1_700_000_000_999, 1_700_000_000_999, 5):
        monkeypatch.setattr(backup_job.time, "time_ns", lambda now=now_ms: now * 1_000_000)
        names.append(take(store, tmp_path / "target").name)
    assert names == ["20231114T221320999Z", "20231114T221321000Z", "20231114T221321001Z"]


def test_what_cannot_be_a_backup_is_refused_and_changes_nothing(store: Path, tmp_path: Path) -> None:
    foreign, other = tmp_path / "foreign", tmp_path / "other"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("my only copy")
    with opened(other) as live:
        put_orders(live, 3)
    take(store, tmp_path / "target")
    before = contents(tmp_path)
    for error, source, target, options, text in (
        (StoreFormatError, store, foreign, {}, "thesis.txt"),
        (StoreFormatError, store, foreign / "thesis.txt", {}, "a file"),
        (StoreFormatError, tmp_path / "nothing", tmp_path / "new", {}, "no such directory"),
        (ConfigError, store, store / "backups", {}, "inside the store"),
        (ConfigError, store, f"file://{store}/backups", {}, "inside the store"),
        (ConfigError, other, tmp_path / "target", {}, "give another target"),
        (ConfigError, store, "memory://bucket", {"link": True}, "leave --link out"),
    ):
        with pytest.raises(error, match=text):
            take(source, target, **options)
        assert contents(tmp_path) == before


@pytest.mark.parametrize("fault", ["foreign file", "damage"])
def test_a_store_that_is_refused_leaves_no_new_target(fault: str, tmp_path: Path) -> None:
    store, target = tmp_path / "one file", str(tmp_path / "target")
    with opened(store) as live:
        put_orders(live, 3)
    if fault == "foreign file":
        (store / "commitlog/notes").write_text("not a log file")
    else:
        flip(store / "commitlog" / f"{0:020}", 0, 0x40)  # of the first record's size
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StoreError):
        take(store, target)
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(StoreFormatError, match="no target of backups"):
        list_backups(target)


def test_what_was_copied_before_damage_is_found_stays_for_the_next_backup(store: Path, tmp_path: Path) -> None:
    flip(store / "commitlog" / f"{FILE:020}", 0, 0x40)
    with pytest.raises(CorruptRecordError, match="there is no new backup"):
        take(store, tmp_path / "target")
    flip(store / "commitlog" / f"{FILE:020}", 0, 0x40)
    assert take(store, tmp_path / "target").reused_bytes


def test_an_empty_folder_that_was_there_stays_where_a_store_is_refused(store: Path, tmp_path: Path) -> None:
    (store / "commitlog/notes").write_text("not a log file")
    (tmp_path / "target").mkdir()
    with pytest.raises(StoreFormatError, match="notes"):
        take(store, tmp_path / "target")
    assert list((tmp_path / "target").iterdir()) == []


def test_two_backups_do_not_go_to_one_folder_at_once(store: Path, tmp_path: Path) -> None:
    take(store, tmp_path / "target")
    lock = DISK.lock(str(tmp_path / "target/lock"))
    with pytest.raises(StoreLockedError, match="wait until it ends"):
        take(store, tmp_path / "target")
    lock.release()


def test_a_restore_refuses_what_it_cannot_make(store: Path, tmp_path: Path) -> None:
    target, full = tmp_path / "target", tmp_path / "full"
    name = take(store, target).name
    full.mkdir()
    (full / "x").touch()
    for error, source, path, options, text in (
        (StoreFormatError, target, full, {}, "not an empty folder"),
        (StoreFormatError, target, store, {}, "not an empty folder"),
        (StoreFormatError, store, tmp_path / "new", {}, "no target of backups"),
        (StoreFormatError, tmp_path / "nothing", tmp_path / "new", {}, "no target of backups"),
        (ConfigError, target, tmp_path / "new", {"backup": "20200101T000000000Z"}, name),
        (ConfigError, target, target / "new", {}, "inside the backups"),
    ):
        before = contents(tmp_path)
        with pytest.raises(error, match=text):
            make(source, path, **options)
        assert contents(tmp_path) == before
    (tmp_path / "empty").mkdir()
    make(target, tmp_path / "empty")


def test_a_target_without_a_finished_backup_says_so(store: Path, tmp_path: Path) -> None:
    name = take(store, tmp_path / "target").name
    (tmp_path / "target/backups" / f"{name}.json").unlink()
    assert list_backups(str(tmp_path / "target")) == []
    with pytest.raises(StoreFormatError, match="none was finished"):
        make(tmp_path / "target", tmp_path / "restored")


def test_what_no_backup_has_is_named(store: Path, tmp_path: Path) -> None:
    (store / "timerlog").mkdir()
    (store / "timerwheel").touch()
    (store / "config/timercheck").touch()
    assert take(store, tmp_path / "target").left_out == ("timerlog", "timerwheel", "config/timercheck")


def test_files_of_a_dispatcher_are_not_named(store: Path, tmp_path: Path) -> None:
    """They describe these queues, or are locks, or are removed again."""
    for name in ("Dispatch.json", "Dispatch.lock", "DispatchBatch.lock", "Dispatcher.lock"):
        (store / f"config/reput{name}").touch()
    (store / "config/reputDispatchWork").mkdir()
    assert take(store, tmp_path / "target").left_out == ()


def test_object_storage_without_fsspec_is_told(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(ConfigError, match=r"pip install 'reput\[lake\]'"):
        take(store, "memory://bucket/target")


def test_a_storage_that_cannot_be_reached_is_an_error_that_names_it(store: Path) -> None:
    with pytest.raises(StoreError, match=r"nonsense://bucket: cannot list"):
        take(store, "nonsense://bucket")


@pytest.mark.parametrize("sign", ["clean exit", "checkpoint", "backup"])
def test_a_log_that_lost_its_end_is_backed_up_and_that_is_told(store: Path, tmp_path: Path, sign: str) -> None:
    """Whoever knows of the end that is gone; once, for then the newest backup ends there, too."""
    target = str(tmp_path / "target")
    if sign == "backup":
        whole = take(store, target)
        assert whole.findings == ()
    if sign != "clean exit":
        (store / "config/reputShutdown.json").unlink()
    if sign != "checkpoint":
        (store / "checkpoint").write_bytes(b"")
    last = [file for file in sorted((store / "commitlog").iterdir()) if file.read_bytes().strip(b"\0")][-1]
    last.write_bytes(bytes(last.stat().st_size))
    short = take(store, target)
    known = {"clean exit": "the last clean exit left", "checkpoint": "the checkpoint says", "backup": "the backup "}
    (finding,) = short.findings
    assert f"the log ends at offset {short.end_offset}, but {known[sign]}" in finding
    assert len(take(store, target).findings) == (sign != "backup")
    if sign == "backup":
        make(target, tmp_path / "restored", backup=whole.name)
        assert len(log_of(tmp_path / "restored")) > short.end_offset - short.begin_offset


def test_a_clock_that_was_set_back_is_no_lost_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_700_000_000.0
    monkeypatch.setattr(time, "time", lambda: now)
    with opened(tmp_path / "store") as store:
        put_orders(store, 10)
        now -= 3600
        put_orders(store, 1)
    (tmp_path / "store/config/reputShutdown.json").unlink()
    (tmp_path / "store/checkpoint").write_bytes(encode_checkpoint(Checkpoint(int(now + 3600) * 1000, 0, 0)))
    assert take(tmp_path / "store", str(tmp_path / "target")).findings == ()


def test_a_store_with_a_damaged_file_of_topics_is_restored_with_its_sizes(store: Path, tmp_path: Path) -> None:
    damaged = (store / "config/topics.json").read_bytes()[:-20]
    for name in ("topics.json", "topics.json.bak"):
        (store / "config" / name).write_bytes(damaged)
    taken = take(store, str(tmp_path / "target"))
    assert len(taken.findings) == 1
    (manifest,) = list_backups(str(tmp_path / "target"))
    assert isinstance(manifest, Manifest)
    assert manifest.sizes["mapped_file_size_consume_queue"] == OPTIONS["mapped_file_size_consume_queue"]


def test_sizes_that_no_file_tells_yet_are_asked_for(store: Path, tmp_path: Path) -> None:
    """Of a store whose dispatch has not come to its first message, or that has lost its queues."""
    for name in ("consumequeue", "batchconsumequeue"):
        shutil.rmtree(store / name)
    take(store, tmp_path / "target")
    with pytest.raises(ConfigError, match="not tell mappedFileSizeConsumeQueue, maxHashSlotNum, maxIndexNum when"):
        make(tmp_path / "target", tmp_path / "restored")
    assert not (tmp_path / "restored").exists()
