"""Retention: which files go, what stays, what the readers see meanwhile, and who refuses puts on a full disk."""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reput
from reput.config.message_store import MessageStoreConfig
from reput.errors import ConfigError, StoreError, StoreFullError, StoreStateError
from reput.files.layer import Entry
from reput.formats.message_ext import MessageExt
from reput.store.log.commit_log import CommitLog
from reput.store.retention_plan import Candidate, DeleteReason, DiskLevel, disk_level, is_due, plan_deletion
from tests.support.faulty_files import FaultyFiles, Operation, fail_next, no_objection
from tests.support.fixtures import OpenStore
from tests.support.invariants import SMALL
from tests.support.keyed_messages import put_keyed
from tests.support.retained import age, check_retained, files_in

HOUR_MS = 3_600_000
NOW_MS = 1000 * HOUR_MS
CONFIG = MessageStoreConfig()
#: No waits between deletions, and no file is made ahead meanwhile.
FAST = {
    "delete_commit_log_files_interval": 0,
    "delete_consume_queue_files_interval": 0,
    "flush_interval_consume_queue": 60_000,
}


class Disk(FaultyFiles):
    """A disk that is as full as a test says; `deleted` is set with each file that is removed."""

    def __init__(self, used_percent: int = 20) -> None:
        super().__init__()
        self.used_percent = used_percent
        self.deleted = threading.Event()
        self.asked = threading.Semaphore(0)

    def disk_used_percent(self, path: str) -> int:
        self.asked.release()
        return self.used_percent

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self.deleted.set()

    def wait_for_runs(self, runs: int) -> None:
        """Return after so many whole runs of the thread from now on: each asks twice (judge, plan) for two folders."""
        while self.asked.acquire(blocking=False):
            pass
        for _ in range(4 * (runs + 1)):
            assert self.asked.acquire(timeout=60)


# -- the plan


@pytest.mark.parametrize(
    ("used", "level"),
    [
        (0, DiskLevel.FINE),
        (75, DiskLevel.FINE),
        (76, DiskLevel.RECLAIM),
        (85, DiskLevel.RECLAIM),
        (86, DiskLevel.CLEAN_FORCIBLY),
        (90, DiskLevel.CLEAN_FORCIBLY),
        (91, DiskLevel.WARNING),
        (100, DiskLevel.WARNING),
    ],
)
def test_the_disk_has_the_steps_of_rocketmq(used: int, level: DiskLevel) -> None:
    assert disk_level(used, CONFIG) is level


@pytest.mark.parametrize(
    ("key", "given_value", "counts_as", "level"),
    [
        ("disk_space_warning_level_ratio", 99, 90, DiskLevel.WARNING),
        ("disk_space_warning_level_ratio", 1, 35, DiskLevel.WARNING),
        ("disk_space_clean_forcibly_ratio", 99, 85, DiskLevel.CLEAN_FORCIBLY),
        ("disk_space_clean_forcibly_ratio", 1, 30, DiskLevel.CLEAN_FORCIBLY),
        ("disk_max_used_space_ratio", 1, 10, DiskLevel.RECLAIM),
    ],
)
def test_ratios_are_bounded_as_rocketmq_bounds_them(
    key: str, given_value: int, counts_as: int, level: DiskLevel
) -> None:
    config = MessageStoreConfig(**{key: given_value})  # type: ignore[arg-type]
    assert disk_level(counts_as + 1, config) is level
    assert disk_level(counts_as, config) < level


@pytest.mark.parametrize(
    ("delete_when", "hour", "level", "due"),
    [
        ("04", 4, DiskLevel.FINE, True),
        ("04", 5, DiskLevel.FINE, False),
        ("4;16", 16, DiskLevel.FINE, True),
        ("00;", 0, DiskLevel.FINE, True),
        ("04", 5, DiskLevel.RECLAIM, True),
    ],
)
def test_a_run_is_due_at_its_hours_and_when_the_disk_is_full(
    delete_when: str, hour: int, level: DiskLevel, due: bool
) -> None:
    assert is_due(level, hour, MessageStoreConfig(delete_when=delete_when)) is due


