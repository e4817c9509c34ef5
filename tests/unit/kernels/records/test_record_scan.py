import struct

import numpy as np
import pytest

from reput.formats.properties import DELAY_LEVELS_MS
from reput.kernels.records.columns import NARROW, WIDE, RecordStatus, ScanStop
from reput.kernels.records.record_scan import RecordScanner, ScanLevel, read_records_at
from reput.kernels.records.record_search import find_record
from tests.oracles import record_scan as twin
from tests.oracles.record_bytes import SCHEDULE_TOPIC, Record, blank, pack_log
from tests.oracles.record_scan import V2

BASE = 1 << 33
STORED_MS = 1_700_000_000_000
V6 = bytes(range(20))


def as_array(data):
    return np.frombuffer(data, np.uint8).copy()


def scan(data, base_offset=BASE, *, max_rows=100, level=ScanLevel.KEYS, check_crc=True):
    return RecordScanner(max_rows, level=level).scan(as_array(data), base_offset, check_crc=check_crc)


def changed(data, position, code, value):
    """The bytes with one number changed."""
    number = struct.pack(">" + code, value)
    return data[:position] + number + data[position + len(number) :]


ONE = pack_log([Record(body=b"body", properties=b"TAGS\x01a\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01u\x02")], BASE)
TWO = pack_log([Record(body=b"first"), Record(body=b"second")], BASE)
AFTER = BASE + len(ONE)

STOPS = {
    "nothing follows": (b"", ScanStop.END_OF_BUFFER),
    "seven bytes follow": (ONE[:7], ScanStop.END_OF_BUFFER),
    "the head of a record follows": (ONE[:8], ScanStop.END_OF_BUFFER),
    "all but its last byte follows": (pack_log([Record()], AFTER)[:-1], ScanStop.END_OF_BUFFER),
    "a blank follows": (blank(500) + bytes(492), ScanStop.BLANK),
    "a blank that ends before the file follows": (blank(499) + bytes(492), ScanStop.BAD_SIZE),
    "a blank that ends after the file follows": (blank(500), ScanStop.BAD_SIZE),
    "a blank without a size follows": (blank(0), ScanStop.BAD_SIZE),
    "zeros follow": (bytes(8), ScanStop.BAD_MAGIC),
    "another magic follows": (changed(pack_log([Record()], AFTER), 4, "I", 0xDAA320A6), ScanStop.BAD_MAGIC),
    "size 90 follows": (changed(pack_log([Record()], AFTER), 0, "i", 90), ScanStop.BAD_SIZE),
    "size 0 follows": (changed(pack_log([Record()], AFTER), 0, "i", 0), ScanStop.BAD_SIZE),
    "a negative size follows": (changed(pack_log([Record()], AFTER), 0, "i", -100), ScanStop.BAD_SIZE),
    "a size one too large follows": (
        changed(pack_log([Record()], AFTER), 0, "i", 97) + b"\0", ScanStop.BAD_SIZE
    ),
    "a negative body length follows": (changed(pack_log([Record()], AFTER), 84, "i", -1), ScanStop.BAD_SIZE),
    "a huge body length follows": (changed(pack_log([Record()], AFTER), 84, "i", 2**31 - 1), ScanStop.BAD_SIZE),
    "a negative topic length follows": (changed(pack_log([Record()], AFTER), 88, "b", -1), ScanStop.BAD_SIZE),
    "a huge topic length follows": (changed(pack_log([Record()], AFTER), 88, "b", 127), ScanStop.BAD_SIZE),
    "a negative properties length follows": (changed(pack_log([Record()], AFTER), 94, "h", -1), ScanStop.BAD_SIZE),
    "no room for an IPv6 host follows": (
        changed(pack_log([Record(topic=b"")], AFTER), 36, "i", 0x30), ScanStop.BAD_SIZE
    ),
    "a record of elsewhere follows": (pack_log([Record()], AFTER + 1), ScanStop.OFFSET_MISMATCH),
}  # fmt: skip


