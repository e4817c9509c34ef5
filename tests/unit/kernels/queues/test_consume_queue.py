import numpy as np
import pytest

from reput.formats.consume_queue import FILLER, Unit, decode_unit, encode_unit
from reput.kernels.machine.mapped_pages import PART_SIZE
from reput.kernels.queues.consume_queue import (
    ASKED_FILES,
    PULL_RESULT_COUNT,
    UNASKED,
    UNASKED_UNITS,
    Selected,
    SelectLimits,
    group_units,
    select_run,
    select_units,
)
from reput.kernels.records.record_scan import RecordScanner
from tests.oracles.record_bytes import Record, pack_log
from tests.support.asked_memory import map_of

FILE_SIZE = 1 << 20


def scan(records, base_offset=0, *, max_rows=50):
    return RecordScanner(max_rows).scan(np.frombuffer(pack_log(records, base_offset), np.uint8), base_offset)


def units_of(columns, next_offsets, begin=0):
    """Decoded units by queue, and the stop row."""
    runs = group_units(columns, np.array(next_offsets, np.int64), begin)
    by_queue = [
        [decode_unit(runs.units.tobytes(), int(start) + 20 * i) for i in range(count)]
        for start, count in zip(runs.starts, runs.counts, strict=True)
    ]
    return by_queue, runs.stop_row


def record(queue_id, queue_offset, **fields):
    return Record(queue_id=queue_id, queue_offset=queue_offset, properties=b"TAGS\x01a\x02", **fields)


def test_units_of_a_scan_are_grouped_by_queue_in_log_order():
    size = len(record(0, 0).pack())
    columns = scan([record(0, 0), record(1, 7), record(0, 1), record(1, 8), record(0, 2)], 1000)
    places = [Unit(1000 + i * size, size, 97) for i in range(5)]
    assert units_of(columns, [0, 7]) == ([[places[0], places[2], places[4]], [places[1], places[3]]], 5)
    assert units_of(columns, [1, 8], 2) == ([[places[2], places[4]], [places[3]]], 5)
    assert units_of(columns, [0, 7], 5) == ([[], []], 5)


def test_a_full_scan_and_a_partly_filled_one_give_the_same_units():
    records = [record(0, i) for i in range(3)]
    assert units_of(scan(records, max_rows=3), [0]) == units_of(scan(records, max_rows=4), [0])


def test_prepared_and_rolled_back_messages_have_no_unit():
    kinds = [0, 4, 8, 12]
    columns = scan([record(0, [0, 0, 1, 0][i], sys_flag=kind) for i, kind in enumerate(kinds)])
    units, stop = units_of(columns, [0])
    assert [unit.commit_log_offset for unit in units[0]] == [0, int(columns["commit_log_offset"][2])]
    assert stop == 4


def test_repeats_are_dropped_and_a_gap_ends_the_batch():
    columns = scan([record(0, 4), record(0, 5), record(0, 5), record(1, 0), record(0, 7), record(0, 6)])
    units, stop = units_of(columns, [5, 0])
    assert [len(queue) for queue in units] == [1, 1]
    assert stop == 4
    assert units_of(columns, [7, 1], 4)[1] == 6


def test_queue_offsets_at_the_ends_of_their_range_are_repeats_or_gaps():
    for queue_offset, stop in ((-(2**63), 1), (2**63 - 1, 0)):
        assert units_of(scan([record(0, queue_offset)]), [5]) == ([[]], stop)


def select(units, *, log=(0, FILE_SIZE), tags=(), max_count=32, max_size=1 << 27, memory_begin=0, memory=(32, 1 << 18),
           disk=(8, 1 << 16)):  # fmt: skip
    """(messages, units examined, status name)."""
    data = np.frombuffer(b"".join(encode_unit(*unit) for unit in units) + b"\0", np.uint8)
    hashes, answer = np.array([*tags], np.int32), np.empty(PULL_RESULT_COUNT + 128, np.int64)
    limits = np.array(SelectLimits(FILE_SIZE, log[1] - memory_begin, *memory, *disk), np.int64)
    select_units(
        data.ctypes.data, len(units), *log, hashes.ctypes.data, hashes.size, max_count, max_size,
        limits.ctypes.data, answer.ctypes.data,
    )  # fmt: skip
    taken, examined, status, size, _, _ = answer[:PULL_RESULT_COUNT].tolist()
    messages = [tuple(pair) for pair in answer[PULL_RESULT_COUNT:].reshape(-1, 2)[:taken].tolist()]
    assert size == sum(size for _, size in messages)
    return messages, examined, Selected(status).name