@pytest.mark.parametrize("delete_when", ["24", "x", ";", "04,05", "-1"])
def test_hours_that_no_day_has_are_refused(delete_when: str) -> None:
    with pytest.raises(ConfigError, match=r"deleteWhen=.*00 to 23"):
        MessageStoreConfig(delete_when=delete_when)


@given(
    ages_h=st.lists(st.integers(0, 200), max_size=30),
    keep_from=st.integers(0, 31 * 4096),
    level=st.sampled_from(DiskLevel),
    reserved_h=st.integers(0, 150),
    forcibly=st.booleans(),
    max_files=st.integers(1, 40),
)
def test_nothing_is_planned_that_may_not_go_and_nothing_left_out_that_may(
    ages_h: list[int], keep_from: int, level: DiskLevel, reserved_h: int, forcibly: bool, max_files: int
) -> None:
    config = MessageStoreConfig(file_reserved_time=reserved_h, clean_file_forcibly_enable=forcibly)
    candidates = [Candidate(f"{i}", 4096 * (i + 1), 4096, NOW_MS - hours * HOUR_MS) for i, hours in enumerate(ages_h)]
    planned = plan_deletion(
        candidates, keep_from=keep_from, level=level, now_ms=NOW_MS, max_files=max_files, config=config
    )
    assert [file.path for file in planned] == [str(i) for i in range(len(planned))], "oldest first, without a gap"
    at_once = forcibly and level >= DiskLevel.CLEAN_FORCIBLY
    may_go = [
        one.end_offset <= keep_from and (hours >= reserved_h or at_once)
        for one, hours in zip(candidates, ages_h, strict=True)
    ]
    assert all(may_go[: len(planned)])
    assert len(planned) == max_files or not any(may_go[len(planned) : len(planned) + 1])
    for file, hours in zip(planned, ages_h, strict=False):
        assert file.reason is (DeleteReason.EXPIRED if hours >= reserved_h else DeleteReason.DISK)


# -- the act


def test_delete_expired_deletes_expired_files_and_what_was_derived_from_them(open_store: OpenStore, path: Path) -> None:
    store = open_store(files=Disk(), **FAST)
    put_keyed(store, 60, 3)
    before = files_in(path)
    age(path, 4)
    planned = store.delete_expired(dry_run=True)
    assert files_in(path) == before
    report = store.delete_expired()
    assert [file.path for file in report.commit_log_files] == [f"{path}/commitlog/{4096 * i:020d}" for i in range(4)]
    assert {file.reason for file in report.commit_log_files} == {DeleteReason.EXPIRED}
    assert planned.commit_log_files == report.commit_log_files
    gone = [file.path for file in report.commit_log_files] + report.consume_queue_files + report.index_files
    assert report.consume_queue_files
    assert report.index_files
    assert files_in(path) == before - {Path(name) for name in gone}
    assert report.bytes_freed == 4 * 4096 + 160 * len(report.consume_queue_files) + (40 + 28 + 400) * len(
        report.index_files
    )
    assert store.min_commit_log_offset == 4 * 4096
    check_retained(store, path)
    assert store.delete_expired() == report._replace(
        commit_log_files=[], consume_queue_files=[], index_files=[], bytes_freed=0
    )
    store.close()
    again = open_store()
    assert (again.recovery.was_killed, again.recovery.dispatched_records) == (False, 0)
    check_retained(again, path)


def test_the_last_file_stays_and_a_queue_keeps_its_next_offset(open_store: OpenStore, path: Path) -> None:
    store = open_store(files=Disk(), **FAST)
    store.put_message(reput.Message("early", b"x"))
    put_keyed(store, 60, 3)
    age(path, 100)
    store.delete_expired()
    assert len(list((path / "commitlog").iterdir())) == 1
    assert (store.min_offset("early", 0), store.max_offset("early", 0)) == (1, 1)
    assert store.get_message("early", 0, 0).status.name == "OFFSET_TOO_SMALL"
    store.close()
    with open_store() as again:
        assert again.put_message(reput.Message("early", b"y")).queue_offset == 1
        again.wait_dispatched()
        check_retained(again, path)


