"""A process or a machine that ends, and a disk that fails, at every operation of a sink's commits: each batch is in the
log once and whole, or not at all."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import reput
from reput.errors import StoreError
from reput.files import DISK, FileLayer
from reput.formats.sink_commit import STAGING, SinkBatch
from reput.jobs.audit.job import audit
from reput.jobs.repair.salvage_job import salvage
from reput.jobs.runner import LocalRunner
from reput.log import StoreDirectory
from reput.log.plans.plan import PlanOptions, plan_read
from reput.log.plans.plan_parts import read_part
from reput.log.resume_points import ResumePoint, TailLimit
from reput.log.selection import make_selection
from reput.log.sink_commits import SinkWatch, read_sinks
from reput.log.tail import LogTail
from reput.store.sinks.commit import check_store as check_opens
from reput.store.sinks.commit import put_staged
from reput.store.sinks.import_sink import ImportSink
from tests.support.damage import flip
from tests.support.faulty_files import Crash, FaultyFiles, Operation, crash_at, fail_at
from tests.support.invariants import SMALL, check_rebuild, check_store, log_records
from tests.support.lives.sink import (
    BATCHES,
    CONFIG,
    check_next_life,
    count_operations,
    keys_in,
    keys_of,
    killed_in_the_middle,
    live,
    rows_of,
    stage,
    write_batches,
)
from tests.support.shares import Share, in_shares, sampled


@pytest.fixture(autouse=True)
def frequent_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Syncs beside the append, as a batch of gigabytes has them."""
    monkeypatch.setattr("reput.store.sinks.commit._SYNC_BYTES", 4000)


def test_batches_are_the_log_that_put_arrow_writes(tmp_path: Path) -> None:
    commits = write_batches(tmp_path / "sink", DISK)
    with reput.MessageStore.open(tmp_path / "put", **SMALL) as store:
        for batch, parts in enumerate(BATCHES):
            for part, rows in enumerate(parts):
                store.put_arrow(rows_of(batch, part, rows))
    records, others = check_store(tmp_path / "sink"), check_store(tmp_path / "put")
    assigned = {"store_timestamp", "born_timestamp"}
    assert [(r.offset, {k: v for k, v in r.row.items() if k not in assigned}) for r in records] == [
        (r.offset, {k: v for k, v in r.row.items() if k not in assigned}) for r in others
    ]
    check_rebuild(tmp_path / "sink", tmp_path / "rebuilt")
    for batch, commit in enumerate(commits):
        inside = [r for r in records if commit.begin_offset <= r.offset < commit.end_offset]
        assert keys_in(inside) == keys_of([batch])
        assert {r.row["store_timestamp"] for r in inside} == ({commit.store_timestamp} if inside else set())
        assert commit.rows == len(inside)


@in_shares(6)
def test_a_crash_or_a_power_cut_at_any_operation_leaves_whole_batches_and_each_comes_once(
    tmp_path: Path, share: Share
) -> None:
    for number in share.of(range(0, count_operations(tmp_path / "healthy"), 3)):
        path, without_power = tmp_path / f"crash-{number}", tmp_path / f"cut-{number}"
        files, _ = live(path, crash_at(number))
        files.cut_power(path, without_power)
        for left in (without_power, path):
            check_next_life(left)
            shutil.rmtree(left)


@in_shares(4)
def test_a_start_that_is_killed_too_settles_the_batch_all_the_same(tmp_path: Path, share: Share) -> None:
    last = count_operations(tmp_path / "healthy")
    for number in share.of(range(3, last, 29)):
        first = tmp_path / f"crash-{number}"
        live(first, crash_at(number))
        second, ended = 0, False
        while not ended:
            path = tmp_path / f"{number}-{second}"
            shutil.copytree(first, path)
            files = FaultyFiles(crash_at(second))
            try:
                check_opens(str(path), CONFIG, files, lock_timeout_ms=0)
                ended = True
            except Crash:
                pass
            files.abandon()
            check_next_life(path)
            shutil.rmtree(path)
            second += 7
        shutil.rmtree(first)


def test_what_is_salvaged_is_without_the_batch_of_a_killed_sink_and_the_sink_writes_it_again(tmp_path: Path) -> None:
    damaged, new = tmp_path / "damaged", tmp_path / "new"
    killed_in_the_middle(damaged)
    begin = SinkWatch(DISK, str(damaged)).begin_offset
    flip(damaged / "commitlog/00000000000000000000", 0)  # the size of the first record
    result = salvage(damaged, new, apply=True, runner=LocalRunner(1))
    first, last = result.losses
    assert (result.is_fine, first.begin, last.begin, "killed" in last.reason) == (True, 0, begin, True)
    whole = keys_of((0, 1))[1:]
    assert keys_in(log_records(new))[1:] == whole
    assert audit(new, runner=LocalRunner(1)).is_clean
    check_opens(str(new), CONFIG, DISK, lock_timeout_ms=0)
    for batch_id in (1, 2):  # the last one that is committed comes again, too
        put_staged(str(new), CONFIG, DISK, stage(new, 1), SinkBatch("shop", batch_id, "query"))
    assert keys_in(log_records(new))[1:] == whole + keys_of((1,))


