"""Repair: what it would do about each damage, and that doing it loses nothing whole and ends with a clean audit."""

from __future__ import annotations

import os
import random
import shutil
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import reput
from reput.errors import ConfigError, StoreFormatError, StoreLockedError
from reput.files import FileLayer
from reput.formats.metadata import ConsumerOffsets, decode_metadata, encode_metadata
from reput.formats.pop_messages import REVIVE_GROUP
from reput.jobs.audit.job import AuditResult, audit
from reput.jobs.repair.repair_job import RepairResult, repair
from reput.jobs.runner import LocalRunner
from tests.support.damage import cut, overwrite
from tests.support.damaged_orders import (
    UNITS,
    checkpoint_ahead,
    checkpoint_gone,
    checkpoint_short,
    file_among_topics,
    first_log_file_gone,
    folder_for_file,
    index_cut,
    last,
    last_file_cut,
    last_file_cut_and_checkpoint_ahead,
    last_files_zeroed,
    last_message_zeroed,
    last_record_broken,
    last_records_zeroed,
    log_file_gone,
    middle_file_cut,
    middle_record_broken,
    offsets_ahead,
    offsets_broken,
    queue_file_gone,
    records_of,
    same_after_a_kill,
    same_after_a_kill_of_which_nothing_else_tells,
    several,
    short_file_of_a_strange_offset,
    shutdown_garbled,
    strange_file,
    topics_gone,
    topics_with_backup,
    torn_tail,
    units_zeroed,
    wrong_type_of_queue,
    zeros_cut_off,
)
from tests.support.faulty_files import FaultyFiles, abandon
from tests.support.invariants import contents
from tests.support.orders import SIZES, closed_orders, put
from tests.support.shares import sampled

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


def fix(path: Path, **options: Any) -> RepairResult:
    return repair(path, **({"apply": True, "runner": LocalRunner(1)} | options))


def look(path: Path, **options: Any) -> RepairResult:
    return fix(path, apply=False, **options)


@pytest.fixture(autouse=True)
def no_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No power is cut here, and they take most of the time."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda descriptor: None)


@pytest.fixture(scope="module")
def closed_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return closed_orders(tmp_path_factory.mktemp("repair") / "store")


@pytest.fixture
def store(closed_store: Path, tmp_path: Path) -> Path:
    """The same; each test has its own."""
    return Path(shutil.copytree(closed_store, tmp_path / "store"))


CASES: dict[Callable[[Path], None], tuple[str, ...]] = {
    torn_tail: ("cut-tail",),
    last_record_broken: ("cut-tail", "rebuild"),
    last_records_zeroed: ("cut-tail", "lower-offsets", "rebuild"),
    last_message_zeroed: ("rebuild",),
    last_file_cut: ("grow", "cut-tail", "rebuild"),
    zeros_cut_off: ("grow",),
    last_file_cut_and_checkpoint_ahead: ("grow", "cut-tail", "reset-checkpoint", "rebuild"),
    last_files_zeroed: ("reset-checkpoint", "lower-offsets", "rebuild"),
    same_after_a_kill: ("reset-checkpoint", "lower-offsets"),
    file_among_topics: ("rebuild",),
    strange_file: ("move-away",),
    folder_for_file: ("move-away",),
    short_file_of_a_strange_offset: ("move-away", "rebuild"),
    topics_with_backup: ("restore-backup",),
    topics_gone: ("make-topics",),
    offsets_broken: ("set-aside",),
    offsets_ahead: ("lower-offsets",),
    shutdown_garbled: ("set-aside",),
    checkpoint_ahead: ("reset-checkpoint",),
    checkpoint_short: ("reset-checkpoint",),
    checkpoint_gone: ("reset-checkpoint",),
    units_zeroed: ("rebuild",),
    queue_file_gone: ("rebuild",),
    index_cut: ("rebuild",),
    wrong_type_of_queue: ("rebuild",),
    several: ("set-aside", "make-topics", "move-away", "cut-tail", "reset-checkpoint", "rebuild"),
}


def actions(result: RepairResult) -> tuple[str, ...]:
    return tuple(step.action.value for step in result.steps)