@pytest.mark.parametrize(("tail", "stop"), STOPS.values(), ids=STOPS)
@pytest.mark.parametrize("level", list(ScanLevel))
def test_a_scan_stops_behind_the_last_whole_record_and_says_why(level, tail, stop):
    columns = scan(ONE + tail, level=level)
    assert (columns.rows, columns.consumed, columns.stop) == (1, len(ONE), stop)
    assert columns.next_offset == BASE + len(ONE)


@pytest.mark.parametrize("level", list(ScanLevel))
def test_a_blank_must_end_where_its_file_does(level):
    data = as_array(ONE + blank(500))
    for left, stop in ((500, ScanStop.BLANK), (499, ScanStop.BAD_SIZE), (501, ScanStop.BAD_SIZE)):
        assert RecordScanner(level=level).scan(data, BASE, left=len(ONE) + left).stop is stop
        found = find_record(data, BASE, left=len(ONE) + left)
        assert found == (0 if stop is ScanStop.BLANK else -1)


def test_a_buffer_that_positions_cannot_name_is_refused():
    data = np.zeros(1 << 31, np.uint8)  # takes no memory until it is touched
    with pytest.raises(ValueError, match="2147483648 bytes to scan; positions of records are int32"):
        RecordScanner(1).scan(data, BASE)


def test_a_buffer_without_a_record_gives_no_rows():
    for data in (b"", ONE[:5]):
        columns = scan(data)
        assert (columns.rows, columns.consumed, columns.stop) == (0, 0, ScanStop.END_OF_BUFFER)
        assert columns.queues() == []
        assert columns.first_fault() == 0


@pytest.mark.parametrize("magic", [twin.V1, V2])
@pytest.mark.parametrize(("born_host", "store_host"), [(bytes(8), bytes(8)), (V6, bytes(8)), (bytes(8), V6), (V6, V6)])
def test_every_field_is_found_behind_hosts_of_both_sizes_and_in_both_versions(magic, born_host, store_host):
    record = Record(
        magic=magic, queue_id=-2, flag=7, queue_offset=-(2**63), sys_flag=0x101, born_timestamp=11, born_host=born_host,
        store_timestamp=2**63 - 1, store_host=store_host, reconsume_times=-3, prepared_transaction_offset=99,
        body=b"body", topic=b"t" * (127 if magic == twin.V1 else 300), properties=b"a\x01b\x02",
    )  # fmt: skip
    data = pack_log([record], BASE)
    row = twin.scan(data, BASE).rows[0]
    columns = scan(data)
    assert {name: int(columns[name][0]) for name in (*WIDE[:5], *NARROW[:8])} == {
        name: row[name] for name in (*WIDE[:5], *NARROW[:8])
    }
    assert row["store_timestamp"] == 2**63 - 1
    for name in ("body", "topic", "properties"):
        start = int(columns[f"{name}_position"][0])
        assert data[start : start + int(columns[f"{name}_size"][0])] == getattr(record, name)


def test_a_wrong_body_crc_marks_the_row_and_the_scan_goes_on():
    data = changed(TWO, 8, "i", 1)
    columns = scan(data)
    assert columns["status"].tolist() == [RecordStatus.BAD_BODY_CRC, RecordStatus.OK]
    assert columns.first_fault() == 0
    assert scan(data, check_crc=False)["status"].tolist() == [0, 0]


def test_the_crc_of_an_empty_body_is_not_looked_at():
    assert scan(pack_log([Record(body_crc=5)], BASE))["status"].tolist() == [RecordStatus.OK]


def test_the_first_fault_is_the_first_row_with_a_status():
    columns = scan(pack_log([Record(), Record(body=b"x", body_crc=1), Record(body=b"x", body_crc=1)], BASE))
    assert columns.first_fault() == 1


def test_a_full_scan_stops_before_the_record_that_does_not_fit():
    columns = scan(TWO, max_rows=1)
    assert (columns.rows, columns.stop, columns.queues()) == (1, ScanStop.FULL, [(b"topic", 0)])
    rest = scan(TWO[columns.consumed :], columns.next_offset, max_rows=1)
    assert (rest.rows, rest.stop, rest.consumed) == (1, ScanStop.FULL, len(TWO) - columns.consumed)