def test_what_is_not_dispatched_or_not_flushed_stays(open_store: OpenStore, path: Path) -> None:
    files = Disk(91)
    store = open_store(files=files, flush_disk_type="ASYNC_FLUSH", flush_interval_commit_log=2**31 - 1, **FAST)
    for number in range(60):
        store.put_message(reput.Message("t", bytes(300), keys=[f"k{number}"]))
    store.wait_dispatched()
    assert store.flushed_offset == 0
    age(path, 100)
    assert store.delete_expired().commit_log_files == []
    held = threading.Event()
    files.judge = lambda operation: held.wait(60) and None if operation.kind == "write_runs" else None
    store._writer.flush._sync_if(0)  # type: ignore[attr-defined]
    store.put_message(reput.Message("t", b"x"))
    assert store.dispatch_behind_bytes > 0
    dispatched = store.max_commit_log_offset - store.dispatch_behind_bytes
    report = store.delete_expired(dry_run=True)
    assert len(report.commit_log_files) == min(dispatched, store.flushed_offset) // 4096
    held.set()


def test_a_file_that_is_still_written_to_is_young() -> None:
    """File age is the modification time: what is stored through a map must move it, which tmpfs does not do."""
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp") as path,  # on a disk, where other tests keep their files in memory
        reput.MessageStore.open(path, mapped_file_size_commit_log=65536) as store,
    ):
        store.put_message(reput.Message("t", b"x"))
        first = Path(path) / "commitlog" / f"{0:020d}"
        os.utime(first, (1, 1))
        store.put_message(reput.Message("t", b"y"))
        assert first.stat().st_mtime > time.time() - 60


def test_nothing_is_ever_deleted_by_itself(open_store: OpenStore, path: Path) -> None:
    disk = Disk(99)
    before = set(threading.enumerate())  # a store of another test may be left in the middle of a kill
    store = open_store(files=disk, clean_resource_interval=1, delete_when=";".join(map(str, range(24))), **FAST)
    put_keyed(store, 60, 3)
    age(path, 100)
    threads = {thread.name for thread in set(threading.enumerate()) - before}
    assert "reput-dispatch" in threads
    assert "reput-retention" not in threads
    store.put_message(reput.Message("t", b"a full disk is found out by the retention alone"))
    assert not disk.deleted.is_set()


def test_the_thread_deletes_at_its_hours_at_most_a_batch_a_run(open_store: OpenStore, path: Path) -> None:
    disk = Disk()
    hours = ";".join(map(str, range(24)))
    store = open_store(
        files=disk, retention=True, clean_resource_interval=1, delete_when=hours, delete_file_batch_max=2, **FAST
    )
    put_keyed(store, 60, 3)
    age(path, 5)
    disk.wait_for_runs(4)
    assert store.min_commit_log_offset == 5 * 4096
    check_retained(store, path)


def test_a_full_disk_refuses_puts_until_it_has_space_again(open_store: OpenStore, path: Path) -> None:
    disk = Disk(80)
    store = open_store(
        files=disk,
        retention=True,
        clean_resource_interval=1,
        clean_file_forcibly_enable=False,
        delete_when="04",
        **FAST,
    )
    put_keyed(store, 20, 3)
    disk.wait_for_runs(1)
    store.put_message(reput.Message("t", b"80 % is no reason to refuse"))
    disk.used_percent = 91
    disk.wait_for_runs(1)
    for _ in range(3):
        with pytest.raises(StoreFullError, match=r"91 % full.*diskSpaceWarningLevelRatio=90.*free some") as refused:
            store.put_message(reput.Message("t", b"x"))
        assert refused.value.retriable
        assert len(refused.traceback) < 12, "one error object for all, without a trace for each"
    disk.used_percent = 86  # still refused: no coming and going
    disk.wait_for_runs(1)
    with pytest.raises(StoreFullError):
        store.put_message(reput.Message("t", b"x"))
    disk.used_percent = 85
    disk.wait_for_runs(1)
    store.put_message(reput.Message("t", b"x"))
    assert store.min_commit_log_offset == 0, "nothing has expired"