@sampled(4)
@pytest.mark.parametrize("damage", CASES, ids=lambda damage: damage.__name__)
def test_a_damaged_store_is_mended_and_every_original_is_beside_it(damage: Callable[[Path], None], store: Path) -> None:
    damage(store)
    before = contents(store)
    planned = look(store)
    assert contents(store) == before
    assert (actions(planned), planned.is_fine, planned.needs_salvage) == (CASES[damage], False, False)
    assert planned.remaining == ()
    result = fix(store)
    assert result.is_fine, result.findings
    assert result.steps == planned.steps
    kept = set(contents(store).values())
    gone = {name for name, digest in before.items() if digest not in kept and not name.startswith("commitlog/")}
    assert gone == set()
    again = look(store)
    assert (again.steps, again.is_fine) == ((), True)
    whole = records_of(store)
    with reput.MessageStore.open(store, files=FaultyFiles(), **SIZES) as opened:
        got = {
            message.commit_log_offset: message.body
            for queue_id in range(4)
            for begin in range(opened.max_offset("orders", queue_id))
            for message in opened.get_message("orders", queue_id, begin, 1).messages()
        }
        assert got == whole
        opened.put_message(reput.Message("orders", b"later"))
    assert audit(store, runner=LocalRunner(1)).is_clean


def test_what_is_cut_off_is_kept_at_its_own_position_and_what_is_lost_is_told(store: Path) -> None:
    last_record_broken(store)
    file, end = last(store)
    data = file.read_bytes()
    planned = look(store)
    step = planned.steps[0]
    used = len(data.rstrip(b"\0"))
    assert (step.position, planned.lost_messages, 0 < step.lost_bytes <= used - end) == (end, 1, True)
    result = fix(store)
    kept = store / "commitlog.broken" / file.name
    assert str(kept) in result.kept
    assert kept.read_bytes() == bytes(end) + data[end:]
    assert file.read_bytes() == data[:end] + bytes(len(data) - end)


@pytest.mark.parametrize(
    ("damage", "lost"),
    [
        (last_records_zeroed, 4),
        (last_message_zeroed, 1),
        (last_files_zeroed, 98),
        (same_after_a_kill, 98),
        (same_after_a_kill_of_which_nothing_else_tells, 98),
    ],
)
def test_messages_that_are_zeros_now_are_counted_by_the_queues_that_know_them(
    damage: Callable[[Path], None], lost: int, store: Path
) -> None:
    before = len(records_of(store))
    damage(store)
    result = fix(store)
    assert result.lost_messages == before - len(records_of(store)) == lost


def test_messages_before_a_log_that_begins_late_are_lost(store: Path) -> None:
    before = len(records_of(store))
    first_log_file_gone(store)
    assert fix(store, file_reserved_time=0).lost_messages == 0
    result = fix(store)
    assert (result.is_fine, actions(result)) == (True, ("rebuild",))
    assert result.lost_messages == before - len(records_of(store)) == 51


def test_where_no_file_tells_its_size_the_plan_says_which_it_takes_and_set_gives_another(store: Path) -> None:
    (store / "abort").touch()
    for file in store.glob("consumequeue/*/*/*"):
        cut(file, 203)
    (step,) = look(store).steps
    assert "in queue files of 6000000 bytes and index files of 50 slots and 150 entries" in step.text
    assert fix(store, mapped_file_size_consume_queue=400).is_fine
    with reput.MessageStore.open(store, files=FaultyFiles(), **SIZES) as opened:
        assert opened.max_offset("orders", 3) == 50


def test_settings_that_are_lost_are_made_from_what_is_there(store: Path) -> None:
    topics_gone(store)
    fix(store)
    with reput.MessageStore.open(store, files=FaultyFiles(), **SIZES) as opened:
        topic = opened.topics["orders"]
        assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (4, 4, 6)


def test_groups_that_stand_behind_the_end_of_a_queue_are_told_the_next_message(store: Path) -> None:
    offsets_ahead(store)
    found = [(finding.code, finding.topic, finding.queue_offset, finding.count) for finding in look(store).findings]
    assert sorted(found) == [("consumer-offset-ahead", "orders", 50, 5), ("consumer-offset-unused", "refunds", 0, 9)]
    fix(store)
    offsets = decode_metadata(ConsumerOffsets, (store / "config/consumerOffset.json").read_bytes())
    assert offsets.offset_table == {"orders@shop": {0: 50, 3: 20}, "refunds@shop": {0: 9}}


