"""Salvage: a new store of all that is whole, at the same offsets, whatever is wrong with the log."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import reput
from lab.campaign import repairs
from reput.errors import ConfigError, StoreFormatError
from reput.formats.message_ext import MessageExt
from reput.formats.metadata import ConsumerOffsets, TopicConfig, decode_metadata, encode_metadata
from reput.formats.record import decode_record
from reput.jobs.audit.job import audit
from reput.jobs.backup.backup_job import backup
from reput.jobs.diff.job import diff
from reput.jobs.lake.export_job import export
from reput.jobs.rebuild.job import rebuild
from reput.jobs.repair import salvage_job, salvage_log
from reput.jobs.repair.salvage_job import SalvageResult, salvage
from reput.jobs.repair.salvage_log import Loss, NewLogFile, Placeholder, plan_log, scan_file, write_log_file
from reput.jobs.runner import LocalRunner
from reput.jobs.statistics.job import statistics
from reput.kernels.records.placeholders import PLACEHOLDER_TOPIC
from reput.kernels.records.record_scan import ScanLevel
from reput.log.directory import LogFile
from reput.log.scan import OnDamage, scan_split
from reput.log.splits import Split
from tests.support.commands import run_reput
from tests.support.damage import cut, flip, overwrite
from tests.support.damaged_orders import last
from tests.support.faulty_files import FaultyFiles
from tests.support.forged_log import forged_log
from tests.support.invariants import contents, everything_of
from tests.support.kills import killed
from tests.support.orders import SIZES, log_with_crcs, put
from tests.support.shares import Share, in_shares, sampled

MIDDLE = "commitlog/00000000000000016384"
GEOMETRY = {name: SIZES[name] for name in ("max_hash_slot_num", "max_index_num")}


#: What a scan of each file can read, by commit log offset.
whole_records = partial(repairs.whole_records, file_size=16384)


def save(store: Path, **options: Any) -> SalvageResult:
    target = store.with_name("salvaged")
    return salvage(store, target, **({"apply": True, "runner": LocalRunner(1)} | options))


@pytest.fixture(autouse=True)
def no_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No power is cut here, and they take most of the time."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda descriptor: None)


@pytest.fixture(scope="module")
def closed_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 messages in four queues, over several files of each kind, and settings."""
    path = tmp_path_factory.mktemp("salvage") / "store"
    with reput.MessageStore.open(path, files=FaultyFiles(), **SIZES) as store:
        put(store)
        store.update_topic(TopicConfig("orders", 4, 4))
    offsets = ConsumerOffsets({"orders@shop": dict.fromkeys(range(4), 50)})
    (path / "config/consumerOffset.json").write_bytes(encode_metadata(offsets))
    return path


@pytest.fixture
def store(closed_store: Path, tmp_path: Path) -> Path:
    """The same; each test has its own."""
    return Path(shutil.copytree(closed_store, tmp_path / "store"))


def one_bit(store: Path) -> None:
    flip(store / MIDDLE, 5_000)


def begin_of_a_file(store: Path) -> None:
    overwrite(store / MIDDLE, 0, b"\xff" * 1000)


def end_of_a_file(store: Path) -> None:
    overwrite(store / MIDDLE, 15_500, bytes(884))


def middle_file_zeroed(store: Path) -> None:
    overwrite(store / MIDDLE, 0, bytes(16384))


def middle_file_gone(store: Path) -> None:
    (store / MIDDLE).unlink()


def middle_file_cut(store: Path) -> None:
    cut(store / MIDDLE, 9_000)


def middle_file_grown(store: Path) -> None:
    with (store / MIDDLE).open("ab") as file:
        file.write(b"more")


def impossible_queue_offset(store: Path) -> None:
    overwrite(store / MIDDLE, 20, b"\x01")


def impossible_topic(store: Path) -> None:
    overwrite(store / MIDDLE, 88 + 200 + 1, b"/")


def topics_gone(store: Path) -> None:
    one_bit(store)
    (store / "config/topics.json").write_bytes(b"{")


def last_files_zeroed(store: Path) -> None:
    """Nothing is seen of what was there."""
    for file in [file for file in sorted((store / "commitlog").iterdir()) if file.read_bytes().strip(b"\0")][-2:]:
        file.write_bytes(bytes(file.stat().st_size))


def everywhere(store: Path) -> None:
    for number, file in enumerate(sorted((store / "commitlog").iterdir())):
        flip(file, 3_000 + 200 * number)
        overwrite(file, 8_000, random.Random(number).randbytes(700))


