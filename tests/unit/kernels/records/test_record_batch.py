import datetime as dt
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from reput.formats.record_layout import FIELDS
from reput.kernels.records.columns import RecordStatus
from reput.kernels.records.record_batch import PROPERTY_COLUMNS, SCHEMA, record_batch, status_text
from reput.kernels.records.record_scan import RecordScanner, ScanLevel
from tests.oracles.record_bytes import Record, pack_log

V6 = bytes.fromhex("20010db8000000000000000000000001") + b"\0\0\x2a\x9f"


def batch_of(*records, names=None, level=ScanLevel.PROPERTIES, check_crc=True):
    data = np.frombuffer(pack_log(list(records), 0), np.uint8)
    columns = RecordScanner(20, level=level).scan(data, 0, check_crc=check_crc)
    assert columns.rows == len(records)
    batch = record_batch(columns, names or SCHEMA.names, store="broker-a")
    batch.validate(full=True)
    return batch


def test_a_row_shows_every_field():
    record = Record(
        queue_id=2, flag=5, queue_offset=9, sys_flag=0x1, born_timestamp=1_700_000_000_123, born_host=V6,
        store_timestamp=1_700_000_000_456, store_host=b"\x0a\0\0\1\0\0\x2a\x9f", reconsume_times=3,
        prepared_transaction_offset=8, body=b"\xff\0body", topic="订单".encode(),
        properties=b"UNIQ_KEY\x01u\x02TAGS\x01t\x02KEYS\x01k1  k2\x02b\x011\x02a\x012\x02b\x013\x02",
    )  # fmt: skip
    size = len(record.pack())
    (row,) = batch_of(record).to_pylist()
    assert 0 <= row.pop("body_crc") < 2**31
    assert row == {
        "store": "broker-a", "topic": "订单", "queue_id": 2, "queue_offset": 9, "commit_log_offset": 0,
        "store_size": size, "magic_code": -626843481, "flag": 5, "sys_flag": 0x11,
        "born_timestamp": dt.datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=dt.UTC),
        "store_timestamp": dt.datetime(2023, 11, 14, 22, 13, 20, 456_000, tzinfo=dt.UTC),
        "born_host": "[2001:db8::1]:10911", "store_host": "10.0.0.1:10911", "reconsume_times": 3,
        "prepared_transaction_offset": 8, "tags": "t", "unique_key": "u", "keys": ["k1", "k2"],
        "properties": [("a", "2"), ("b", "3")], "body": b"\xff\0body", "status": "OK",
    }  # fmt: skip


HOSTS = {
    "one": ([V6, V6], ["[2001:db8::1]:10911"] * 2),
    "another port": ([V6, V6[:-1] + b"\xa0"], ["[2001:db8::1]:10911", "[2001:db8::1]:10912"]),
    "another address": ([V6, V6[:15] + b"\2" + V6[16:]], ["[2001:db8::1]:10911", "[2001:db8::2]:10911"]),
    "of both sizes": ([b"\x0a\0\0\1\0\0\x2a\x9f", V6], ["10.0.0.1:10911", "[2001:db8::1]:10911"]),
}


@pytest.mark.parametrize("column", ["born_host", "store_host"])
@pytest.mark.parametrize("other", [bytes(8), V6])
@pytest.mark.parametrize(("hosts", "texts"), HOSTS.values(), ids=HOSTS)
def test_each_row_shows_its_own_hosts(column, other, hosts, texts):
    """Hosts that all rows share are decoded once; these differ in their last bytes, or in their size."""
    rest = "store_host" if column == "born_host" else "born_host"
    batch = batch_of(*(Record(**{column: host, rest: other}) for host in hosts))
    assert batch[column].to_pylist() == texts


def test_what_is_absent_is_null_or_empty():
    first = batch_of(
        Record(), Record(properties=b"TAGS\x01t\x02"), Record(properties=b"UNIQ_KEY\x01u\x02KEYS\x01k\x02")
    )
    assert first["tags"].to_pylist() == [None, "t", None]
    assert first["unique_key"].to_pylist() == [None, None, "u"]
    assert first["keys"].to_pylist() == [[], [], ["k"]]
    assert first["properties"].to_pylist() == [[], [], []]
    assert first["tags"].null_count == 2
    assert first["body"].to_pylist() == [b""] * 3