@pytest.mark.parametrize("units_left", [10, 4, 0])
def test_groups_behind_the_end_of_a_batch_queue_are_told_its_next_message(units_left: int, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with reput.MessageStore.open(store, **SIZES) as opened:
        opened.update_topic(reput.TopicConfig("batches", 1, 1, attributes={"queue.type": "BatchCQ"}))
        for _ in range(10):
            items = [reput.Message("batches", b"x") for _ in range(3)]
            opened.put_batch(reput.MessageExtBatch.of(items, unique_key="U"))
        opened.wait_dispatched()
    overwrite(store / f"batchconsumequeue/batches/0/{0:020}", units_left * 46, bytes((10 - units_left) * 46))
    path = store / "config/consumerOffset.json"
    path.write_bytes(encode_metadata(ConsumerOffsets({"batches@a": {0: 30}, "batches@b": {0: 32}})))
    (found,) = (finding for finding in look(store).findings if finding.code == "consumer-offset-ahead")
    assert (found.topic, found.queue_offset, found.count) == ("batches", 30, 2)
    assert fix(store).is_fine
    assert decode_metadata(ConsumerOffsets, path.read_bytes()).offset_table == {
        "batches@a": {0: 30}, "batches@b": {0: 30}
    }  # fmt: skip


def test_the_offset_of_a_revive_queue_is_that_of_its_last_check_point(store: Path) -> None:
    path = store / "config/consumerOffset.json"
    path.write_bytes(encode_metadata(ConsumerOffsets({f"orders@{REVIVE_GROUP}": {0: 50, 3: 49}})))
    (finding,) = look(store).findings
    assert (finding.code, finding.queue_id, finding.count) == ("consumer-offset-ahead", 0, 1)
    fix(store)
    assert decode_metadata(ConsumerOffsets, path.read_bytes()).offset_table == {
        f"orders@{REVIVE_GROUP}": {0: 49, 3: 49}
    }


@pytest.mark.parametrize("gone", ["checkpoint", "consumequeue"])
def test_a_store_that_had_a_log_and_has_none_is_not_clean_and_left_alone(gone: str, store: Path) -> None:
    """As a mount point is whose disk is not mounted."""
    for file in (store / "commitlog").iterdir():
        file.unlink()
    (store / gone).rename(store.parent / gone)
    before = contents(store)
    result = fix(store)
    assert ("log-missing", str(store / "commitlog")) in {(one.code, one.path) for one in result.remaining}
    assert (result.steps, result.is_fine) == ((), False)
    assert {name: digest for name, digest in contents(store).items() if name != "lock"} == before


@pytest.mark.parametrize("damage", [middle_record_broken, log_file_gone, middle_file_cut])
def test_a_log_with_whole_records_behind_damage_is_left_alone_and_the_rest_is_mended(
    damage: Callable[[Path], None], store: Path
) -> None:
    damage(store)
    topics_with_backup(store)
    units_zeroed(store)
    before = contents(store)
    result = fix(store)
    assert (result.needs_salvage, result.is_fine, actions(result)) == (True, False, ("restore-backup",))
    assert {finding.code for finding in result.remaining} & {"record-damaged", "log-file-missing", "file-size"}
    after = contents(store)
    for folder in ("commitlog", "consumequeue", "index", "checkpoint"):
        assert {n: d for n, d in after.items() if n.startswith(folder)} == {
            name: digest for name, digest in before.items() if name.startswith(folder)
        }


@pytest.mark.parametrize("damaged", [(-3, -1), (-5, -3, -1), (-3, -2)])
def test_a_whole_record_among_damaged_ones_at_the_logs_end_is_not_cut_off(
    damaged: tuple[int, ...], store: Path
) -> None:
    rows = reput.read_log(store, ["commit_log_offset"]).read_all()["commit_log_offset"].to_pylist()
    for number in damaged:
        file = max(path for path in (store / "commitlog").iterdir() if int(path.name) <= rows[number])
        overwrite(file, rows[number] - int(file.name) + 4, bytes(4))  # its magic code
    before = contents(store / "commitlog")
    result = fix(store)
    assert (result.needs_salvage, actions(result)) == (True, ())
    assert contents(store / "commitlog") == before


@pytest.mark.parametrize("make", [os.mkfifo, partial(os.symlink, "/proc/self/mem")])
@pytest.mark.parametrize(
    ("folder", "action"), [("commitlog", "move-away"), ("consumequeue/orders/1", "rebuild"), ("index", "rebuild")]
)
def test_what_is_no_file_goes(store: Path, folder: str, action: str, make: Callable[[Path], None]) -> None:
    *_, newest = sorted((store / folder).iterdir())
    step = 1 if folder == "index" else newest.stat().st_size
    foreign = newest.with_name(f"{int(newest.name) + step:0{len(newest.name)}d}")
    make(foreign)
    result = fix(store)
    assert (actions(result), result.is_fine) == ((action,), True)
    assert not os.path.lexists(foreign)
    reput.MessageStore.open(store, files=FaultyFiles(), **SIZES).close()


@pytest.mark.parametrize("name", ["00000000000000012345", "00000000000000049152.old"])
def test_a_file_of_the_log_with_a_wrong_name_is_not_moved_away(store: Path, name: str) -> None:
    last(store)[0].rename(store / "commitlog" / name)
    before = contents(store)
    result = fix(store)
    assert "foreign-file" in {finding.code for finding in result.remaining}
    assert {name for name in contents(store) if name.startswith("commitlog")} == {
        name for name in before if name.startswith("commitlog")
    }


@pytest.mark.parametrize("target", ["elsewhere", "nowhere"])
def test_what_a_link_of_the_log_leads_to_stays_and_so_does_a_link_to_a_disk_that_is_not_there(
    store: Path, target: str
) -> None:
    file = store / "commitlog/00000000000000000000"
    file.rename(store / "commitlog/elsewhere" if target == "elsewhere" else store.with_name("unmounted"))
    file.symlink_to(target)
    names = {path.name for path in (store / "commitlog").iterdir()}
    result = fix(store)
    assert (result.needs_salvage, result.is_fine) == (True, False)
    assert {path.name for path in (store / "commitlog").iterdir()} == names


@pytest.mark.parametrize("begin", [0, 16384])
def test_files_that_have_changed_their_names_are_told_with_those_that_their_records_say(
    begin: int, store: Path
) -> None:
    first, second, aside = (store / "commitlog" / name for name in (f"{0:020d}", f"{16384:020d}", "0.rsync"))
    first.rename(aside)
    if begin:
        second.rename(first)
        aside.rename(second)
    texts = {Path(finding.path): finding.text for finding in look(store).remaining}
    told = "it has the records of {}: give it that name back, unless it is a copy".format
    assert all(
        texts[path].endswith(told(name))
        for path, name in (((first, second.name), (second, first.name)) if begin else ((aside, first.name),))
    )


def test_a_copy_of_a_log_file_is_moved_away(store: Path) -> None:
    file = last(store)[0]
    shutil.copy(file, f"{file}.copy")
    assert actions(fix(store)) == ("move-away",)
    assert (store / "commitlog.broken" / f"{file.name}.copy").read_bytes() == file.read_bytes()


class TwoDisks(FileLayer):
    """The commit log's folder is a mount point."""

    def _disk(self, path: str) -> bool:
        return "/commitlog/" in path + "/"

    def identity(self, path: str) -> tuple[int, int]:
        return int(self._disk(path)), super().identity(path)[1]

    def rename(self, source: str, target: str) -> None:
        assert self._disk(source) == self._disk(target), "OSError: EXDEV"
        super().rename(source, target)


def test_what_is_moved_away_from_a_mount_point_is_copied_and_a_folder_there_is_left(store: Path) -> None:
    strange_file(store)
    result = fix(store, files=TwoDisks())
    assert (result.is_fine, result.kept) == (True, (str(store / "commitlog.broken/README"),))
    assert (store / "commitlog.broken/README").read_bytes() == b"hello"
    folder_for_file(store)
    with pytest.raises(StoreFormatError, match="on a disk of its own, which a repair cannot move; move it away"):
        fix(store, files=TwoDisks())


def test_a_whole_store_has_nothing_to_be_done(store: Path) -> None:
    before = contents(store)
    assert look(store).is_fine
    result = fix(store)
    assert (result.is_fine, result.steps, result.kept) == (True, (), ())
    assert contents(store) == before


def test_a_second_original_of_a_name_gets_a_number_and_the_first_one_stays(store: Path) -> None:
    checkpoint_short(store)
    fix(store)
    first = (store / "checkpoint.broken").read_bytes()
    (store / "checkpoint").write_bytes(b"other")
    result = fix(store)
    assert result.kept == (str(store / "checkpoint.broken.2"),)
    assert (store / "checkpoint.broken").read_bytes() == first


def test_a_store_that_is_open_is_looked_at_and_not_mended(store: Path) -> None:
    with reput.MessageStore.open(store, files=FaultyFiles(), **SIZES) as opened:
        put(opened, 20)
        assert look(store).was_killed
        before = contents(store)
        with pytest.raises(StoreLockedError):
            fix(store)
        assert contents(store) == before


def test_what_an_open_store_puts_behind_what_was_audited_is_not_lost(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with reput.MessageStore.open(store, files=FaultyFiles(), **SIZES) as opened:

        def audit_then_put(*args: Any, **options: Any) -> AuditResult:
            result = audit(*args, **options)
            put(opened)  # more than the file has room for, so that new files follow
            return result

        monkeypatch.setattr("reput.jobs.repair.repair_job.audit", audit_then_put)
        planned = look(store)
        assert (planned.was_killed, planned.lost_messages) == (True, 0)


def test_the_store_of_a_killed_writer_stays_one_that_recovers(tmp_path: Path) -> None:
    files = FaultyFiles()
    opened = reput.MessageStore.open(tmp_path / "store", files=files, **SIZES)
    put(opened)
    abandon(opened, files)
    torn_tail(tmp_path / "store")
    units_zeroed(tmp_path / "store")
    assert fix(tmp_path / "store").is_fine
    assert (tmp_path / "store/abort").exists()
    with reput.MessageStore.open(tmp_path / "store", files=FaultyFiles(), **SIZES) as again:
        assert again.recovery.was_killed
        assert [again.max_offset("orders", queue_id) for queue_id in range(4)] == [50] * 4


def test_what_a_rebuild_would_refuse_is_refused_before_anything_changes(store: Path, tmp_path: Path) -> None:
    units_zeroed(store)
    checkpoint_short(store)
    (store / "index").rename(tmp_path / "elsewhere")
    (store / "index").symlink_to(tmp_path / "elsewhere")
    before = contents(store)
    with pytest.raises(StoreFormatError, match="leads to another disk or folder"):
        fix(store)
    assert contents(store) == before


def test_a_broker_without_an_index_gets_none(store: Path) -> None:
    shutil.rmtree(store / "index")
    units_zeroed(store)
    assert fix(store, message_index_enable=False).is_fine
    assert not (store / "index").exists()


def test_settings_that_rocketmq_does_not_allow_are_refused(store: Path) -> None:
    units_zeroed(store)
    with pytest.raises(ConfigError):
        fix(store, message_delay_level="nonsense")


def _garbled_units(store: Path, position: int, count: int) -> None:
    overwrite(store / UNITS, position, random.Random(position).randbytes(20 * count))


def _unit_behind_the_end(store: Path, position: int) -> None:
    """A unit that leads to where the next message will be; it is of the size of a record."""
    file, end = last(store)
    overwrite(store / UNITS, position, struct.pack(">qiq", int(file.name) + end, 300, 0))


def _queue_behind_its_end(store: Path) -> None:
    """Strange bytes in the room of units to come."""
    file = sorted((store / "consumequeue/orders/0").iterdir())[-1]
    overwrite(file, len(file.read_bytes().rstrip(b"\0")) // 20 * 20 + 20, random.Random(1).randbytes(100))


@pytest.mark.parametrize(
    "damage",
    [
        *(partial(_garbled_units, position=position, count=count) for position, count in ((0, 10), (100, 3), (380, 1))),
        *(partial(_unit_behind_the_end, position=position) for position in (0, 200, 380)),
        _queue_behind_its_end,
    ],
)
def test_damaged_units_are_no_witnesses_of_lost_messages(damage: Callable[[Path], None], store: Path) -> None:
    before = records_of(store)
    damage(store)
    assert audit(store, runner=LocalRunner(1)).lost_messages == 0
    planned = look(store)
    assert planned.lost_messages == 0
    contradictions = [step.text for step in planned.steps if "unit-wrong" in step.codes]
    assert all("no message is lost" in text for text in contradictions)
    result = fix(store)
    assert (result.is_fine, result.lost_messages, records_of(store)) == (True, 0, before)


def test_damaged_units_beside_a_loss_do_not_count_as_lost(store: Path) -> None:
    last_records_zeroed(store)
    _garbled_units(store, 0, 10)
    _queue_behind_its_end(store)
    result = fix(store)
    assert (result.is_fine, result.lost_messages) == (True, 4)
    assert "no message is lost" not in "".join(step.text for step in result.steps)


def test_a_rebuild_for_another_reason_makes_index_files_that_do_not_tell_their_sizes(store: Path) -> None:
    _garbled_units(store, 0, 10)
    for file in (store / "index").iterdir():
        overwrite(file, 0, random.Random(2).randbytes(200))
    planned = look(store)
    assert "index-geometry" in {finding.code for finding in planned.findings}
    assert planned.remaining == ()
    assert "--set maxHashSlotNum=N --set maxIndexNum=N" in planned.steps[-1].text
    assert fix(store).is_fine
