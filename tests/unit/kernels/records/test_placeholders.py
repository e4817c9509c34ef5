"""Placeholders in scanned records: which they are, and what is left without them."""

from __future__ import annotations

import numpy as np
import pytest

from reput.formats.hosts import encode_host
from reput.formats.message import Message
from reput.formats.record import encode_record
from reput.formats.record_layout import SysFlag
from reput.kernels.records.columns import RecordColumns
from reput.kernels.records.placeholders import PLACEHOLDER_TOPIC, are_placeholders, message_count, without_placeholders
from reput.kernels.records.record_scan import RecordScanner, ScanLevel

NOBODY = "0.0.0.0:0"
ROLLED_BACK = SysFlag.TRANSACTION_ROLLBACK
#: Topic, flags, host, and whether the record is a placeholder.
RECORDS = [
    ("orders", 0, "10.0.0.1:10911", False),
    (PLACEHOLDER_TOPIC, ROLLED_BACK, NOBODY, True),
    ("refunds", 0, "10.0.0.1:10911", False),
    ("D", ROLLED_BACK, NOBODY, True),
    ("DAMA", ROLLED_BACK, NOBODY, True),
    (PLACEHOLDER_TOPIC, ROLLED_BACK, "10.0.0.1:10911", False),
    (PLACEHOLDER_TOPIC, 0, NOBODY, False),
    ("DAMAGED2", ROLLED_BACK, NOBODY, False),
    ("orders", ROLLED_BACK, NOBODY, False),
    ("A", ROLLED_BACK, NOBODY, False),
    ("refunds", 0, "10.0.0.1:10911", False),
]


def scanned(level: ScanLevel) -> RecordColumns:
    data = b""
    for number, (topic, flag, host, _) in enumerate(RECORDS):
        message = Message(topic, b"body", keys=() if flag else (f"k{number}",), sys_flag=flag)
        data += encode_record(
            message, queue_id=0, queue_offset=0, commit_log_offset=len(data), store_timestamp=1,
            store_host=encode_host(host), born_timestamp=1, born_host=encode_host(host),
        )  # fmt: skip
    return RecordScanner(level=level).scan(np.frombuffer(data, np.uint8), 0)


@pytest.mark.parametrize("level", ScanLevel)
def test_records_of_no_host_that_are_rolled_back_and_have_the_topic_placeholder(level: ScanLevel) -> None:
    columns = scanned(level)
    expected = [is_placeholder for *_, is_placeholder in RECORDS]
    assert are_placeholders(columns).tolist() == expected
    assert message_count(columns) == expected.count(False)
    left = without_placeholders(columns)
    assert left["commit_log_offset"].tolist() == columns["commit_log_offset"][~np.array(expected)].tolist()
    if level >= ScanLevel.QUEUES:
        names = left.queues()
        topics = [topic for topic, *_, is_placeholder in RECORDS if not is_placeholder]
        assert [names[number][0].decode() for number in left["queue"]] == topics
    if level >= ScanLevel.KEYS:
        assert [topics[row] for row in left.key_rows.tolist()] == ["orders", "refunds", PLACEHOLDER_TOPIC, "refunds"]


def test_records_without_placeholders_are_the_same_object() -> None:
    columns = without_placeholders(scanned(ScanLevel.KEYS))
    assert without_placeholders(columns) is columns