def test_a_record_whose_keys_do_not_fit_waits_for_the_next_scan_with_its_queue():
    keys = b" ".join([b"k"] * 16_000)
    records = [Record(topic=topic, properties=b"KEYS\x01" + keys + b"\x02") for topic in (b"a", b"b", b"a")]
    data, scanner, position = pack_log(records, BASE), RecordScanner(10), 0
    for topic in (b"a", b"b", b"a"):
        columns = scanner.scan(as_array(data[position:]), BASE + position)
        assert (columns.rows, columns.key_hashes.size) == (1, 16_000)
        assert columns.queues() == [(topic, 0)]
        position += columns.consumed
        assert columns.stop == (ScanStop.FULL if position < len(data) else ScanStop.END_OF_BUFFER)


def test_the_most_keys_that_a_record_can_hold_fit_a_scanner_of_one_row():
    keys = b" ".join([b"k"] * 16_381)
    columns = scan(pack_log([Record(properties=b"KEYS\x01" + keys)], BASE), max_rows=1)
    assert (columns.rows, columns.key_hashes.size) == (1, 16_381)


def test_queues_are_numbered_by_first_sight_and_forgotten_by_the_next_scan():
    # Topics of one length: where a scan before had a queue, the next one has the same bytes for another row.
    scanner = RecordScanner(4096, level=ScanLevel.QUEUES)
    queues = [(b"topic-%02d" % (i % 40), i // 40 - 20) for i in range(2000)]
    for rows in (queues * 2, queues[:999:-1] + queues[1000:], queues[::-1] * 2, queues[500:]):
        data = pack_log([Record(topic=topic, queue_id=queue_id) for topic, queue_id in rows], 0)
        columns = scanner.scan(as_array(data), 0)
        expected = list(dict.fromkeys(rows))
        numbers = {queue: number for number, queue in enumerate(expected)}
        assert columns.queues() == expected
        assert columns["queue"].tolist() == [numbers[queue] for queue in rows]
        assert columns.queue_rows.tolist() == [rows.index(queue) for queue in expected]


def test_queues_whose_topics_differ_in_any_byte_are_different():
    topics = [
        b"0123456789abcdef",
        b"0123456789abcdeF",
        b"X123456789abcdef",
        b"0123456789abcde",
        b"01234567",
        b"0123456",
        b"",
        *(b"x" * n + last for n in (54, 55, 56, 57, 126) for last in (b"x", b"y")),
    ]
    columns = scan(pack_log([Record(topic=topic) for topic in topics * 2], BASE))
    assert columns.queues() == [(topic, 0) for topic in topics]
    assert columns["queue"].tolist() == [*range(len(topics))] * 2


DELAYED = {
    b"DELAY\x013\x02": STORED_MS + 10_000,
    b"DELAY\x0118": STORED_MS + 7_200_000,
    b"DELAY\x0119\x02": STORED_MS + 7_200_000,
    b"DELAY\x012147483647\x02": STORED_MS + 7_200_000,
    b"DELAY\x01000003\x02": STORED_MS + 10_000,
    b"DELAY\x015\x02DELAY\x011\x02": STORED_MS + 1_000,
    b"TAGS\x01a\x02DELAY\x013\x02": STORED_MS + 10_000,
    b"TAGS\x01a\x02": 97,
    b"DELAY\x010\x02TAGS\x01a\x02": 97,
    b"DELAY\x01-1\x02TAGS\x01a\x02": 97,
    b"DELAY\x01x3\x02TAGS\x01a\x02": 97,
    b"DELAY\x013x\x02TAGS\x01a\x02": 97,
    b"DELAY\x012147483648\x02TAGS\x01a\x02": 97,
    b"DELAY\x01\x02TAGS\x01a\x02": 97,
    b"DELAYS\x013\x02TAGS\x01a\x02": 97,
    b"DELA\x013\x02": 0,
    b"": 0,
}


@pytest.mark.parametrize(("properties", "tags_code"), DELAYED.items())
def test_units_of_delayed_messages_hold_the_time_of_delivery(properties, tags_code):
    data = pack_log([Record(topic=SCHEDULE_TOPIC, store_timestamp=STORED_MS, properties=properties)], BASE)
    assert scan(data, level=ScanLevel.PROPERTIES)["tags_code"].tolist() == [tags_code]
    assert twin.scan(data, BASE).rows[0]["tags_code"] == tags_code


def test_only_the_schedule_topic_itself_is_delayed():
    for topic in (SCHEDULE_TOPIC + b"X", SCHEDULE_TOPIC[:-1], b"topic", b"SCHEDULE_TOPIC_XXXY"):
        data = pack_log([Record(topic=topic, store_timestamp=STORED_MS, properties=b"DELAY\x013\x02")], BASE)
        assert scan(data)["tags_code"].tolist() == [0]


def test_delay_levels_may_be_others():
    data = pack_log([Record(topic=SCHEDULE_TOPIC, store_timestamp=50, properties=b"DELAY\x019\x02TAGS\x01a\x02")], BASE)
    for delays, tags_code in ((DELAY_LEVELS_MS[:1], 1050), ((5, 6), 56), ((), 97)):
        columns = RecordScanner(1, delays_ms=delays).scan(as_array(data), BASE)
        assert columns["tags_code"].tolist() == [tags_code]


def test_default_delays_are_rocketmqs():
    assert list(DELAY_LEVELS_MS) == twin.DELAYS_MS
    assert len(DELAY_LEVELS_MS) == 18


@pytest.mark.parametrize(("sys_flag", "keys"), [(0x0, 3), (0x4, 3), (0x8, 3), (0xC, 0)])
def test_rolled_back_messages_have_no_keys(sys_flag, keys):
    properties = b"KEYS\x01k1 k2\x02UNIQ_KEY\x01u\x02"
    columns = scan(pack_log([Record(), Record(sys_flag=sys_flag, properties=properties)], BASE))
    assert columns.key_rows.tolist() == [1] * keys


PROPERTIES = {
    b"TAGS\x01a\x02KEYS\x01k\x02UNIQ_KEY\x01u\x02": (b"a", b"k", b"u"),
    b"TAGS\x01a\x02KEYS\x01k\x02UNIQ_KEY\x01u": (b"a", b"k", b"u"),
    b"TAGS\x01a": (b"a", b"", b""),
    b"TAGS\x01a\x02TAGS\x01b\x02": (b"b", b"", b""),
    b"TAGS\x01a\x02TAGS\x01\x02": (b"a", b"", b""),
    b"TAGS\x01a\x01b\x02": (b"a\x01b", b"", b""),
    b"TAGS\x02KEYS\x02UNIQ_KEY\x02": (b"", b"", b""),
    b"TAGSX\x01a\x02XTAGS\x01a\x02tags\x01a\x02": (b"", b"", b""),
    b"KEYS2\x01a\x02UNIQ_KEY2\x01a\x02UNIQ_KEX\x01a\x02UNIQ\x01a\x02": (b"", b"", b""),
    b"\x02\x02TAGS\x01a\x02\x02": (b"a", b"", b""),
    b"\x01TAGS\x01a\x02": (b"", b"", b""),
    b"fill\x01" + b"x" * 200 + b"\x02TAGS\x01" + b"a" * 100 + b"\x02KEYS\x01k": (b"a" * 100, b"k", b""),
    b"TAGS\x01" + b"\x02".join([b"x"] * 90): (b"x", b"", b""),
}


@pytest.mark.parametrize(("properties", "expected"), PROPERTIES.items())
@pytest.mark.parametrize("following", [b"", b"\x02" * 100, b"abc\x02" * 30])
def test_tags_keys_and_unique_key_are_found_in_the_properties_and_nowhere_behind(properties, expected, following):
    data = pack_log([Record(properties=properties)], BASE) + following
    columns = scan(data)
    for name, text in zip(("tags", "keys", "unique_key"), expected, strict=True):
        start = int(columns[f"{name}_position"][0])
        assert data[start : start + int(columns[f"{name}_size"][0])] == text


def test_separators_are_found_at_every_place_of_a_block():
    for fill in range(1, 140):
        properties = b"f\x01" + b"x" * fill + b"\x02TAGS\x01a\x02KEYS\x01k\x02"
        data = pack_log([Record(properties=properties)], BASE)
        for following in (b"", bytes(100)):
            columns = scan(data + following)
            assert (columns["tags_size"][0], columns["keys_size"][0]) == (1, 1)
            assert columns["keys_position"][0] == len(data) - 2


def test_records_are_read_where_they_lie_and_only_there():
    starts = np.array([0, len(TWO) // 2, 0], np.int64)
    second = twin.scan(TWO, BASE).rows[1]["position"]
    starts[1] = second
    columns = read_records_at(as_array(TWO), starts, starts + BASE)
    assert columns["position"].tolist() == [0, second, 0]
    for position, offset in ((1, BASE + 1), (-1, BASE - 1), (len(TWO), BASE), (len(TWO) + 1, BASE), (0, BASE + 1)):
        found = read_records_at(as_array(TWO), np.array([0, position, 0]), np.array([BASE, offset, BASE]))
        assert found.rows == 1
    assert read_records_at(as_array(TWO), np.array([0]), np.array([-1])).rows == 1


def test_records_read_where_they_lie_are_checked_like_scanned_ones():
    data = bytearray(TWO)
    data[-1] ^= 1  # not the body
    data[int(read_records_at(as_array(TWO), np.array([0]), np.array([BASE]))["body_position"][0])] ^= 1
    starts = np.array([0, twin.scan(TWO, BASE).rows[1]["position"]], np.int64)
    for checked in (False, True):
        columns = read_records_at(as_array(bytes(data)), starts, starts + BASE, check_crc=checked)
        scanned = RecordScanner(level=ScanLevel.HEADER).scan(as_array(bytes(data)), BASE, check_crc=checked)
        assert columns["status"].tolist() == scanned["status"].tolist()
    assert columns["status"].any()


def test_a_read_record_of_the_schedule_topic_has_the_hash_of_its_tags():
    data = pack_log([Record(topic=SCHEDULE_TOPIC, properties=b"DELAY\x013\x02TAGS\x01a\x02")], BASE)
    assert read_records_at(as_array(data), np.array([0]), np.array([BASE]))["tags_code"].tolist() == [97]


def test_a_record_in_a_body_that_says_it_lies_there_can_pass_for_one():
    # Why a reader of ranges has to check that neighbours meet: content may forge whole chains of records.
    head = len(Record().pack()) - len(b"topic") - 3
    forged = pack_log([Record()] * 3, BASE + head)
    data = pack_log([Record(body=forged), Record()], BASE)
    assert find_record(as_array(data), BASE, 0) == 0
    assert find_record(as_array(data), BASE, 1) == head
    honest = pack_log([Record(body=pack_log([Record()] * 3, 0)), Record()], BASE)
    assert find_record(as_array(honest), BASE, 1) == len(honest) - len(Record().pack())


@pytest.mark.parametrize(
    ("tail", "found"),
    [
        (b"", 80),
        (ONE[:40], 80),
        (blank(8), 80),
        (blank(9), -1),
        (bytes(8), 80),
        (b"\1" + bytes(7), -1),
        (changed(TWO, 0, "i", 0), -1),
    ],
)
@pytest.mark.parametrize("count", [1, 2])
def test_few_records_are_found_if_the_log_may_end_behind_them(count, tail, found):
    data = b"junk" * 20 + pack_log([Record()] * count, BASE + 80) + tail
    assert find_record(as_array(data), BASE) == found


def test_a_record_is_found_at_every_place_of_a_block():
    for fill in range(140):
        data = as_array(b"\xda" * fill + pack_log([Record()] * 2, BASE + fill))
        assert find_record(data, BASE) == fill


def test_a_lone_head_of_a_record_proves_nothing():
    assert find_record(as_array(ONE[:-1]), BASE) == -1
    assert find_record(as_array(b""), BASE) == -1
    assert find_record(as_array(ONE), BASE, len(ONE) + 5) == -1