UNITS = [Unit(i * 100, 100, i % 3) for i in range(60)]
TAKEN = [(i * 100, 100) for i in range(60)]

LIMITS = {
    "by count": ({"max_count": 5}, 5),
    "by count 0, which still gives one": ({"max_count": 0}, 1),
    "by size": ({"max_size": 450}, 4),
    "by size reached exactly": ({"max_size": 400}, 4),
    "by a size below one message": ({"max_size": 100}, 1),
    "by count in memory": ({"memory": (7, 1 << 18)}, 7),
    "by size in memory": ({"memory": (32, 350)}, 3),
    "by count on disk": ({"memory_begin": 1 << 40}, 8),
    "by size on disk": ({"memory_begin": 1 << 40, "disk": (8, 250)}, 2),
    "by the limits of each message's own place": ({"memory_begin": 500, "disk": (3, 1 << 16)}, 3),
    "by disk before memory": ({"memory_begin": 300, "memory": (6, 1 << 18)}, 6),
    "by the default": ({}, 32),
}


@pytest.mark.parametrize(("limits", "count"), LIMITS.values(), ids=LIMITS)
def test_a_pull_is_limited(limits, count):
    assert select(UNITS, **limits) == (TAKEN[:count], count, "FOUND")


def select_as_they_lie(units, *, log=(0, FILE_SIZE), max_count=32, max_size=1 << 27, memory_begin=0,
                       memory=(32, 1 << 18), disk=(8, 1 << 16)):  # fmt: skip
    """(messages, bytes, first commit log offset, whether it lies on the disk); 0 messages: ask `select_units`."""
    data = np.frombuffer(b"".join(encode_unit(*unit) for unit in units), np.uint8)
    limits = np.array(SelectLimits(FILE_SIZE, log[1] - memory_begin, *memory, *disk), np.int64)
    return select_run(data.ctypes.data, len(units), 0, *log, max_count, max_size, limits.ctypes.data)


@pytest.mark.parametrize(("limits", "count"), LIMITS.values(), ids=LIMITS)
def test_a_pull_of_units_as_they_lie_is_limited_too(limits, count):
    if limits.get("memory_begin") == 300:  # some in memory, some not
        assert select_as_they_lie(UNITS, **limits)[0] == 0
    else:
        assert select_as_they_lie(UNITS, **limits) == (count, 100 * count, 0, "memory_begin" in limits)


def test_units_as_they_lie_end_with_their_log_file():
    units = [Unit(FILE_SIZE - 200, 100, 0), Unit(FILE_SIZE - 100, 100, 0), Unit(FILE_SIZE, 100, 0)]
    assert select_as_they_lie(units, log=(0, 2 * FILE_SIZE)) == (2, 200, FILE_SIZE - 200, 0)


@pytest.mark.parametrize("bad", [FILLER, Unit(250, 100, 0), Unit(FILE_SIZE - 50, 100, 0), Unit(200, 0, 0)], ids=str)
@pytest.mark.parametrize("at", [0, 1])
def test_units_as_they_lie_hold_none_without_a_record(bad, at):
    units = [Unit(100, 100, 0), Unit(200, 100, 0)]
    units.insert(at, bad)
    log = (100, 320 if bad.commit_log_offset == 250 else 2 * FILE_SIZE)
    assert select_as_they_lie(units, log=log)[0] == 0


def test_units_as_they_lie_are_in_the_logs_order():
    assert select_as_they_lie([Unit(200, 100, 0), Unit(100, 100, 0)])[0] == 0


