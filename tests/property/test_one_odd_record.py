"""One record with a wrong bit where no CRC is, or a blank over a record, costs one message at most."""

from __future__ import annotations

import shutil
import struct
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import reput
from reput.errors import CorruptConsumeQueueError, CorruptRecordError, ReputError
from reput.formats.message_batch import MIN_ITEM_SIZE
from reput.jobs.audit.job import audit
from reput.jobs.rebuild import rebuild
from reput.jobs.repair import repair, salvage
from reput.jobs.runner import LocalRunner
from reput.kernels.records.record_scan import ScanLevel
from reput.log.directory import StoreDirectory
from reput.log.scan import scan_split
from reput.log.splits import Split, SplitStop
from reput.log.store_times import DAY_MS
from tests.support.examples import examples
from tests.support.plants import SIZES, Stored, blank, planted_store, stored

Bodies = dict[str, list[bytes]]
COUNT = 410


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted_store(tmp_path_factory.mktemp("odd") / "store", COUNT - 10)


def reached(path: Path) -> Bodies:
    """Bodies that pulls get, by queue."""
    found: Bodies = {}
    with reput.MessageStore.open(path, read_only=True) as store:
        for queue in store.queues():
            bodies = found[f"{queue.topic}/{queue.queue_id}"] = []
            offset = queue.min_offset
            while offset < queue.max_offset:
                result = store.get_message(queue.topic, queue.queue_id, offset, 32)
                bodies += [message.body for message in result.messages()]
                offset = max(result.next_begin_offset, offset + 1)
    return found


def lost(before: Bodies, after: Bodies) -> int:
    """Messages that are not reached any more."""
    assert all(set(after.get(queue, ())) <= set(bodies) for queue, bodies in before.items())
    return sum(len(bodies) - len(set(after.get(queue, ()))) for queue, bodies in before.items())


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def set_queue_offset(record: Stored, bit: int) -> None:
    record.change(20, struct.pack(">q", record.number(20) ^ 1 << bit))


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(number=st.integers(0, COUNT - 1), bit=st.integers(0, 30))
def test_one_wrong_bit_of_a_queue_offset_costs_one_message(
    base: Path, tmp_path_factory: pytest.TempPathFactory, number: int, bit: int
) -> None:
    path = tmp_path_factory.mktemp("one") / "store"
    shutil.copytree(base, path)
    before = reached(path)
    set_queue_offset(stored(path)[number], bit)
    built = path.with_name("built")
    record = stored(path)[number]
    if record.number(20) > record.number(28) // MIN_ITEM_SIZE:  # refused, and nothing is hidden
        with pytest.raises(CorruptRecordError, match="can hold at most"):
            rebuild(path, built, runner=LocalRunner(1), split_bytes=20_000)
        return
    rebuild(path, built, runner=LocalRunner(1), split_bytes=20_000)
    shutil.rmtree(path / "consumequeue")
    with reput.MessageStore.open(path, **SIZES) as store:
        offsets = {f"{queue.topic}/{queue.queue_id}": queue.max_offset for queue in store.queues()}
    assert lost(before, reached(path)) <= 1
    assert all(offsets[queue] >= len(bodies) - 1 for queue, bodies in before.items())
    assert files(path / "consumequeue") == files(built / "consumequeue")


def test_a_unit_that_leads_to_a_record_with_a_wrong_queue_offset_is_a_witness(base: Path, tmp_path: Path) -> None:
    for bit in (2, 3, 9):
        path = tmp_path / f"store-{bit}"
        shutil.copytree(base, path)
        before = reached(path)
        set_queue_offset(stored(path)[150], bit)
        findings = audit(path, runner=LocalRunner(1)).findings
        assert [finding.code for finding in findings] == ["queue-offset-wrong"]
        result = repair(path, apply=True, runner=LocalRunner(1))
        assert (result.steps, result.is_fine) == ((), False)
        assert reached(path) == before


