"""Audit: stores of ours in every state are clean, and what is damaged is named with its file and its place."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reput
from reput.errors import ConfigError, CorruptRecordError, StoreFormatError
from reput.formats.checkpoint import decode_checkpoint, encode_checkpoint
from reput.formats.index_file import TIME_DIFF, entry_position, slot_position
from reput.formats.metadata import TopicConfig
from reput.formats.record_layout import QUEUE_OFFSET
from reput.formats.shutdown import decode_shutdown, encode_shutdown
from reput.jobs.audit.consumer_offsets import offset_findings
from reput.jobs.audit.files import list_store
from reput.jobs.audit.job import AuditResult, audit
from reput.jobs.audit.log_findings import has_grown
from reput.jobs.findings import COMMANDS, KINDS, SCHEMA, Finding
from reput.jobs.repair.log_diagnosis import has_records_from
from reput.jobs.repair.repair_job import repair
from reput.jobs.runner import LocalRunner
from reput.kernels.queues.unit_types import UNIT_TYPE
from reput.log.directory import StoreDirectory
from reput.progress import Progress
from tests.support.damage import at, cut, flip, overwrite
from tests.support.damaged_orders import first_log_file_gone
from tests.support.examples import examples
from tests.support.faulty_files import FaultyFiles
from tests.support.further_units import BOTH
from tests.support.invariants import SMALL, log_records
from tests.support.orders import ENTRIES, SIZES, SLOTS, log_with_crcs, put
from tests.support.retained import WEEK_S, RoomyFiles, age
from tests.support.runners import DyingRunner

LOG, QUEUE = "commitlog/00000000000000016384", "consumequeue/orders/1/00000000000000000400"


def run_audit(path: Path, **options: Any) -> AuditResult:
    return audit(path, **({"runner": LocalRunner(2), "split_bytes": 4000} | options))


@pytest.fixture(scope="module")
def closed_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 messages in four queues, over several files of each kind."""
    path = tmp_path_factory.mktemp("audit") / "store"
    with reput.MessageStore.open(path, **SIZES) as store:
        put(store)
    return path


@pytest.fixture
def store(closed_store: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(closed_store, tmp_path / "store"))


def index_file(store: Path, number: int = 1) -> Path:
    return sorted((store / "index").iterdir())[number]


def codes(result: AuditResult) -> list[str]:
    return [finding.code for finding in result.findings]


# -- clean ------------------------------------------------------------------------------------------------------------


def further(path: Path) -> None:
    with reput.MessageStore.open(path, **BOTH) as store:  # type: ignore[arg-type]
        for n in range(60):
            properties = {"INNER_MULTI_DISPATCH": f"%LMQ%a,%LMQ%{n % 3}"} if n % 2 else {}
            store.put_message(reput.Message("orders", b"x", tags=f"t{n % 3}", properties=properties), queue_id=n % 2)
        store.wait_dispatched()


def batches(path: Path) -> None:
    with reput.MessageStore.open(path, **SIZES, mapper_file_size_batch_consume_queue=46 * 10) as store:
        store.update_topic(TopicConfig("orders", 4, 4, attributes={"queue.type": "BatchCQ"}))
        for n in range(60):
            messages = [reput.Message("orders", b"x" * 50, keys=(f"k{n}",), unique_key=f"u{n}-{i}") for i in range(3)]
            store.put_batch(messages, queue_id=n % 2)
            store.put_message(reput.Message("orders", b"y", keys=("one",)), queue_id=n % 2)
        store.wait_dispatched()


def transactions(path: Path) -> None:
    with reput.MessageStore.open(path, **SIZES) as store:
        for n in range(80):
            store.put_message(reput.Message("orders", b"x", keys=(f"k{n}",), sys_flag=(0, 4, 8, 12)[n % 4]))
        store.wait_dispatched()


def reopened(path: Path) -> None:
    for _ in range(3):
        with reput.MessageStore.open(path, **SIZES) as store:
            put(store, 33)