def test_a_disk_that_is_too_full_takes_young_files_too_and_the_log_says_so(
    open_store: OpenStore, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(files=Disk(86), delete_file_batch_max=1, **FAST)
    put_keyed(store, 60, 3)
    planned = store.delete_expired(dry_run=True)
    assert {file.reason for file in planned.commit_log_files} == {DeleteReason.DISK}
    store.delete_expired()
    assert len(list((path / "commitlog").iterdir())) <= 2  # the last one, and one made ahead
    check_retained(store, path)
    (line,) = [record for record in caplog.records if "were deleted" in record.getMessage()]
    assert line.levelname == "WARNING"
    gone = f"the messages before log offset {store.min_commit_log_offset} are gone, the last of them stored until 20"
    assert (
        f"{path}: the disk is 86 % full, so {len(planned.commit_log_files)} log files were deleted" in line.getMessage()
    )
    assert gone in line.getMessage()


def test_a_file_that_cannot_be_deleted_is_told_and_tried_again(open_store: OpenStore, path: Path) -> None:
    files = Disk()
    store = open_store(files=files, **FAST)
    put_keyed(store, 60, 3)
    age(path, 3)
    for part in ("commitlog", "consumequeue", "index"):
        files.judge = fail_next("unlink", part=part)
        with pytest.raises(StoreError, match=f"{part}.*cannot"):
            store.delete_expired()
        check_retained(store, path)
        if part == "commitlog":
            assert store.min_commit_log_offset == 0
    files.judge = no_objection
    assert store.delete_expired().index_files
    check_retained(store, path)


def test_a_directory_sync_that_fails_after_an_unlink_leaves_a_store_that_goes_on(
    open_store: OpenStore, path: Path
) -> None:
    files = Disk()
    store = open_store(files=files, **FAST)
    put_keyed(store, 60, 3)
    age(path, 3)
    for part in ("commitlog", "consumequeue", "index"):
        files.judge = fail_next("sync_directory", part=part)
        with pytest.raises(StoreError, match="cannot"):
            store.delete_expired()
        if part == "commitlog":  # the queues wait until it is known to be gone
            assert store.get_message("t", 0, 0).status.name == "FOUND"
            assert store.min_commit_log_offset == 4096
        else:
            check_retained(store, path)
    files.judge = no_objection
    store.delete_expired()
    assert store.min_commit_log_offset == 3 * 4096
    check_retained(store, path)


def test_views_and_results_stay_valid_when_their_files_are_deleted(open_store: OpenStore, path: Path) -> None:
    store = open_store(files=Disk(), **FAST)
    put_keyed(store, 60, 3)
    got = store.get_message("t", 0, 0)
    found = store.query_message("t", "k0")
    lazy = store.query_messages("t", ["k1", "k59"])  # makes a message when it is asked for
    age(path, 100)
    assert store.delete_expired().commit_log_files
    assert [message.body for message in got.messages()] == [bytes(300)] * len(got)
    assert found[0].body == bytes(300)
    assert store.query_message("t", "k0") == []
    assert store.look_message_by_offset(0) is None
    store.close()
    assert got.to_arrow(["body"]).num_rows == len(got)
    shutil.rmtree(path)
    for key in ("k1", "k59"):
        assert [message.keys for message in lazy[key]] == [(key,)]


def test_deleted_bytes_are_given_back_once_nobody_reads_them(open_store: OpenStore, path: Path) -> None:
    store = open_store(files=Disk(), **FAST)
    put_keyed(store, 60, 3)
    store.query_message("t", "k0")  # maps every file
    age(path, 100)
    store.delete_expired()

    held = Path("/proc/self/maps").read_text().splitlines()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            held.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    assert [name for name in held if str(path) in name and "(deleted)" in name] == []


def test_a_get_whose_file_is_deleted_meanwhile_gives_its_messages(
    open_store: OpenStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(files=Disk(), **FAST)
    put_keyed(store, 60, 3)
    age(path, 3)
    end = store._log.confirm_offset

    def delete_and_say(log: CommitLog) -> int:
        monkeypatch.undo()
        assert len(store.delete_expired().commit_log_files) == 3
        return end

    monkeypatch.setattr(CommitLog, "confirm_offset", property(delete_and_say))
    messages = store.get_message("t", 0, 0).messages()
    assert store.min_commit_log_offset == 3 * 4096
    assert messages[0].commit_log_offset < 4096
    assert [message.queue_offset for message in messages] == [*range(len(messages))]


def test_who_has_found_a_file_reads_it_although_it_was_never_mapped_before(open_store: OpenStore, path: Path) -> None:
    store = open_store(files=Disk(), **FAST)
    put_keyed(store, 60, 3)
    store.close()
    age(path, 3)
    store = open_store(files=Disk(), **FAST)
    file = store._log.queue.find(0)
    assert file is not None
    assert store.delete_expired().commit_log_files
    assert not Path(file.path).exists()
    assert MessageExt(file.view, 0).keys == ("k0",)


@pytest.mark.parametrize("many", [False, True])
def test_a_query_whose_files_are_deleted_while_it_runs_finds_no_other_message(
    open_store: OpenStore, path: Path, many: bool
) -> None:
    store = open_store(files=Disk(), **FAST)
    put_keyed(store, 60, 3)
    age(path, 3)
    log_files, maps = store._log.queue, store._log.queue.maps

    def mapped_and_deleted(*offsets: object) -> object:
        log_files.maps = maps
        found = maps(*offsets)
        assert len(store.delete_expired().commit_log_files) == 3
        return found

    log_files.maps = mapped_and_deleted
    keys = [f"k{number}" for number in range(60)] if many else ["k55"]
    found = store.query_messages("t", keys) if many else {"k55": store.query_message("t", "k55")}
    assert len(found["k55"]) == 1
    for key, messages in found.items():
        assert [message.keys for message in messages] in ([], [(key,)])


def test_readers_of_every_kind_go_on_beside_a_deletion(open_store: OpenStore, path: Path) -> None:
    """What they get is what they asked for, or nothing; never another record, an error of Python's, or a crash."""
    store = open_store(files=Disk(86), delete_file_batch_max=1, **FAST)
    put_keyed(store, 30, 3)
    errors: list[BaseException] = []
    ended = threading.Event()
    statuses: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        try:
            while not ended.is_set():
                for queue_id in range(3):
                    offset = max(store.min_offset("t", queue_id) - 3, 0)
                    result = store.get_message("t", queue_id, offset)
                    statuses.put(result.status.name)
                    for message in result.messages():
                        assert (message.topic, message.queue_id) == ("t", queue_id)
                        assert message.queue_offset >= offset
                    store.offset_by_time("t", queue_id, int(time.time() * 1000) - 5)
                keys = [f"k{number}" for number in range(0, 400, 7)]
                for key, messages in store.query_messages("t", keys).items():
                    assert all(message.keys == (key,) for message in messages)
                for message in store.query_message("t", "k21"):
                    assert message.keys == ("k21",)
                message = store.look_message_by_offset(store.min_commit_log_offset)
                assert message is None or message.topic == "t"
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    while statuses.get(timeout=60) != "FOUND":  # they read before anything is deleted, too
        pass
    for number in range(30, 400):
        store.put_message(reput.Message("t", bytes(300), keys=[f"k{number}"]), number % 3)
        if number % 20 == 0:
            store.wait_dispatched()
            store.delete_expired()
    ended.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert store.min_commit_log_offset > 20 * 4096
    check_retained(store, path)


def test_a_reader_of_its_own_process_is_told_that_retention_took_the_file(open_store: OpenStore, path: Path) -> None:
    store = open_store(files=Disk(), **FAST)
    put_keyed(store, 60, 3)
    store.close()
    reader = reput.MessageStore.open(path, read_only=True)
    store = open_store(files=Disk(), **FAST)
    batches = reput.read_log(path)
    age(path, 100)
    assert reader.delete_expired(dry_run=True).commit_log_files
    with pytest.raises(StoreStateError, match="read-only"):
        reader.delete_expired()
    store.delete_expired()
    with pytest.raises(StoreError, match=r"commitlog/0{20}: it was there .* retention has deleted it"):
        batches.read_all()
    with pytest.raises(StoreError, match=r"consumequeue/t/0/0{20}: .* retention has deleted it"):
        reader.get_message("t", 0, 0)
    with pytest.raises(StoreError, match=r"commitlog/0{20}: .* retention has deleted it"):
        reader.look_message_by_offset(0)
    assert reput.read_log(path).read_all().num_rows > 0


READING = "reading"


class Listing(FaultyFiles):
    """A disk on which something happens right behind the first listing of a folder, or before queues are read."""

    def __init__(self, folder: Path | str, then: Callable[[], object]) -> None:
        super().__init__()
        self.folder, self.then, self.has_happened = str(folder), then, False

    def list_directory(self, path: str) -> list[Entry]:
        entries = super().list_directory(path)
        if path == self.folder:
            self._happen()
        return entries

    def read_runs(self, *arguments):  # type: ignore[no-untyped-def]
        if self.folder == READING:
            self._happen()
        return super().read_runs(*arguments)

    @property
    def open_paths(self) -> list[str]:
        return [file.path for file in self._files if file.fileno() >= 0]

    def _happen(self) -> None:
        if not self.has_happened:
            self.has_happened = True
            self.then()


@pytest.mark.parametrize("folder", ["commitlog", "consumequeue/t/0", "consumequeue/t/2", "index", READING])
def test_a_reader_opens_although_retention_takes_what_it_has_just_listed(
    open_store: OpenStore, path: Path, folder: str
) -> None:
    store = open_store(files=Disk(), **FAST)
    put_keyed(store, 60, 3)
    age(path, 100)
    files = Listing(READING if folder == READING else path / folder, store.delete_expired)
    with reput.MessageStore.open(path, read_only=True, files=files) as reader:
        assert files.has_happened
        assert reader.min_commit_log_offset == store.min_commit_log_offset > 0
        for queue in reader.queues():
            assert queue.max_offset == store.max_offset("t", queue.queue_id)
            assert len(reader.get_message("t", queue.queue_id, queue.max_offset - 1).messages()) == 1
    assert files.open_paths == []


def test_a_closed_store_deletes_nothing(open_store: OpenStore, path: Path) -> None:
    store = open_store(files=Disk(), **FAST)
    put_keyed(store, 60, 3)
    age(path, 100)
    before = files_in(path)
    store.close()
    with pytest.raises(StoreStateError):
        store.delete_expired()
    with pytest.raises(StoreStateError):
        store._writer.cleaning.delete_expired(manual=True)
    assert {file for file in files_in(path) if file.parent.name == "commitlog"} <= before


def test_no_reader_waits_for_the_removal_of_a_file_of_its_queue(tmp_path: Path) -> None:
    came, go_on = threading.Event(), threading.Event()

    def judge(operation: Operation) -> None:
        if operation.kind == "unlink" and "/consumequeue/" in operation.path:
            came.set()
            go_on.wait(60)

    files = FaultyFiles(judge)
    with reput.MessageStore.open(tmp_path / "s", files=files, **FAST, **SMALL) as store:
        put_keyed(store, 60, 3)
        age(tmp_path / "s", 3)
        deleting = threading.Thread(target=store.delete_expired)
        deleting.start()
        assert came.wait(60)
        for queue in store._queues.queues():
            queue.drop_mappings()
            result = store.get_message("t", queue.queue_id, queue.max_offset - 1)
            assert [message.body for message in result.messages()] == [bytes(300)]
        assert deleting.is_alive(), "the file is still being removed"
        go_on.set()
        deleting.join(60)
        check_retained(store, tmp_path / "s")
