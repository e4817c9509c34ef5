from collections import defaultdict

import pytest

from reput.formats.hosts import encode_host
from reput.formats.record import decode_record
from reput.kernels.records.record_encode import EncodeFault
from tests.oracles.encoded_rows import EncodedRows
from tests.oracles.record_encode import EncodeRow, encode_rows, fault_of

HOST = encode_host("10.0.0.1:10911")
HOST_V6 = encode_host("[2001:db8::1]:10911")
FULL = EncodeRow(
    topic="order-topic", queue_id=3, body=b"body" * 50, tags="tag", keys=["k1", "订单"], unique_key="U" * 32,
    properties=[("a", "1"), ("b" * 40, "2" * 40)], flag=-1, sys_flag=0x101, born_timestamp=1_700_000_000_000,
    born_host=HOST, reconsume_times=2, prepared_transaction_offset=77,
)  # fmt: skip

FAULTS = {
    "BODY_TOO_LARGE": [EncodeRow(body=b"x" * 101)],
    "PROPERTIES_TOO_LARGE": [
        EncodeRow(tags="x" * 32_762),
        EncodeRow(keys=["x" * 32_762]),
        EncodeRow(unique_key="x" * 32_758),
        EncodeRow(properties=[("a", "x" * 32_765)]),
        EncodeRow(tags="x" * 20_000, unique_key="x" * 20_000),
    ],
    "SEPARATOR_IN_TAGS": [EncodeRow(tags="a\x01"), EncodeRow(tags="\x02")],
    "SEPARATOR_IN_KEYS": [EncodeRow(keys=["a", "\x01b"]), EncodeRow(keys=["\x02"])],
    "BLANK_OR_EMPTY_KEY": [EncodeRow(keys=keys) for keys in (["a b"], ["a", ""], [" "], ["", "a"])],
    "SEPARATOR_IN_UNIQUE_KEY": [EncodeRow(unique_key="a\x02b"), EncodeRow(unique_key="\x01")],
    "SEPARATOR_IN_PROPERTIES": [
        EncodeRow(properties=[pair]) for pair in (("a\x01", "b"), ("a", "b\x01c"), ("a", "\x02"))
    ],
    "EMPTY_PROPERTY": [EncodeRow(properties=[("", "b")]), EncodeRow(properties=[("a", "1"), ("a", "")])],
    "RESERVED_PROPERTY": [EncodeRow(properties=[(name, "x")]) for name in ("TAGS", "KEYS", "UNIQ_KEY")],
}  # fmt: skip
NO_FAULT = [
    FULL,
    EncodeRow(),
    EncodeRow(body=b"x" * 100),
    EncodeRow(tags="x" * 32_761),
    EncodeRow(keys=["x" * 32_761]),
    EncodeRow(unique_key="x" * 32_757),
    EncodeRow(properties=[("a", "x" * 32_764)]),
    EncodeRow(tags="a b", unique_key="a b", properties=[("a b", "c d")]),
    *[
        EncodeRow(properties=[(name, "x")])
        for name in ("WAIT", "DELAY", "TAG", "TAGSX", "UNIQ", "UNIQ_KEX", "XNIQ_KEY", "KEYZ")
    ],
]


@pytest.mark.parametrize(
    ("name", "row"), [(name, row) for name, rows in FAULTS.items() for row in rows], ids=lambda value: str(value)[:40]
)
def test_each_fault_is_found_with_its_row(name, row):
    encoded = EncodedRows([FULL, row, EncodeRow(body=b"x" * 200)])
    assert encoded.measure(HOST, max_body_size=200) == (-1 if name == "BODY_TOO_LARGE" else 16 + EncodeFault[name])
    assert EncodedRows([row]).measure(HOST, max_body_size=100) == EncodeFault[name]
    assert fault_of(row, 100) == name


@pytest.mark.parametrize("row", NO_FAULT, ids=lambda row: str(row)[:60])
def test_rows_without_fault_are_measured(row):
    encoded = EncodedRows([row])
    assert encoded.measure(HOST, max_body_size=200) == -1
    assert fault_of(row, 200) == "NONE"


def test_every_fault_has_a_case():
    assert {"NONE", *FAULTS} == {fault.name for fault in EncodeFault}


@pytest.mark.parametrize("store_host", [HOST, HOST_V6])
@pytest.mark.parametrize("born_host", [HOST, HOST_V6])
def test_hosts_of_both_sizes_set_their_bits_whatever_the_flag_said(store_host, born_host):
    rows = [EncodeRow(**{**FULL.__dict__, "born_host": born_host, "sys_flag": flag}) for flag in (0, 0x30, -1, 0x101)]
    encoded, queue = EncodedRows(rows), ("order-topic", 3)
    assert encoded.measure(store_host) == -1
    next_offsets = encoded.queue_offsets({queue: 40})
    chunk = encoded.encode(0, store_host, 4000, next_offsets, 1 << 33, 1_700_000_000_001)
    assert chunk.data == encode_rows(rows, defaultdict(int, {queue: 40}), 1 << 33, 1_700_000_000_001, store_host)


def test_wait_is_a_property_like_any_other_and_keeps_its_place():
    row = EncodeRow(tags="t", properties=[("WAIT", "false"), ("a", "b")])
    encoded = EncodedRows([row])
    assert encoded.measure(HOST) == -1
    data = encoded.encode(0, HOST, 1000, encoded.queue_offsets({("topic", 0): 0}), 0, 0).data
    assert data.endswith(b"TAGS\x01t\x02WAIT\x01false\x02a\x01b\x02")
    assert decode_record(data).properties == {"WAIT": "false", "a": "b"}


def test_prepared_and_rolled_back_messages_take_no_queue_offset():
    rows = [EncodeRow(sys_flag=kind) for kind in (0, 4, 8, 12, 0)]
    encoded = EncodedRows(rows)
    encoded.measure(HOST)
    next_offsets = encoded.queue_offsets({("topic", 0): 10})
    chunk = encoded.encode(0, HOST, 4000, next_offsets, 0, 0)
    starts = [0, *chunk.ends[:-1]]
    assert [decode_record(chunk.data, start).queue_offset for start in starts] == [10, 0, 11, 0, 12]
    assert next_offsets.tolist() == [13]


def test_encoding_stops_before_the_record_that_does_not_fit():
    encoded = EncodedRows([FULL] * 3)
    encoded.measure(HOST)
    size, offsets = encoded.record_sizes()[0], encoded.queue_offsets({("order-topic", 3): 0})
    counts = {0: 0, size - 1: 0, size: 1, 2 * size - 1: 1, 2 * size: 2, 3 * size: 3, 9 * size: 3}
    for capacity, count in counts.items():
        assert encoded.encode(0, HOST, capacity, offsets, 0, 0).ends == [size * (i + 1) for i in range(count)]
    assert encoded.encode(2, HOST, 9 * size, offsets, 0, 0).ends == [size]


@pytest.mark.parametrize("size", [*range(70), 255, 256, 257, 5000])
def test_texts_and_bodies_of_every_size_are_copied_whole(size):
    text = "".join(chr(33 + i % 90) for i in range(size))
    row = EncodeRow(body=text.encode(), tags=text, keys=[text] if text else [], unique_key=text,
                    properties=[("n" + text, "v" + text)])  # fmt: skip
    encoded = EncodedRows([row, row])
    encoded.measure(HOST)
    chunk = encoded.encode(0, HOST, 1 << 20, encoded.queue_offsets({("topic", 0): 0}), 0, 0)
    assert chunk.data == encode_rows([row, row], defaultdict(int), 0, 0, HOST)