def killed(path: Path) -> None:
    """As a kill leaves it: a copy of a store that is open."""
    living = path.with_name("living")
    with reput.MessageStore.open(living, **SIZES) as store:
        put(store, 100)
        shutil.copytree(living, path)


def recovered(path: Path) -> None:
    killed(path)
    with reput.MessageStore.open(path, **SIZES) as store:
        put(store, 20)


def nothing(path: Path) -> None:
    with reput.MessageStore.open(path, **SIZES):
        pass


@pytest.mark.parametrize("make", [further, batches, transactions, reopened, killed, recovered, nothing])
def test_a_store_of_ours_is_clean_whatever_the_splits(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "store")
    result = run_audit(tmp_path / "store")
    assert result.findings == ()
    assert run_audit(tmp_path / "store", split_bytes=1 << 20, runner=LocalRunner(1)).findings == ()
    assert result.table.num_rows == 0
    assert result.table.schema == SCHEMA


def test_counts_are_those_of_the_store(closed_store: Path) -> None:
    result = run_audit(closed_store)
    assert (result.messages, result.units, result.queues) == (200, 200, 4)
    assert (result.index_entries, result.index_files) == (400, 3)
    assert result.is_clean


def test_what_retention_deleted_from_the_log_alone_is_expired_and_harmless(tmp_path: Path) -> None:
    synced = SIZES | {"flush_disk_type": "SYNC_FLUSH"}  # only files that are flushed are deleted
    begin_s = time.time() - WEEK_S
    with reput.MessageStore.open(tmp_path / "store", **synced, files=RoomyFiles()) as store:
        with patch("time.time", lambda: begin_s):
            put(store)
        age(tmp_path / "store", 2)
        assert store.delete_expired().commit_log_files
    result = run_audit(tmp_path / "store")
    assert result.is_clean
    assert set(codes(result)) <= {"unit-expired", "index-entry-expired"}
    assert result.messages < 200
    units = (finding for finding in result.findings if finding.code == "unit-expired")
    assert result.expired_units == sum(finding.count for finding in units)


def test_a_first_file_that_is_gone_before_its_time_is_one_finding_that_counts_what_leads_there(store: Path) -> None:
    first_log_file_gone(store)
    result = run_audit(store)
    (finding,) = result.findings
    assert (finding.code, finding.path, finding.count) == (
        "log-begins-late", str(store / "commitlog/00000000000000000000"), 51
    )  # fmt: skip
    assert "the log begins at 16384; 51 units of queues and 102 entries of the index are of messages" in finding.text
    assert finding.text.endswith("and fileReservedTime is 48 hours")
    assert (result.is_clean, result.expired_units) == (False, 51)


@pytest.mark.parametrize("known_by", ["queues", "exit"])
def test_a_closed_store_without_its_last_messages_is_not_clean_and_a_repair_says_what_is_lost(
    known_by: str, store: Path
) -> None:
    records, kept = log_records(store), store / "config/reputShutdown.json"
    end = records[-1].offset + records[-1].size
    if known_by == "queues":
        kept.unlink()
        lost = records[-9:]
        for record in lost:
            overwrite(*at(store, record.offset), bytes(record.size))
        offset = lost[0].offset
    else:
        shutdown = decode_shutdown(kept.read_bytes())
        assert shutdown is not None
        kept.write_bytes(encode_shutdown(shutdown._replace(commit_log_end=end + 300)))
        offset, end = end, end + 300
    result = run_audit(store)
    assert not result.is_clean
    (finding,) = (one for one in result.findings if one.code == "log-ends-early")
    assert (finding.commit_log_offset, finding.count) == (offset, end - offset)
    assert finding.text.startswith(f"the log ends at {offset}, and ")
    assert result.lost_messages == (9 if known_by == "queues" else 0)
    with pytest.raises(CorruptRecordError, match="expected a record"):
        reput.MessageStore.open(store, **SIZES)
    assert repair(store, apply=True, runner=LocalRunner(1)).remaining == ()
    assert run_audit(store).is_clean
    reput.MessageStore.open(store, **SIZES).close()