def pulled(store: reput.MessageStore, queue_id: int, tags: str | None) -> Iterator[MessageExt]:
    """The messages of a queue as a consumer gets them: each pull begins where the one before said."""
    begin = 0
    while begin < store.max_offset("orders", queue_id):
        found = store.get_message("orders", queue_id, begin, 5, tags)
        yield from found.messages()
        assert found.next_begin_offset > begin
        begin = found.next_begin_offset


CASES = [
    one_bit, begin_of_a_file, end_of_a_file, middle_file_zeroed, middle_file_gone, middle_file_cut, middle_file_grown,
    topics_gone, impossible_queue_offset, impossible_topic, last_files_zeroed, everywhere,
]  # fmt: skip


@sampled(3)
@pytest.mark.parametrize("damage", CASES, ids=lambda damage: damage.__name__)
def test_all_that_is_whole_is_in_the_new_store_where_it_was(damage: Callable[[Path], None], store: Path) -> None:
    count = len(whole_records(store))
    damage(store)
    before, whole = contents(store), whole_records(store)
    planned = save(store, apply=False)
    assert not store.with_name("salvaged").exists()
    result = save(store)
    assert contents(store) == before
    assert result.is_fine, result.findings
    assert (result.losses, result.messages) == (planned.losses, len(whole))
    assert (result.lost_messages, bool(result.losses)) == (count - len(whole), damage is not middle_file_grown)
    target = store.with_name("salvaged")
    saved = whole_records(target)
    placeholders = {offset for offset, record in saved.items() if decode_record(record).topic == PLACEHOLDER_TOPIC}
    assert {offset: record for offset, record in saved.items() if offset not in placeholders} == whole
    assert audit(target, runner=LocalRunner(1)).is_clean
    with reput.MessageStore.open(target, files=FaultyFiles(), **SIZES) as opened:
        assert {queue.topic for queue in opened.queues()} == {"orders"}
        for filter_ in (None, "*", "t0 || t1 || t2"):
            got = [message.commit_log_offset for queue_id in range(4) for message in pulled(opened, queue_id, filter_)]
            assert sorted(got) == sorted(whole)
        opened.put_message(reput.Message("orders", b"later"))
    assert not store.with_name("salvaged.unfinished").exists()


@sampled(3)
@pytest.mark.parametrize("damage", CASES, ids=lambda damage: damage.__name__)
def test_lost_bytes_and_lost_messages_are_of_the_same_ranges(damage: Callable[[Path], None], store: Path) -> None:
    before = whole_records(store)
    damage(store)
    after = whole_records(store)
    lost = {offset: record for offset, record in before.items() if offset not in after}
    result = save(store, apply=False)
    for loss in result.losses:
        inside = [record for offset, record in lost.items() if loss.begin <= offset < loss.end]
        assert loss.messages == len(inside)
        assert loss.size == loss.end - loss.begin >= sum(map(len, inside))
    assert result.lost_messages == sum(loss.messages or 0 for loss in result.losses) == len(lost)
    assert result.lost_bytes == sum(loss.size for loss in result.losses) >= sum(map(len, lost.values()))
    assert result.uncounted_bytes == 0


def test_messages_that_are_zeros_now_are_lost_with_their_bytes(store: Path) -> None:
    file, end = last(store)
    log_end = int(file.name) + end
    last_files_zeroed(store)
    (loss,) = save(store, apply=False).losses
    assert (loss.begin, loss.end, loss.messages) == (32_768, log_end, 98)
    assert loss.path == str(store / "commitlog/00000000000000032768")


def test_messages_of_bytes_that_no_queue_reaches_are_unknown(store: Path) -> None:
    file, end = last(store)
    flip(file, end - 200)
    overwrite(file, end, b"torn" * 30)
    result = save(store, apply=False)
    known, unknown = result.losses
    log_end = int(file.name) + end
    assert (known.end, known.messages) == (log_end, 1)
    assert (unknown.begin, unknown.end, unknown.messages) == (log_end, log_end + 120, None)
    assert (result.lost_messages, result.lost_bytes, result.uncounted_bytes) == (1, known.size + 120, 120)
    answer = run_reput("repair", store, "--salvage", store.with_name("salvaged"))
    assert "1, and messages in 120 bytes that no queue reaches" in answer.out
    assert "unknown" in answer.out


def test_groups_that_have_consumed_what_is_lost_at_the_end_of_a_queue_get_the_next_message(store: Path) -> None:
    file, end = last(store)
    overwrite(file, end - 1000, bytes(1000))
    one_bit(store)
    assert save(store).is_fine
    saved = store.with_name("salvaged") / "config/consumerOffset.json"
    offsets = decode_metadata(ConsumerOffsets, saved.read_bytes()).offset_table["orders@shop"]
    assert sorted(offsets.values()) == [49, 49, 49, 49]