def test_a_rebuild_in_place_never_reaches_fewer_messages_without_being_asked(base: Path, tmp_path: Path) -> None:
    path = tmp_path / "store"
    shutil.copytree(base, path)
    before, queues = reached(path), files(path / "consumequeue")
    set_queue_offset(stored(path)[150], 9)
    with pytest.raises(CorruptConsumeQueueError, match="--allow-fewer"):
        rebuild(path, None, runner=LocalRunner(1))
    assert files(path / "consumequeue") == queues
    result = rebuild(path, None, runner=LocalRunner(1), allow_fewer=True)
    assert "contradict" in result.damages.told[0].reason
    assert lost(before, reached(path)) == 1


@pytest.mark.parametrize("batch_rows", [1, 3, 1000])
def test_a_jump_without_a_next_record_is_taken_back_by_the_next_one(
    base: Path, tmp_path: Path, batch_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    shutil.copytree(base, path)
    before = reached(path)
    set_queue_offset(stored(path)[150], 6)
    monkeypatch.setattr("reput.store.dispatch.redispatch._MAX_ROWS", batch_rows)
    monkeypatch.setattr("reput.log.scan.MAX_ROWS", batch_rows)
    monkeypatch.setattr("reput.log.scan.scan_split.__kwdefaults__", {**scan_defaults(), "max_rows": batch_rows})
    built = path.with_name("built")
    rebuild(path, built, runner=LocalRunner(1))
    shutil.rmtree(path / "consumequeue")
    reput.MessageStore.open(path, **SIZES).close()
    assert lost(before, reached(path)) == 1
    assert files(path / "consumequeue") == files(built / "consumequeue")


@pytest.mark.parametrize(("number", "bit"), [(3, 1), (5, 2)])
@pytest.mark.parametrize("batch_rows", [1, 7, 1000])
def test_the_first_record_of_a_queue_is_judged_by_all_that_follow(
    base: Path, tmp_path: Path, number: int, bit: int, batch_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    shutil.copytree(base, path)
    before = reached(path)
    set_queue_offset(stored(path)[number], bit)
    monkeypatch.setattr("reput.store.dispatch.redispatch._MAX_ROWS", batch_rows)
    monkeypatch.setattr("reput.log.scan.scan_split.__kwdefaults__", {**scan_defaults(), "max_rows": batch_rows})
    built = path.with_name("built")
    result = rebuild(path, built, runner=LocalRunner(1))
    assert [(damage.begin, result.units) for damage in result.damages] == [(stored(path)[number].number(28), COUNT - 1)]
    shutil.rmtree(path / "consumequeue")
    reput.MessageStore.open(path, **SIZES).close()
    # Dispatch cannot go back: where a batch has only one of two witnesses, that one is gone, too.
    assert lost(before, reached(path)) <= (1 if batch_rows == 1000 else 2)


def test_the_record_after_one_with_a_wrong_queue_offset_has_room_for_its_gap(base: Path, tmp_path: Path) -> None:
    path = tmp_path / "store"
    shutil.copytree(base, path)
    before, built = reached(path), tmp_path / "built"
    set_queue_offset(stored(path)[-2], 4)  # the last one has no next record that says that its gap of 1 is right
    result = rebuild(path, built, runner=LocalRunner(1))
    assert (result.units, result.damages.count) == (COUNT - 1, 1)
    shutil.rmtree(path / "consumequeue")
    reput.MessageStore.open(path, **SIZES).close()
    assert lost(before, reached(path)) == 1
    assert files(path / "consumequeue") == files(built / "consumequeue")


@pytest.mark.parametrize("index", [True, False])
def test_the_last_record_of_a_queue_in_its_file_is_judged_by_the_next_file(
    base: Path, tmp_path: Path, index: bool
) -> None:
    path = tmp_path / "store"
    shutil.copytree(base, path)
    before, built = reached(path), tmp_path / "built"
    first = stored(path)[0].file
    record = [record for record in stored(path) if record.file == first][-1]
    set_queue_offset(record, 2)  # 50 says 54, for which its log has room
    result = rebuild(path, built, runner=LocalRunner(1), index=index)
    assert (result.units, result.damages.count) == (COUNT - 1, 1)
    shutil.rmtree(path / "consumequeue")
    reput.MessageStore.open(path, **SIZES).close()
    assert lost(before, reached(path)) == 1
    assert files(path / "consumequeue") == files(built / "consumequeue")


def scan_defaults() -> dict[str, object]:
    from reput.log.scan import scan_split

    assert scan_split.__kwdefaults__ is not None
    return dict(scan_split.__kwdefaults__)


def test_a_blank_over_whole_records_is_damage(base: Path, tmp_path: Path) -> None:
    path = tmp_path / "store"
    shutil.copytree(base, path)
    before = reached(path)
    record = stored(path)[100]
    record.change(0, blank(record.position))
    findings = audit(path, runner=LocalRunner(1)).findings
    assert [finding.code for finding in findings] == ["record-damaged"]
    assert findings[0].count == len(record.data)
    queues = files(path / "consumequeue")
    assert repair(path, apply=True, runner=LocalRunner(1)).needs_salvage
    assert files(path / "consumequeue") == queues
    salvaged = tmp_path / "salvaged"
    salvage(path, salvaged, apply=True, runner=LocalRunner(1))
    assert sum(batch.num_rows for batch in reput.read_log(salvaged)) == COUNT - 1
    assert lost(before, reached(salvaged)) == 1
    shutil.rmtree(path / "consumequeue")
    with pytest.raises(ReputError):  # queues of a part of the log would hide the rest
        reput.MessageStore.open(path, **SIZES)


def with_older_life(path: Path) -> int:
    """Leave a whole record of an older life after the blank of the first file; the blank's offset."""
    first = [record for record in stored(path) if record.file.name.endswith("0" * 20)]
    last = first[-1]
    end = last.position + len(last.data)
    old = bytearray(first[0].data)
    old[28:36] = struct.pack(">q", end + 8)  # it says that it lies there
    old[56:64] = struct.pack(">q", last.number(56) - 1000)
    last.change(len(last.data) + 8, bytes(old))
    return end


def test_the_rest_of_an_older_life_after_a_blank_is_no_damage(base: Path, tmp_path: Path) -> None:
    path = tmp_path / "store"
    shutil.copytree(base, path)
    with_older_life(path)
    assert not audit(path, runner=LocalRunner(1)).findings
    shutil.rmtree(path / "consumequeue")
    reput.MessageStore.open(path, **SIZES).close()
    assert reached(path) == reached(base)


def test_nor_is_it_where_reading_or_dispatch_begins_at_the_blank(base: Path, tmp_path: Path) -> None:
    path = tmp_path / "store"
    shutil.copytree(base, path)
    begin = with_older_life(path)
    file = StoreDirectory(path).log_files()[0]
    scan = scan_split(Split(file, begin, file.end_offset, is_record_start=True), level=ScanLevel.HEADER)
    assert ([columns.rows for columns in scan], scan.stop) == ([], SplitStop.BLANK)
    for queue in (path / "consumequeue").glob("*/*/*"):  # as after a kill: queues were synced with the first file
        units = [queue.read_bytes()[at : at + 20] for at in range(0, SIZES["mapped_file_size_consume_queue"], 20)]
        queue.write_bytes(b"".join(unit if unit[:8] < struct.pack(">q", begin) else bytes(20) for unit in units))
    (path / "abort").write_text("1")
    reput.MessageStore.open(path, **SIZES).close()
    assert reached(path) == reached(base)


@pytest.mark.parametrize("was_killed", [False, True])
def test_the_last_store_time_alone_does_not_decide_all_later_ones(base: Path, tmp_path: Path, was_killed: bool) -> None:
    path = tmp_path / "store"
    shutil.copytree(base, path)
    record = stored(path)[-1]
    record.change(56, struct.pack(">q", record.number(56) + 140 * 365 * DAY_MS))
    if was_killed:
        (path / "abort").write_text("1")
    with reput.MessageStore.open(path, **SIZES) as store:
        result = store.put_message(reput.Message("t0", b"new"))
    assert abs(result.store_timestamp - time.time() * 1000) < DAY_MS