@pytest.mark.parametrize(
    ("hours", "options"),
    [(48.1, {}), (47.9, {"file_reserved_time": 47}), (0, {"message_index_enable": False}), (-1e6, {})],
)
def test_a_first_file_that_nothing_proves_to_have_gone_early_is_harmless_and_its_units_are_counted(
    hours: float, options: dict[str, Any], store: Path
) -> None:
    first_log_file_gone(store)
    later_s = time.time() + hours * 3600
    with patch("reput.jobs.audit.log_findings.time.time", lambda: later_s):
        result = run_audit(store, **options)
    assert set(codes(result)) <= {"unit-expired", "index-entry-expired"}
    assert (result.is_clean, result.expired_units) == (True, 51)


def test_an_open_store_is_audited_up_to_where_its_log_ends(tmp_path: Path) -> None:
    with reput.MessageStore.open(tmp_path / "store", **SIZES) as store:
        put(store)
        result = run_audit(tmp_path / "store", runner=_PutsMore(store))
        assert (result.messages, result.is_clean) == (200, True)
        assert set(codes(result)) <= {"not-dispatched"}


class _PutsMore(LocalRunner):
    """Puts messages when the end of the log is known, and before queues and index are looked at."""

    def __init__(self, store: reput.MessageStore) -> None:
        super().__init__(1)
        self._store = store

    def run(
        self, task: Callable[[Any], Any], items: Sequence[Any], *, description: str, progress: Progress | None = None
    ) -> list[Any]:
        results = super().run(task, items, description=description, progress=progress)
        put(self._store, 30)
        return results


@pytest.mark.parametrize("late", [["consumequeue", "consumequeue_ext"], ["consumequeue_ext"], ["consumequeue/%LMQ%*"]])
@pytest.mark.parametrize("is_empty", [True, False])
def test_a_store_that_gets_its_first_queues_and_extensions_during_the_audit_is_clean(
    late: list[str], is_empty: bool, tmp_path: Path
) -> None:
    path, living = tmp_path / "store", tmp_path / "living"
    with reput.MessageStore.open(living, **BOTH) as store:  # type: ignore[arg-type]
        for n in range(60):
            properties = {"INNER_MULTI_DISPATCH": f"%LMQ%a,%LMQ%{n % 3}"} if n % 2 else {}
            store.put_message(reput.Message("orders", b"x", tags=f"t{n % 3}", properties=properties), queue_id=n % 2)
        store.wait_dispatched()
        shutil.copytree(living, path)
    for folder in (found for pattern in late for found in path.glob(pattern)):
        shutil.rmtree(folder)
    if is_empty:  # the files are there, and nothing in them yet
        for file in path.glob("consumequeue/*/*/*"):
            file.write_bytes(bytes(file.stat().st_size))
    result = run_audit(path, runner=_Comes(living, path))
    assert set(codes(result)) <= {"not-dispatched"}, result.findings


def test_a_store_that_was_killed_before_its_first_unit_has_not_dispatched(tmp_path: Path) -> None:
    killed(tmp_path / "store")
    for file in (tmp_path / "store").glob("consumequeue/*/*/*"):
        file.write_bytes(bytes(file.stat().st_size))
    shutil.rmtree(tmp_path / "store" / "index")
    assert set(codes(run_audit(tmp_path / "store"))) == {"not-dispatched"}
    with reput.MessageStore.open(tmp_path / "store", **SIZES):
        pass
    assert run_audit(tmp_path / "store").findings == ()


def test_batch_queues_whose_files_are_made_and_empty_yet_hide_nothing(tmp_path: Path) -> None:
    batches(tmp_path / "store")
    for file in (tmp_path / "store").glob("*consumequeue/*/*/*"):
        file.write_bytes(bytes(file.stat().st_size))
    shutil.rmtree(tmp_path / "store" / "index")
    (tmp_path / "store" / "abort").touch()
    assert set(codes(run_audit(tmp_path / "store"))) == {"not-dispatched"}
    (tmp_path / "store" / "abort").unlink()
    assert "unit-missing" in codes(run_audit(tmp_path / "store"))