def test_placeholders_carry_a_crc_where_the_records_beside_them_do(tmp_path: Path) -> None:
    store = log_with_crcs(tmp_path / "store")
    records = whole_records(store)
    offsets = sorted(records)
    flip(store / "commitlog" / f"{offsets[3] // 16384 * 16384:020d}", offsets[3] % 16384 + len(records[offsets[3]]) - 5)
    result = save(store)
    assert result.is_fine, result.findings
    assert [loss.begin for loss in result.losses] == [offsets[3]]
    assert result.losses[0].with_crc


@pytest.mark.parametrize("with_crc", [False, True])
@pytest.mark.parametrize("size", [112, 113, 5000, 1 << 20, (1 << 20) + 1, (1 << 20) + 111, (1 << 20) + 112, 3 << 20])
def test_placeholders_fill_any_gap_exactly(size: int, with_crc: bool, tmp_path: Path) -> None:
    loss = Loss("", 1000, 1000 + size, "", Placeholder.RECORDS, 1_700_000_000_000, with_crc)
    write_log_file(str(tmp_path), NewLogFile(None, f"{0:020d}", 0, 4 << 20, 0, (loss,)))
    file = LogFile(str(tmp_path / f"{0:020d}"), 0, 4 << 20)
    scan = scan_split(Split(file, 1000, 1000 + size, True), level=ScanLevel.HEADER, on_damage=OnDamage.RAISE)
    rows = sum(columns.rows for columns in scan)
    assert (scan.end_offset, rows) == (1000 + size, -(-size // (1 << 20)))


def test_the_smallest_gap_takes_the_smallest_record(tmp_path: Path) -> None:
    loss = Loss("", 0, 92, "", Placeholder.RECORDS)
    write_log_file(str(tmp_path), NewLogFile(None, f"{0:020d}", 0, 4096, 0, (loss,)))
    message = decode_record((tmp_path / f"{0:020d}").read_bytes())
    assert (message.topic, message.store_size, message.body) == (PLACEHOLDER_TOPIC[0], 92, b"")


def test_a_gap_that_a_forged_record_makes_too_small_takes_that_one_too(tmp_path: Path) -> None:
    forged_log(tmp_path / "store")
    file = tmp_path / "store/commitlog/00000000000000000000"
    overwrite(file, 4, b"\0\0\0\0")  # the magic code of a record whose body is a chain of records, 88 bytes behind
    data = file.read_bytes()
    size = int.from_bytes(data[88:92], "big")
    loss = scan_file(LogFile(str(file), 0, len(data))).losses[0]
    assert (loss.begin, loss.end >= 88 + size) == (0, True)
    whole = whole_records(tmp_path / "store")
    assert save(tmp_path / "store").is_fine
    assert whole.items() <= whole_records(tmp_path / "salvaged").items()


def test_a_file_of_the_new_log_has_its_name_on_the_disk_when_its_task_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    write_log_file(str(tmp_path), NewLogFile(None, "0" * 20, 0, 4096, 0, ()))
    assert synced == [os.path.realpath(tmp_path)]


def test_nothing_whole_is_told(tmp_path: Path) -> None:
    (tmp_path / "store/commitlog").mkdir(parents=True)
    (tmp_path / "store/commitlog/00000000000000000000").write_bytes(b"noise" * 1000)
    with pytest.raises(StoreFormatError, match="nothing whole"):
        save(tmp_path / "store", apply=False)


def test_a_link_to_a_disk_that_is_not_there_is_refused(store: Path) -> None:
    (store / MIDDLE).rename(store.with_name("unmounted"))
    (store / MIDDLE).symlink_to("nowhere")
    with pytest.raises(StoreFormatError, match="mount the disk"):
        save(store)


def test_a_name_far_away_is_not_filled_up_with_files(store: Path) -> None:
    last(store)[0].rename(store / "commitlog" / f"{16384 << 40:020d}")
    log = [scan_file(LogFile(str(path), int(path.name), 16384)) for path in sorted((store / "commitlog").iterdir())]
    far = log[-1]
    with pytest.raises(StoreFormatError, match="give it its own name back"):
        plan_log(
            [
                *log[:-1],
                salvage_log.FileScan(
                    far.file, 1, 1, 300, far.file.start_offset + 300, False, 1, far.file.start_offset + 300, ()
                ),
            ]
        )


def test_a_folder_that_is_not_empty_is_left_alone(store: Path) -> None:
    store.with_name("salvaged").mkdir()
    store.with_name("salvaged").joinpath("mine").touch()
    for apply in (False, True):
        with pytest.raises(StoreFormatError, match="exists already"):
            save(store, apply=apply)
    with pytest.raises(ConfigError):
        salvage(store, store / "inside", apply=True, runner=LocalRunner(1))


def test_a_log_that_has_changed_since_a_kill_is_not_gone_on_with(store: Path) -> None:
    one_bit(store)
    assert killed(partial(save, store), 40)
    overwrite(store / MIDDLE, 9_000, b"changed")
    os.utime(store / MIDDLE, (1, 1))
    with pytest.raises(ConfigError, match="log was"):
        save(store)


@in_shares(3)
def test_killed_before_any_change_of_the_disk_it_goes_on_and_ends_the_same(
    store: Path, tmp_path: Path, share: Share
) -> None:
    everywhere(store)
    save(store)
    whole = store.with_name("salvaged").rename(tmp_path / "whole")
    expected = everything_of(whole)
    for changes in share.of(range(1, 10_000, 31)):
        if not killed(partial(save, store), changes):
            break
        if store.with_name("salvaged.unfinished").exists() or not store.with_name("salvaged").exists():
            assert save(store).is_fine
        assert everything_of(store.with_name("salvaged")) == expected
        assert not store.with_name("salvaged.unfinished").exists()
        shutil.rmtree(store.with_name("salvaged"))
    assert changes > 100


@in_shares(3)
def test_killed_when_the_new_store_has_its_name_it_goes_on_with_what_is_left_to_do(
    store: Path, tmp_path: Path, share: Share
) -> None:
    file, end = last(store)
    overwrite(file, end - 1000, bytes(1000))
    save(store)
    expected = everything_of(store.with_name("salvaged").rename(tmp_path / "whole"))
    for changes in share.of(range(1, 100)):
        if not killed(partial(save, store), changes, begin=(salvage_job, "repair")):
            break
        if store.with_name("salvaged.unfinished").exists():
            assert save(store).is_fine
        assert everything_of(store.with_name("salvaged")) == expected
        assert not store.with_name("salvaged.unfinished").exists()
        shutil.rmtree(store.with_name("salvaged"))
    assert changes > 3


@pytest.mark.parametrize("where", [0, 100, 380])
def test_damaged_units_are_no_witnesses_of_lost_messages(where: int, store: Path) -> None:
    last_files_zeroed(store)
    expected = save(store, apply=False)
    units = store / "consumequeue/orders/0/00000000000000000000"
    lost = [unit for unit in range(where, min(where + 200, 400), 20) if _leads_to(units, unit) >= 32_768]
    assert not lost
    overwrite(units, where, random.Random(where).randbytes(min(200, 400 - where)))
    result = save(store, apply=False)
    assert (result.losses, result.uncounted_bytes) == (expected.losses, 0)


def _leads_to(units: Path, position: int) -> int:
    return int.from_bytes(units.read_bytes()[position : position + 8], "big")


def _exported(path: Path) -> int:
    return export(path, path.with_name("lake"), runner=LocalRunner(1)).messages


def _backed_up(path: Path) -> int:
    return backup(path, str(path.with_name("backup")), runner=LocalRunner(1)).messages


def _rebuilt(path: Path) -> int:
    return rebuild(path, path.with_name("rebuilt"), runner=LocalRunner(1), **GEOMETRY).messages


def _salvaged_again(path: Path) -> int:
    return salvage(path, path.with_name("again"), apply=False, runner=LocalRunner(1)).messages


COUNTS: dict[str, Callable[[Path], int]] = {
    "audit": lambda path: audit(path, runner=LocalRunner(1)).messages,
    "read_log": lambda path: reput.read_log(path, ["topic"]).read_all().num_rows,
    "read_log of a topic": lambda path: reput.read_log(path, topics=[PLACEHOLDER_TOPIC]).read_all().num_rows + 199,
    "statistics": lambda path: statistics(path, runner=LocalRunner(1)).messages,
    "statistics by key": lambda path: statistics(path, by=("topic", "key"), runner=LocalRunner(1)).messages,
    "export": _exported,
    "backup": _backed_up,
    "rebuild": _rebuilt,
    "salvage": _salvaged_again,
}


@pytest.mark.parametrize("what", COUNTS)
def test_placeholders_are_no_messages(what: str, store: Path) -> None:
    one_bit(store)
    result = save(store)
    assert (result.messages, result.lost_messages) == (199, 1)
    assert COUNTS[what](store.with_name("salvaged")) == 199


@pytest.mark.parametrize("by", ["log", "queue"])
def test_a_lost_message_is_missing_in_the_new_store_and_no_placeholder_differs(by: Any, store: Path) -> None:
    shutil.copytree(store, store.with_name("whole"))
    one_bit(store)
    save(store)
    result = diff(store.with_name("whole"), store.with_name("salvaged"), by=by, runner=LocalRunner(1))
    assert (result.left_messages, result.right_messages) == (200, 199)
    assert (result.missing, result.extra, result.different) == (1, 0, 0)
