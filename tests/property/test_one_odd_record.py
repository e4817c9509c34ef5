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
from reput.formats.batch_consume_queue import BASE_OFFSET, BATCH_UNIT_SIZE, MESSAGE_COUNT
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
from tests.support.damage import overwrite
from tests.support.examples import examples
from tests.support.plants import SIZES, Stored, blank, planted_store, stored

Bodies = dict[str, list[bytes]]
COUNT = 410
#: Records of the store with batch consume queues: most are messages, the others are inner batches.
BATCH_COUNT = 300
BATCH_SIZES = SIZES | {"mapper_file_size_batch_consume_queue": 20 * BATCH_UNIT_SIZE}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted_store(tmp_path_factory.mktemp("odd") / "store", COUNT - 10)


@pytest.fixture(scope="module")
def batch_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("odd-batches") / "store"
    with reput.MessageStore.open(path, **BATCH_SIZES) as store:
        for topic in ("single", "mixed"):
            store.update_topic(reput.TopicConfig(topic, attributes={"queue.type": "BatchCQ"}))
        for n in range(BATCH_COUNT):
            message = reput.Message("single" if n % 3 else "mixed", b"body-%d " % n * (1 + n % 17), tags=f"tag{n % 4}")
            if n % 3 or n % 2:
                store.put_message(message, n % 3 // 2)
            else:
                store.put_batch(reput.MessageExtBatch.of([message] * (1 + n % 5), unique_key=f"U{n}"), 0)
        store.wait_dispatched()
    return path


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


def set_digit(record: Stored, name: bytes, place: int, bit: int) -> bool:
    """Change a bit of a digit of a property; False where the record has none, or not so many digits."""
    at = record.data.find(name + b"\1") + len(name) + 1 + place
    digit = record.data[at : at + 1]
    if name + b"\1" not in record.data or not digit.isdigit():
        return False
    record.change(at, bytes([digit[0] ^ 1 << bit]))
    return True


def check_batch_store(path: Path, before: Bodies, most: int) -> None:
    """A start with lost queues and a rebuild lose so many records at most, and make the same queues."""
    built = path.with_name("built")
    rebuild(path, built, runner=LocalRunner(1), split_bytes=20_000)
    shutil.rmtree(path / "batchconsumequeue")
    with reput.MessageStore.open(path, **BATCH_SIZES) as store:
        store.wait_dispatched()
    assert lost(before, reached(path)) <= most
    assert files(path / "batchconsumequeue") == files(built / "batchconsumequeue")


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(number=st.integers(0, BATCH_COUNT - 1), bit=st.integers(0, 63))
def test_one_wrong_bit_of_a_queue_offset_costs_one_record_of_a_batch_queue(
    batch_base: Path, tmp_path_factory: pytest.TempPathFactory, number: int, bit: int
) -> None:
    path = tmp_path_factory.mktemp("one") / "store"
    shutil.copytree(batch_base, path)
    before = reached(path)
    changed = stored(path)[number].number(20) ^ 1 << bit if bit < 63 else -1
    stored(path)[number].change(20, struct.pack(">q", changed))
    if not 0 <= changed <= stored(path)[number].number(28) // MIN_ITEM_SIZE:  # refused, and nothing is hidden
        with pytest.raises(CorruptRecordError, match="can hold at most"):
            rebuild(path, path.with_name("built"), runner=LocalRunner(1), split_bytes=20_000)
        return
    check_batch_store(path, before, 1)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    number=st.integers(0, BATCH_COUNT // 6 - 1),
    name=st.sampled_from([b"INNER_BASE", b"INNER_NUM"]),
    place=st.integers(0, 2),
    bit=st.integers(0, 7),
)
def test_one_wrong_bit_of_an_inner_batch_costs_one_record(
    batch_base: Path, tmp_path_factory: pytest.TempPathFactory, number: int, name: bytes, place: int, bit: int
) -> None:
    path = tmp_path_factory.mktemp("one") / "store"
    shutil.copytree(batch_base, path)
    before = reached(path)
    if set_digit(stored(path)[6 * number], name, place, bit):
        check_batch_store(path, before, 1)


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.dictionaries(st.integers(0, BATCH_COUNT // 12 - 1), st.integers(0, 8), min_size=2, max_size=8))
def test_several_wrong_queue_offsets_apart_cost_as_many_records(
    batch_base: Path, tmp_path_factory: pytest.TempPathFactory, changes: dict[int, int]
) -> None:
    path = tmp_path_factory.mktemp("several") / "store"
    shutil.copytree(batch_base, path)
    before, count = reached(path), 0
    for number, bit in changes.items():
        record = stored(path)[12 * number + 1]
        if record.number(20) ^ 1 << bit <= record.number(28) // MIN_ITEM_SIZE:
            set_queue_offset(record, bit)
            count += 1
    check_batch_store(path, before, count)


@pytest.mark.parametrize("number", [1, 2, 6, 150, 151, BATCH_COUNT - 1])
def test_a_unit_of_a_batch_queue_that_leads_to_a_record_with_a_wrong_queue_offset_is_a_witness(
    batch_base: Path, tmp_path: Path, number: int
) -> None:
    for bit in (0, 3, 6):
        path = tmp_path / f"store-{bit}"
        shutil.copytree(batch_base, path)
        before, record = reached(path), stored(path)[number]
        if number % 6:
            if record.number(20) ^ 1 << bit > record.number(28) // MIN_ITEM_SIZE:
                continue
            set_queue_offset(record, bit)
        elif not set_digit(record, b"INNER_BASE", 0, min(bit, 3)):
            continue
        findings = audit(path, runner=LocalRunner(1)).findings
        assert {finding.code for finding in findings} == {"queue-offset-wrong"}
        result = repair(path, apply=True, runner=LocalRunner(1))
        assert (result.steps, result.is_fine) == ((), False)
        assert reached(path) == before


def test_a_unit_is_a_witness_of_the_number_of_messages_in_its_record(batch_base: Path, tmp_path: Path) -> None:
    path = tmp_path / "store"
    shutil.copytree(batch_base, path)
    before = reached(path)
    assert set_digit(stored(path)[12], b"INNER_NUM", 0, 2)
    (finding,) = audit(path, runner=LocalRunner(1)).findings
    assert (finding.code, finding.commit_log_offset) == ("queue-offset-wrong", stored(path)[12].number(28))
    assert "says queue offsets 5 to 11, the unit here and the records around it queue offsets 5 to 7" in finding.text
    result = repair(path, apply=True, runner=LocalRunner(1))
    assert (result.steps, result.is_fine) == ((), False)
    assert reached(path) == before


@pytest.mark.parametrize(("topic", "number"), [("single/0", 30), ("mixed/0", 4), ("mixed/0", 0), ("mixed/0", 99)])
@pytest.mark.parametrize(("position", "bit"), [(BASE_OFFSET + 6, 1), (BASE_OFFSET + 7, 4), (MESSAGE_COUNT + 1, 8)])
def test_a_wrong_unit_of_a_batch_queue_is_no_witness(
    batch_base: Path, tmp_path: Path, topic: str, number: int, position: int, bit: int
) -> None:
    path = tmp_path / "store"
    shutil.copytree(batch_base, path)
    before = reached(path)
    file = sorted((path / "batchconsumequeue" / topic).iterdir())[number // 20]
    at = number % 20 * BATCH_UNIT_SIZE + position
    overwrite(file, at, bytes([file.read_bytes()[at] ^ bit]))
    codes = {finding.code for finding in audit(path, runner=LocalRunner(1)).findings}
    assert "unit-missing" in codes
    assert codes <= {"unit-missing", "unit-wrong", "unit-behind-end"}
    assert repair(path, apply=True, runner=LocalRunner(1)).is_fine
    assert reached(path) == before


def test_a_rebuild_in_place_of_batch_queues_never_reaches_fewer_messages_without_being_asked(
    batch_base: Path, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    shutil.copytree(batch_base, path)
    before, queues = reached(path), files(path / "batchconsumequeue")
    set_queue_offset(stored(path)[151], 8)
    with pytest.raises(CorruptConsumeQueueError, match="--allow-fewer"):
        rebuild(path, None, runner=LocalRunner(1))
    assert files(path / "batchconsumequeue") == queues
    result = rebuild(path, None, runner=LocalRunner(1), allow_fewer=True)
    assert (result.damages.count, result.units) == (1, BATCH_COUNT - 1)
    assert "contradict" in result.damages.told[0].reason
    assert lost(before, reached(path)) == 1


@pytest.mark.parametrize("number", [1, 151, 6, 150])
@pytest.mark.parametrize("batch_rows", [1, 3, 7])
def test_a_jump_of_a_batch_queue_without_a_next_record_is_taken_back_by_the_next_one(
    batch_base: Path, tmp_path: Path, number: int, batch_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    shutil.copytree(batch_base, path)
    before, record = reached(path), stored(path)[number]
    if number % 6:
        set_queue_offset(record, 6 if number > 1 else 1)
    else:
        set_digit(record, b"INNER_BASE", 0, 1)
    monkeypatch.setattr("reput.store.dispatch.redispatch._MAX_ROWS", batch_rows)
    shutil.rmtree(path / "batchconsumequeue")
    reput.MessageStore.open(path, **BATCH_SIZES).close()
    # Dispatch cannot go back: where a batch has only one of two witnesses, that one is gone, too.
    assert lost(before, reached(path)) <= (1 if number > 6 else 2)


def test_a_salvage_keeps_what_is_around_an_odd_record_of_a_batch_queue(batch_base: Path, tmp_path: Path) -> None:
    path, salvaged = tmp_path / "store", tmp_path / "salvaged"
    shutil.copytree(batch_base, path)
    before = reached(path)
    set_queue_offset(stored(path)[151], 8)
    salvage(path, salvaged, apply=True, runner=LocalRunner(1))
    assert lost(before, reached(salvaged)) <= 1


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