class _Comes(LocalRunner):
    """Brings queues and extensions when the files are listed, and before they are looked into."""

    def __init__(self, source: Path, target: Path) -> None:
        super().__init__(1)
        self._source, self._target = source, target

    def run(
        self, task: Callable[[Any], Any], items: Sequence[Any], *, description: str, progress: Progress | None = None
    ) -> list[Any]:
        results = super().run(task, items, description=description, progress=progress)
        for name in ("consumequeue", "consumequeue_ext"):
            shutil.copytree(self._source / name, self._target / name, dirs_exist_ok=True)
        return results


# -- damage -----------------------------------------------------------------------------------------------------------


DAMAGES: dict[str, tuple[str, Callable[[Path], None], str, int | None]] = {
    "unit offset": ("unit-wrong", lambda store: flip(store / QUEUE, 47), QUEUE, 40),
    "unit size": ("unit-wrong", lambda store: flip(store / QUEUE, 51), QUEUE, 40),
    "unit tags code": ("unit-wrong", lambda store: flip(store / QUEUE, 59), QUEUE, 40),
    "unit gone": ("unit-missing", lambda store: overwrite(store / QUEUE, 40, bytes(20)), QUEUE, 40),
    "filler unit": (
        "unit-missing",
        lambda store: overwrite(store / QUEUE, 40, b"\0" * 8 + b"\x7f\xff\xff\xff" + b"\0" * 8),
        QUEUE,
        40,
    ),
    "queue file gone": ("unit-missing", lambda store: (store / QUEUE).unlink(), QUEUE, 0),
    "queue file between others gone": ("queue-file-missing", lambda store: (store / QUEUE).unlink(), QUEUE, None),
    "queue file cut": ("file-size", lambda store: (store / QUEUE).write_bytes(bytes(390)), QUEUE, None),
    "foreign queue file": (
        "foreign-file", lambda store: (store / QUEUE).with_name("copy").write_bytes(b""),
        "consumequeue/orders/1/copy", None,
    ),
    "log file gone": ("log-file-missing", lambda store: (store / LOG).unlink(), LOG, None),
    "log file cut": ("file-size", lambda store: cut(store / LOG, 9000), LOG, None),
    "foreign log file": (
        "foreign-file", lambda store: (store / LOG).with_name("core").write_bytes(b""), "commitlog/core", None
    ),
    "foreign index file": (
        "foreign-file", lambda store: (store / "index" / "x").write_bytes(b""), "index/x", None
    ),
    "settings and their backup": (
        "config-damaged", lambda store: (store / "config" / "topics.json").write_bytes(b"{"), "config/topics.json", 1
    ),
    **{
        f"wrong {name}": (
            "config-damaged",
            lambda store, name=name: (store / "config" / name).write_text('{"configTable": {"A": 3}}'),
            f"config/{name}",
            0,
        )
        for name in ("kvConfig.json", "reputAccess.json")
    },
    "settings": ("config-backup", lambda store: damage_with_backup(store), "config/topics.json", 1),
    "checkpoint ahead": ("checkpoint-ahead", lambda store: move_checkpoint(store, 0), "checkpoint", 0),
    "checkpoint of queues ahead": ("checkpoint-wrong", lambda store: move_checkpoint(store, 1), "checkpoint", 8),
    "no checkpoint": ("checkpoint-short", lambda store: (store / "checkpoint").unlink(), "checkpoint", None),
}  # fmt: skip