PROPERTIES = {
    b"a\x01b": [("a", "b")],
    b"a\x01b\x02": [("a", "b")],
    b"a\x01b\x01c\x02": [("a", "b\x01c")],
    b"a\x01\x01\x02": [("a", "\x01")],
    b"a\x01\x02\x01b\x02ab\x02\x02c\x01d": [("c", "d")],
    b"a\x011\x02b\x012\x02a\x013\x02": [("b", "2"), ("a", "3")],
    b"a\x011\x02a\x012\x02a\x013\x02": [("a", "3")],
    b"a\x011\x02a\x01\x02": [("a", "1")],
    b"ab\x011\x02ac\x012\x02abc\x013\x02": [("ab", "1"), ("ac", "2"), ("abc", "3")],
    b"TAGS\x01t\x02KEYS\x01k\x02UNIQ_KEY\x01u\x02WAIT\x01false\x02": [("WAIT", "false")],
    b"TAGX\x01t\x02KEYX\x01k\x02UNIQ_KEX\x01u\x02XNIQ_KEY\x01v\x02": [
        ("TAGX", "t"), ("KEYX", "k"), ("UNIQ_KEX", "u"), ("XNIQ_KEY", "v"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("text", "pairs"), PROPERTIES.items())
def test_properties_are_the_last_pair_of_each_name(text, pairs):
    batch = batch_of(Record(properties=b"x\x01y"), Record(properties=text), Record(properties=b"x\x01y"))
    assert batch["properties"].to_pylist() == [[("x", "y")], pairs, [("x", "y")]]


def test_a_scan_without_rows_gives_a_batch_of_the_same_schema():
    batch = batch_of()
    assert batch.num_rows == 0
    assert batch.schema == SCHEMA


def test_header_columns_need_no_more_than_a_header_scan():
    names = [name for name in SCHEMA.names if name not in PROPERTY_COLUMNS]
    record = Record(body=b"b", properties=b"a\x01b\x02TAGS\x01t\x02")
    header = batch_of(record, names=names, level=ScanLevel.HEADER)
    assert header.equals(batch_of(record, names=names, level=ScanLevel.KEYS))


def test_columns_come_in_the_order_asked_for():
    assert batch_of(Record(), names=["status", "topic", "store"]).schema.names == ["status", "topic", "store"]


INVALID = {
    "topic": Record(topic=b"\xff\xfe"),
    "tags": Record(properties=b"TAGS\x01\xe2\x82\x02"),
    "unique_key": Record(properties=b"UNIQ_KEY\x01\xed\xa0\x80\x02"),
    "keys": Record(properties=b"KEYS\x01a \xff b\x02"),
    "properties": Record(properties=b"\xff\x01b\x02"),
}


@pytest.mark.parametrize("name", INVALID)
def test_text_that_is_no_utf8_is_replaced_and_its_row_says_so(name):
    good = Record(topic="订\ufffd".encode(), properties="TAGS\x01\ufffd\x02KEYS\x01k1 k2\x02a\x01é\x02".encode())
    batch = batch_of(good, INVALID[name], good, INVALID[name], names=[name, "status"])
    assert batch["status"].to_pylist() == ["OK", "TEXT_REPLACED", "OK", "TEXT_REPLACED"]
    assert "\ufffd" in str(batch[name][1])
    other = batch_of(good, INVALID[name], names=["queue_id", "status"])
    assert other["status"].to_pylist() == ["OK", "OK"]


def test_a_broken_value_of_a_property_marks_its_own_row():
    batch = batch_of(Record(properties=b"a\x01b\x02c\x01d\x02"), Record(properties=b"a\x01\xff\x02"), Record())
    assert batch["status"].to_pylist() == ["OK", "TEXT_REPLACED", "OK"]
    assert batch["properties"].to_pylist() == [[("a", "b"), ("c", "d")], [("a", "\ufffd")], []]


FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999


def test_times_outside_the_years_1_to_9999_are_null():
    times = [FIRST_MS, FIRST_MS - 1, LAST_MS, LAST_MS + 1, 2**63 - 1, -(2**63), 0]
    batch = batch_of(*[Record(born_timestamp=ms, store_timestamp=1) for ms in times])
    micros = batch["born_timestamp"].cast(pa.int64()).to_pylist()
    assert micros == [FIRST_MS * 1000, None, LAST_MS * 1000, None, None, None, 0]
    assert batch["status"].to_pylist() == ["OK" if value is not None else "TIME_OUT_OF_RANGE" for value in micros]
    assert batch["born_timestamp"].to_pylist()[0].year == 1
    assert batch["born_timestamp"].to_pylist()[2].year == 9999
    assert batch["store_timestamp"].cast(pa.int64()).to_pylist() == [1000] * 7


def test_all_faults_of_a_row_are_named():
    record = Record(body=b"x", body_crc=1, topic=b"\xff", store_timestamp=2**62)
    assert batch_of(record)["status"].to_pylist() == ["BAD_BODY_CRC,TEXT_REPLACED,TIME_OUT_OF_RANGE"]
    assert batch_of(record, check_crc=False)["status"].to_pylist() == ["TEXT_REPLACED,TIME_OUT_OF_RANGE"]


def test_status_bits_have_names():
    assert status_text(np.array([0, 1, 2, 4, 8, 16, 31], np.int32)).to_pylist() == [
        "OK", "BAD_BODY_CRC", "TEXT_REPLACED", "TIME_OUT_OF_RANGE", "BODY_UNDECODED",
        "BAD_PROPERTY_CRC", "BAD_BODY_CRC,TEXT_REPLACED,TIME_OUT_OF_RANGE,BODY_UNDECODED,BAD_PROPERTY_CRC",
    ]  # fmt: skip
    bits = [value for name, value in vars(RecordStatus).items() if name.isupper() and name != "NAMES" and value]
    assert sorted(bits) == [bit for bit, _ in RecordStatus.NAMES]


def test_a_batch_outlives_the_scanners_next_scan():
    scanner = RecordScanner(4)
    first = np.frombuffer(pack_log([Record(queue_id=1, body=b"first")], 0), np.uint8).copy()
    second = np.frombuffer(pack_log([Record(queue_id=2, body=b"other", topic=b"TOPIC")], 0), np.uint8)
    batch = record_batch(scanner.scan(first, 0), SCHEMA.names)
    before = batch.to_pylist()
    scanner.scan(second, 0)
    first[:] = 0
    assert batch.to_pylist() == before


def test_the_arrow_schema_shows_every_field_of_a_record_in_its_type():
    wide = {"born_timestamp": pa.timestamp("us", "UTC"), "store_timestamp": pa.timestamp("us", "UTC")}
    types = {"i": pa.int32(), "q": pa.int64()}
    shown = {field.column: field for field in FIELDS if field.column}
    assert set(shown) <= set(SCHEMA.names)
    for name, field in shown.items():
        if field.code in types:
            assert SCHEMA.field(name).type == wide.get(name, types[field.code]), name
    assert set(SCHEMA.names) - set(shown) == {"store", "tags", "unique_key", "keys", "status"}


#: All columns of two messages with hosts of their own.
_ROWS = """
import sys
import numpy as np
from reput.kernels.records.record_batch import SCHEMA, record_batch
from reput.kernels.records.record_scan import RecordScanner, ScanLevel
columns = RecordScanner(20, level=ScanLevel.PROPERTIES).scan(np.frombuffer(sys.stdin.buffer.read(), np.uint8), 0)
batch = record_batch(columns, SCHEMA.names, store="broker-a")
print(len(batch["born_host"].dictionary_encode().dictionary), [name for name in ("pandas",) if name in sys.modules])
"""


def test_rows_are_made_without_pandas():
    data = pack_log([Record(born_host=host) for host in HOSTS["another port"][0]], 0)
    result = subprocess.run([sys.executable, "-c", _ROWS], input=data, capture_output=True, check=False)
    assert result.stdout == b"2 []\n", result.stderr.decode()