def test_a_damaged_record_right_before_the_batch_of_a_killed_sink_is_a_loss_of_its_own(tmp_path: Path) -> None:
    damaged, new = tmp_path / "damaged", tmp_path / "new"
    killed_in_the_middle(damaged)
    begin, records = SinkWatch(DISK, str(damaged)).begin_offset, log_records(damaged)
    last_begin = max(record.offset for record in records if record.offset < begin)
    file = max(path for path in (damaged / "commitlog").iterdir() if int(path.name) <= last_begin)
    flip(file, last_begin - int(file.name) + 4)  # its magic code
    result = salvage(damaged, new, apply=True, runner=LocalRunner(1))
    lost, batch = result.losses
    assert (lost.begin, lost.end, lost.messages, "killed" in lost.reason) == (last_begin, begin, 1, False)
    assert (batch.begin, "killed" in batch.reason, result.lost_messages) == (begin, True, 1)
    assert result.is_fine
    assert [record.offset for record in log_records(new)] == [one.offset for one in records if one.offset < last_begin]


def planned_keys(path: Path, topics: tuple[str, ...] | None, **options: Any) -> list[str]:
    """The first keys of the messages that a planned read gives."""
    selection = make_selection(columns=["keys"], topics=topics, store="")
    plan = plan_read(StoreDirectory(path), selection, PlanOptions(**{"processors": 2, **options}))
    return [keys[0] for part in plan.parts for rows in read_part(part, selection, DISK) for keys in rows[0].to_pylist()]


def test_readers_see_nothing_of_a_batch_that_is_being_appended_or_was_when_its_writer_was_killed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store"
    killed_in_the_middle(path)
    whole = keys_of((0, 1))
    assert [keys[0] for keys in reput.read_log(path, ["keys"]).read_all()["keys"].to_pylist()] == whole
    assert planned_keys(path, None, prune=False) == planned_keys(path, None, split_bytes=600) == whole
    of_topic = reput.read_log(path, ["keys"], topics=["orders"]).read_all()["keys"].to_pylist()
    assert planned_keys(path, ("orders",)) == [keys[0] for keys in of_topic], "with what the queues tell"
    end = log_records(path)[len(whole)].offset
    tail = LogTail(StoreDirectory(path))
    assert tail.latest().offset == tail.since(2**60).offset == tail.advance(ResumePoint(0)).offset == end
    assert tail.advance(ResumePoint(end)).offset == end
    assert tail.advance(ResumePoint(0), TailLimit(max_rows=5)).offset == log_records(path)[5].offset
    with reput.MessageStore.open(path, read_only=True, **SMALL) as store:
        assert sum(queue.max_offset for queue in store.queues()) == len(whole)
    with reput.MessageStore.open(path, **SMALL):
        pass
    assert keys_in(check_store(path)) == whole


def test_a_copy_without_the_times_of_its_files_is_settled_as_the_store_itself(tmp_path: Path) -> None:
    killed_in_the_middle(tmp_path / "store")
    copy, whole = tmp_path / "copy", keys_of((0, 1))
    shutil.copytree(tmp_path / "store", copy, copy_function=shutil.copyfile)
    for name in ("config/reputSinks.json", "lock", "abort"):  # whatever comes last
        (copy / name).touch()
        assert [keys[0] for keys in reput.read_log(copy, ["keys"]).read_all()["keys"].to_pylist()] == whole
    with reput.MessageStore.open(copy, **SMALL):
        pass
    assert keys_in(check_store(copy)) == whole