def test_without_any_queue_file_each_queue_is_one_finding(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")
    findings = run_audit(store).findings
    assert {(found.code, found.count) for found in findings} == {("unit-missing", 50)}
    assert sorted(str(found.queue_id) + found.text[:21] for found in findings) == [
        f"{queue_id}the queue has no file" for queue_id in range(4)
    ]


def damage_with_backup(store: Path) -> None:
    (store / "config" / "topics.json").write_bytes(b"{")
    (store / "config" / "topics.json.bak").write_bytes(b"{}")


def move_checkpoint(store: Path, field: int) -> None:
    checkpoint = decode_checkpoint((store / "checkpoint").read_bytes())
    values = list(checkpoint)
    values[field] = 1 << 50
    (store / "checkpoint").write_bytes(encode_checkpoint(type(checkpoint)(*values)))


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named_with_its_file_and_its_place(name: str, store: Path) -> None:
    code, damage, path, position = DAMAGES[name]
    (store / "config").mkdir(exist_ok=True)
    damage(store)
    result = run_audit(store)
    found = [finding for finding in result.findings if finding.code == code]
    assert (str(store / path), position) in {(finding.path, finding.position) for finding in found}, result.findings
    assert result.is_clean == all(KINDS[code].finding_class == "harmless" for code in codes(result))
    assert run_audit(store, split_bytes=1 << 20, runner=LocalRunner(1)).findings == result.findings


def test_damage_of_the_log_is_told_once_and_its_units_and_entries_are_not_blamed(store: Path) -> None:
    flip(store / LOG, 450)
    (finding,) = run_audit(store).findings
    assert (finding.code, finding.path) == ("record-damaged", str(store / LOG))
    assert finding.position is not None
    assert finding.position <= 450 < finding.position + finding.count
    assert finding.commit_log_offset == 16384 + finding.position


def test_a_queue_offset_of_a_message_that_no_queue_has_is_wrong(tmp_path: Path) -> None:
    with reput.MessageStore.open(tmp_path, **SIZES) as opened:
        for flags in (4, 12, 0):
            opened.put_message(reput.Message("orders", b"x", sys_flag=flags))
        second = opened.put_message(reput.Message("orders", b"x", sys_flag=4)).commit_log_offset
    file = tmp_path / "commitlog/00000000000000000000"
    overwrite(file, second + QUEUE_OFFSET + 7, b"\1")
    (found,) = run_audit(tmp_path).findings
    assert (found.code, found.commit_log_offset) == ("record-damaged", second)
    assert "is in no queue, and its queue offset is not 0" in found.text


def test_an_inner_batch_whose_record_and_properties_have_other_queue_offsets_is_told(tmp_path: Path) -> None:
    with reput.MessageStore.open(tmp_path, **SIZES) as opened:
        opened.update_topic(TopicConfig("orders", attributes={"queue.type": "BatchCQ"}))
        for _ in range(3):
            items = [reput.Message("orders", bytes(40)) for _ in range(3)]
            begin = opened.max_commit_log_offset
            opened.put_batch(reput.MessageExtBatch.of(items, unique_key="U"))
    flip(tmp_path / "commitlog/00000000000000000000", begin + QUEUE_OFFSET + 7, 1)
    (finding,) = run_audit(tmp_path).findings
    assert (finding.code, finding.commit_log_offset, finding.position) == ("queue-offset-wrong", begin, begin)
    assert finding.text == "the record says 7, and its INNER_BASE not"


def test_the_last_record_of_a_closed_store_is_not_taken_for_a_torn_tail(store: Path) -> None:
    last = sorted((store / "commitlog").iterdir())[-1]
    data = last.read_bytes().rstrip(b"\0")
    flip(last, len(data) - 150)
    result = run_audit(store)
    assert codes(result) == ["record-damaged"]
    (store / "abort").write_bytes(b"")
    (store / "checkpoint").write_bytes(bytes(4096))
    assert codes(run_audit(store)) == ["torn-tail", "unit-behind-end", "index-entry-behind-end"]


def test_what_queues_know_behind_the_end_of_a_killed_store_is_told(store: Path) -> None:
    for file in sorted((store / "commitlog").iterdir())[-2:]:
        file.write_bytes(bytes(file.stat().st_size))
    (store / "abort").write_bytes(b"")
    (store / "checkpoint").write_bytes(bytes(4096))
    (store / "config/reputShutdown.json").unlink()
    result = run_audit(store)
    counts = {code: sum(found.count for found in result.findings if found.code == code) for code in codes(result)}
    lost = 200 - result.messages
    assert counts == {"unit-behind-end": lost, "index-entry-behind-end": 2 * lost}
    assert result.is_clean


@pytest.mark.parametrize("is_open", [True, False])
def test_a_store_that_goes_on_in_the_next_log_file_behind_what_was_read_is_clean(is_open: bool, tmp_path: Path) -> None:
    def fill(store: reput.MessageStore) -> None:
        store.put_messages([reput.Message("orders", b"x" * 100) for _ in range(20)])
        store.wait_dispatched()

    class FillsLater(LocalRunner):
        def run(
            self,
            task: Callable[[Any], Any],
            items: Sequence[Any],
            *,
            description: str,
            progress: Progress | None = None,
        ) -> list[Any]:
            results = super().run(task, items, description=description, progress=progress)
            if description == "read the log":
                fill(opened if is_open else stack.enter_context(reput.MessageStore.open(path, **SMALL)))
            return results

    path = tmp_path / "store"
    with ExitStack() as stack:
        with reput.MessageStore.open(path, **SMALL) as opened:
            fill(opened)
            if is_open:
                result = run_audit(path, runner=FillsLater(1))
        if not is_open:
            result = run_audit(path, runner=FillsLater(1))
    assert (result.messages, len(list((path / "commitlog").iterdir()))) == (20, 2)
    assert set(codes(result)) <= {"not-dispatched"}


def test_old_records_behind_the_end_are_no_sign_of_an_open_store(store: Path) -> None:
    """As a recovery of RocketMQ's leaves them, which cuts the log and wipes nothing out."""
    directory = StoreDirectory(store)
    files = [file for file in sorted((store / "commitlog").iterdir()) if file.read_bytes().strip(b"\0")]
    begin = int(files[-2].name)
    rolled = max(record.offset + record.size for record in log_records(store) if record.offset < begin)
    assert [has_grown(directory, end) for end in (rolled, begin)] == [True, True]
    files[-2].write_bytes(bytes(files[-2].stat().st_size))
    assert [has_grown(directory, end) for end in (rolled, begin)] == [False, False]
    assert has_records_from(list_store(directory), rolled)


def test_what_an_open_store_puts_behind_what_was_read_is_right(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with reput.MessageStore.open(store, files=FaultyFiles(), **SIZES) as opened:

        def put_then_look(*args: Any) -> list[Finding]:
            put(opened)
            return list(offset_findings(*args))

        monkeypatch.setattr("reput.jobs.audit.job.offset_findings", put_then_look)
        assert not {"unit-behind-end", "index-entry-behind-end"} & set(codes(run_audit(store)))


@pytest.mark.parametrize("inside", [0, 3, 8, 14, 19])
def test_a_record_that_lost_its_crc_is_found_between_others_that_have_one(tmp_path: Path, inside: int) -> None:
    store = log_with_crcs(tmp_path / "store")
    assert run_audit(store).findings == ()
    assert run_audit(store, force_verify_prop_crc=True).findings == ()
    position = (store / LOG).read_bytes().index(b"__CRC32#", 3000)
    flip(store / LOG, position + inside, 0x40)
    (finding,) = run_audit(store).findings
    assert (finding.code, finding.count, finding.path) == ("property-crc-missing", 1, str(store / LOG))
    assert finding.position is not None
    assert finding.position < position < finding.position + 1000
    assert finding.commit_log_offset == finding.position + 16384
    assert run_audit(store, split_bytes=1 << 20, runner=LocalRunner(1)).findings == (finding,)


def test_a_crc_that_became_a_part_of_the_property_before_it_is_found(tmp_path: Path) -> None:
    store = log_with_crcs(tmp_path / "store")
    separator = (store / LOG).read_bytes().index(b"\x02__CRC32#", 3000)
    flip(store / LOG, separator, 0x40)
    assert "property-crc-missing" in codes(run_audit(store))


@pytest.mark.parametrize(
    ("switches", "between", "forced"),
    [("-", 0, 100), ("-+", 0, 100), ("+-", 0, 100), ("+-+", 100, 100), ("-+-", 0, 200)],
)
def test_records_without_a_crc_before_and_behind_those_with_one_are_wrong_only_where_all_must_have_one(
    tmp_path: Path, switches: str, between: int, forced: int
) -> None:
    store = log_with_crcs(tmp_path / "store", switches)
    for is_required, count in ((False, between), (True, forced)):
        result = run_audit(store, force_verify_prop_crc=is_required)
        assert sum(found.count for found in result.findings) == count
        assert set(codes(result)) <= {"property-crc-missing"}
        assert run_audit(store, split_bytes=1 << 20, force_verify_prop_crc=is_required).findings == result.findings


def test_each_field_of_an_index_file_is_checked(store: Path) -> None:
    path = index_file(store)
    data = path.read_bytes()
    slot = next(slot for slot in range(SLOTS) if any(data[slot_position(slot) : slot_position(slot) + 4]))
    entry, first = entry_position(SLOTS, 7), entry_position(SLOTS, 1)
    for position, code in (
        (first + 12, "index-entry-wrong"), (first + 14, "index-entry-wrong"),
        (7, "index-header-wrong"), (15, "index-header-wrong"), (23, "index-header-wrong"),
        (31, "index-header-wrong"), (35, "index-header-wrong"), (39, "index-header-wrong"),
        (slot_position(slot) + 3, "index-chain-broken"), (entry + 3, "index-entry-wrong"),
        (entry + 11, "index-entry-wrong"), (entry + 15, "index-entry-wrong"), (entry + 19, "index-chain-broken"),
    ):  # fmt: skip
        flip(path, position)
        result = run_audit(store, max_hash_slot_num=SLOTS, max_index_num=ENTRIES)
        here = [finding for finding in result.findings if finding.code == code and finding.path == str(path)]
        assert any(finding.position is not None and 0 <= position - finding.position < 20 for finding in here), (
            position, result.findings,
        )  # fmt: skip
        path.write_bytes(data)
    assert run_audit(store).findings == ()


def test_a_lost_index_file_hides_its_keys(store: Path) -> None:
    index_file(store).unlink()
    result = run_audit(store)
    assert set(codes(result)) == {"index-entry-missing"}
    assert sum(finding.count for finding in result.findings) == ENTRIES - 1
    assert run_audit(store, message_index_enable=False).findings == ()


def test_a_unit_that_leads_to_another_record_is_wrong_at_both_ends(store: Path) -> None:
    data = (store / QUEUE).read_bytes()
    overwrite(store / QUEUE, 40, data[60:80])
    (finding,) = run_audit(store).findings
    assert (finding.code, finding.queue_offset, finding.position) == ("unit-wrong", 22, 40)


def test_units_behind_a_queue_are_harmless_and_so_are_entries_of_a_record_indexed_twice(store: Path) -> None:
    last = sorted((store / "consumequeue" / "orders" / "1").iterdir())[-1]
    used = len(last.read_bytes().rstrip(b"\0"))
    used += -used % 20
    unit = (store / QUEUE).read_bytes()[:20]
    overwrite(last, used, unit)
    result = run_audit(store)
    assert [(finding.code, finding.position, finding.count) for finding in result.findings] == [
        ("unit-behind-end", used, 1)
    ]
    assert result.is_clean


def test_a_repeated_queue_offset_hides_the_later_record(tmp_path: Path) -> None:
    from tests.support.small_rebuild import Put, write_log

    (tmp_path / "store").mkdir()
    write_log(tmp_path / "store", [Put(body=b"x" * n, queue_step=-1 if n == 5 else 0) for n in range(9)])
    from reput.jobs.rebuild.job import rebuild

    rebuild(tmp_path / "store", tmp_path / "out", runner=LocalRunner(1), index=False)
    shutil.copytree(tmp_path / "out" / "consumequeue", tmp_path / "store" / "consumequeue")
    result = run_audit(tmp_path / "store")
    repeated = [finding for finding in result.findings if finding.code == "queue-offset-repeated"]
    assert [(finding.queue_offset, finding.count) for finding in repeated] == [(4, 1)]
    assert not {"unit-missing", "unit-wrong"} & set(codes(result))


@settings(max_examples=examples(60))
@given(data=st.data())
def test_no_flipped_bit_of_a_derived_file_goes_unnoticed(
    data: st.DataObject, closed_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = tmp_path_factory.mktemp("flipped") / "store"
    shutil.copytree(closed_store, store)
    path = data.draw(st.sampled_from(sorted(p for p in store.glob("*/**/*") if p.parts[-4] == "consumequeue")))
    used = np.flatnonzero(np.frombuffer(path.read_bytes(), np.uint8))
    position = data.draw(st.sampled_from(used.tolist()))
    flip(path, position, 1 << data.draw(st.integers(0, 7)))
    result = run_audit(store)
    assert not result.is_clean
    assert (str(path), position - position % 20) in {(finding.path, finding.position) for finding in result.findings}


# -- the job ----------------------------------------------------------------------------------------------------------


def test_an_audit_that_was_killed_goes_on_and_finds_the_same(store: Path, tmp_path: Path) -> None:
    flip(store / QUEUE, 47)
    expected = run_audit(store)
    killed_once = 0
    for tasks in range(1, 40, 6):
        work = tmp_path / f"work-{tasks}"
        try:
            run_audit(store, work_dir=work, runner=DyingRunner(tasks))
        except KeyboardInterrupt:
            killed_once += 1
        result = run_audit(store, work_dir=work)
        assert replace(result, seconds=0, phase_seconds={}) == replace(expected, seconds=0, phase_seconds={})
    assert killed_once > 3


def test_a_work_dir_of_other_options_is_refused(store: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_audit(store, work_dir=tmp_path / "work", runner=DyingRunner(3))
    with pytest.raises(ConfigError, match="split_bytes was 4000 and is 8000"):
        run_audit(store, work_dir=tmp_path / "work", split_bytes=8000)
    with pytest.raises(ConfigError, match="lies inside the store"):
        run_audit(store, work_dir=store / "work")


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreFormatError, match="no store"):
        run_audit(tmp_path)


def test_every_code_is_documented() -> None:
    page = (Path(__file__).parents[4] / "docs/jobs/audit.md").read_text()
    assert [
        code
        for code, kind in KINDS.items()
        if f"| `{code}` | {kind.finding_class} | {kind.meaning} | {kind.advice_with(COMMANDS)} |" not in page
    ] == []


def test_units_that_differ_on_both_sides_of_a_split_s_border_are_one_finding(tmp_path: Path) -> None:
    """Records of one queue side by side: a range of theirs ends where the range of the next split begins."""
    with reput.MessageStore.open(tmp_path / "store", **SMALL) as store:  # type: ignore[arg-type]
        for _ in range(40):
            store.put_message(reput.Message("orders", bytes(500)))
    for file in sorted((tmp_path / "store/consumequeue/orders/0").iterdir()):
        units = np.fromfile(file, UNIT_TYPE)
        units["tags_code"][units["size"] > 0] = 7
        file.write_bytes(units.tobytes())
    findings = run_audit(tmp_path / "store", split_bytes=1 << 20, runner=LocalRunner(1)).findings
    assert len(findings) == 5  # one for each of the queue's files
    assert run_audit(tmp_path / "store", split_bytes=700).findings == findings


@pytest.mark.parametrize("step_s", [1.5, 4.0])
def test_the_time_of_an_index_file_s_first_entry_counts_from_the_end_of_the_file_before(
    tmp_path: Path, step_s: float
) -> None:
    path, begin_s = tmp_path / "store", time.time()
    with reput.MessageStore.open(path, **SIZES) as store:
        for n in range(200):
            with patch("time.time", lambda now_s=begin_s + n * step_s: now_s):
                store.put_message(reput.Message("orders", b"x", keys=[f"k{n}"]))
        store.wait_dispatched()
    assert run_audit(path).findings == ()
    second = sorted((path / "index").iterdir())[1]
    position = entry_position(SLOTS, 1) + TIME_DIFF
    before = int.from_bytes(second.read_bytes()[position : position + 4], "big")
    assert before == int(step_s)
    overwrite(second, position, (before + 1).to_bytes(4, "big"))
    (finding,) = run_audit(path).findings
    assert (finding.code, finding.path) == ("index-entry-wrong", str(second))