def test_what_was_not_asked_for_is_told():
    part = PART_SIZE
    units = [Unit(10, 20, 0), Unit(part - 30, 30, 0), Unit(part + 100, 100, 0)]
    data = np.frombuffer(b"".join(encode_unit(*unit) for unit in units), np.uint8)
    units_map, marks = map_of(data), np.zeros(8, np.uint8)
    table = np.full((ASKED_FILES, 2), -1, np.int64)
    limits = np.array(SelectLimits(4 * part, 4 * part, 32, 1 << 18, 8, 1 << 16, table.ctypes.data), np.int64)

    def asked(count):
        fields = units_map.ctypes.data
        return select_run(data.ctypes.data, 3, fields, 0, 4 * part, count, 1 << 20, limits.ctypes.data)

    assert asked(1) == (1, 20, 10, UNASKED)  # nothing is known of this file
    table[0] = 0, marks.ctypes.data
    assert asked(1) == (1, 20, 10, UNASKED)
    marks[0] = 1
    assert asked(1) == (1, 20, 10, 0)
    assert asked(2) == (2, 50, 10, UNASKED)  # a kernel may read a block more than the record
    marks[1] = 1
    assert asked(3) == (3, 150, 10, 0)
    units_map.view(np.uint8)[32:] = 0
    assert asked(3)[3] == UNASKED_UNITS


def test_units_of_other_tags_are_passed_over():
    assert select(UNITS[:6], tags=[1]) == ([TAKEN[1], TAKEN[4]], 6, "FOUND")
    assert select(UNITS[:6], tags=[1, 2]) == ([TAKEN[i] for i in (1, 2, 4, 5)], 6, "FOUND")
    assert select(UNITS[:6], tags=[9]) == ([], 6, "NO_MATCHED_MESSAGE")
    assert select([], tags=[9]) == ([], 0, "NO_MATCHED_MESSAGE")


def test_the_low_half_of_the_tags_code_is_compared():
    units = [Unit(0, 100, -5), Unit(100, 100, 2**32 - 5), Unit(200, 100, -5 + (7 << 32)), Unit(300, 100, 5)]
    assert select(units, tags=[-5])[0] == TAKEN[:3]


def test_a_unit_without_a_record_is_passed_over_alone():
    units = [Unit(100, 100, 0), Unit(200, 100, 0), Unit(FILE_SIZE, 100, 0), Unit(FILE_SIZE + 100, 100, 0)]
    log = (FILE_SIZE, 2 * FILE_SIZE)
    assert select(units, log=log) == ([(FILE_SIZE, 100), (FILE_SIZE + 100, 100)], 4, "FOUND")
    assert select(units[:2], log=log) == ([], 2, "MESSAGE_WAS_REMOVING")
    # 250 lies in the same file, and RocketMQ skips it.
    assert select([Unit(100, 100, 0), Unit(250, 10, 0)], log=(200, 900)) == ([(250, 10)], 2, "FOUND")
    filler = Unit(*FILLER)
    assert select([filler, filler, Unit(250, 10, 0), filler], log=(200, 900)) == ([(250, 10)], 3, "FOUND")


@pytest.mark.parametrize(
    "unit",
    [
        FILLER,
        Unit(0, 0, 0),
        Unit(0, -1, 0),
        Unit(-1, 10, 0),
        Unit(-(2**63), 10, 0),
        Unit(2**63 - 1, 10, 0),
        Unit(2**63 - 1, 0x7FFFFFFF, 0),
        Unit(1990, 11, 0),
        Unit(FILE_SIZE - 50, 100, 0),
        Unit(FILE_SIZE - 50, 51, 0),
    ],
    ids=str,
)
def test_a_unit_that_leads_out_of_the_log_or_over_a_files_end_is_never_taken(unit):
    log_end = 2000 if unit.commit_log_offset == 1990 else 1 << 40
    assert select([unit], log=(0, log_end)) == ([], 1, "MESSAGE_WAS_REMOVING")
    assert unit not in select([UNITS[0], unit], log=(0, log_end))[0]


def test_a_pull_whose_size_is_reached_does_not_even_look_at_a_unit_without_size():
    assert select([UNITS[0], Unit(100, 0, 0)], max_size=100) == ([TAKEN[0]], 1, "FOUND")
    assert select([UNITS[0], Unit(100, 0, 0)], max_size=101) == ([TAKEN[0]], 2, "FOUND")


def test_a_pull_stays_in_the_log_file_of_its_first_message():
    units = [Unit(FILE_SIZE - 100, 100, 0), Unit(FILE_SIZE, 100, 0)]
    assert select(units, log=(0, 1 << 40)) == ([(FILE_SIZE - 100, 100)], 1, "FOUND")
    assert select(units[1:], log=(0, 1 << 40)) == ([(FILE_SIZE, 100)], 1, "FOUND")