def test_a_start_that_is_refused_or_under_way_shows_readers_nothing_of_the_batch_that_it_has_not_settled(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store"
    killed_in_the_middle(path)
    whole = keys_of((0, 1))
    end = log_records(path)[len(whole)].offset

    def check_readers() -> None:
        assert LogTail(StoreDirectory(path)).latest().offset == end
        assert [keys[0] for keys in reput.read_log(path, ["keys"]).read_all()["keys"].to_pylist()] == whole

    with pytest.raises(StoreError, match="mappedFileSizeCommitLog"):
        reput.MessageStore.open(path, **SMALL | {"mapped_file_size_commit_log": 1 << 20})
    check_readers()

    def judge(operation: Operation) -> None:
        if operation.kind != "lock":
            check_readers()

    with reput.MessageStore.open(path, files=FaultyFiles(judge), **SMALL):
        check_readers()


def opened_by_another(path: Path, messages: int, *, is_killed: bool) -> list[str]:
    """Another program, which knows nothing of intents, opens the store and appends; returns its messages' keys."""
    sinks = path / "config" / "reputSinks.json"
    told = sinks.read_bytes()
    sinks.unlink()
    (path / "lock").write_bytes(b"lock")
    keys = [f"broker-{n}" for n in range(messages)]
    with reput.MessageStore.open(path, **SMALL) as store:
        for key in keys:
            store.put_message(reput.Message("orders", b"a broker's", keys=[key]))
    sinks.write_bytes(told)
    (path / "config" / "reputShutdown.json").unlink()
    if is_killed:
        (path / "abort").write_bytes(b"7")
    return keys


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("messages", [0, 1, 60])
def test_a_batch_that_cannot_be_taken_back_is_completed_when_it_is_written_again(
    tmp_path: Path, messages: int, is_killed: bool
) -> None:
    path = tmp_path / "store"
    killed_in_the_middle(path)
    files = len(list((path / "commitlog").iterdir()))
    theirs = opened_by_another(path, messages, is_killed=is_killed)
    if messages == 60:
        assert len(list((path / "commitlog").iterdir())) > files + 1, "a start begins in a file behind the batch"
    before = keys_in(log_records(path))
    begun = len(before) - len(keys_of((0, 1))) - len(theirs)
    assert begun
    assert before[len(before) - len(theirs) :] == theirs
    assert reput.read_log(path).read_all().num_rows == len(before)
    with reput.MessageStore.open(path, **SMALL):
        pass
    assert keys_in(check_store(path)) == before
    assert read_sinks(DISK, str(path)).broken["shop"].rows == begun
    for _ in range(2):
        done = put_staged(str(path), CONFIG, DISK, [], SinkBatch("shop", 2, "query"))
    assert keys_in(check_store(path)) == before + keys_of((1,))[begun:]
    assert done.rows == len(keys_of((1,))) - begun
    assert not read_sinks(DISK, str(path)).broken


def test_a_broken_batch_without_its_staged_files_says_what_to_do_and_that_helps(tmp_path: Path) -> None:
    path = tmp_path / "store"
    killed_in_the_middle(path)
    opened_by_another(path, 1, is_killed=False)
    before = keys_in(check_store(path))
    parts = stage(path, 1)
    shutil.rmtree(path / STAGING)
    sinks = path / "config" / "reputSinks.json"
    for _ in range(2):
        with pytest.raises(StoreError, match=r"batch 2 of sink 'shop' .* first 40 of 66 .* take 'shop' out of"):
            put_staged(str(path), CONFIG, DISK, parts, SinkBatch("shop", 2, "query"))
        assert keys_in(check_store(path)) == before
    told = json.loads(sinks.read_text())
    del told["broken"]["shop"], told["crc32"]
    sinks.write_text(json.dumps(told))
    done = put_staged(str(path), CONFIG, DISK, stage(path, 1), SinkBatch("shop", 2, "query"))
    assert (done.rows, keys_in(check_store(path))) == (66, before + keys_of((1,)))


def test_what_a_broken_batch_of_an_import_needs_is_not_staged_over(tmp_path: Path) -> None:
    path, writes = tmp_path / "store", []

    def judge(operation: Operation) -> None:
        if operation.kind == "write" and "commitlog" in operation.path:
            writes.append(operation)
        if len(writes) > 1:
            raise Crash

    def take_in(files: FileLayer) -> None:
        with ImportSink(path, CONFIG, "lake", files=files) as sink:
            sink.commit("lake", 0, [sink.stage("0-0", iter([rows_of(0, 0, 60)]), 0, "rows")])

    files = FaultyFiles(judge)
    with pytest.raises(Crash):
        take_in(files)
    files.abandon()
    theirs = opened_by_another(path, 1, is_killed=False)
    begun = len(log_records(path)) - len(theirs)
    take_in(DISK)
    keys = [f"0-0-{n}" for n in range(60)]
    assert keys_in(check_store(path)) == keys[:begun] + theirs + keys[begun:]
    assert 0 < begun < 60


@sampled(2)
@in_shares(3)
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_an_operation_that_fails_once_leaves_whole_batches_and_each_comes_once(
    tmp_path: Path, code: int, share: Share
) -> None:
    for number in share.of(range(code % 6, count_operations(tmp_path / "healthy"), 6)):
        path = tmp_path / f"fault-{number}"
        files, errors = live(path, fail_at(number, code))
        for error in errors:
            assert isinstance(error, StoreError), (files.operations[number], error)
        check_next_life(path)
        shutil.rmtree(path)
