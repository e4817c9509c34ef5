"""Bodies with queues as keys."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.errors import RemotingCommandError
from reput.remoting.queue_tables import QueueKey, decode_queue_table, encode_queue_tables

KEYS = st.builds(QueueKey, st.text(), st.text(), st.integers(-(2**31), 2**31 - 1))
VALUES = st.integers(-(2**63), 2**63 - 1) | st.text() | st.dictionaries(st.text(), st.integers(0, 9))


def test_a_table_is_as_java_writes_it() -> None:
    """The text was recorded from RocketMQ 5.3.3's answer to INVOKE_BROKER_TO_RESET_OFFSET."""
    table = {QueueKey("T1", "broker-a", 1): 14, QueueKey("T1", "broker-a", 0): 8}
    body = (
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":1,"topic":"T1"}:14,'
        b'{"brokerName":"broker-a","queueId":0,"topic":"T1"}:8}}'
    )
    assert encode_queue_tables({"offsetTable": table}) == body
    assert decode_queue_table(body, "offsetTable") == table
    assert decode_queue_table(body, "another") == {}


@given(st.dictionaries(KEYS, VALUES), st.dictionaries(st.text(), VALUES))
def test_a_table_is_read_as_it_was_written(table: dict[QueueKey, Any], others: dict[str, Any]) -> None:
    def kept(value: Any) -> Any:  # a lone surrogate cannot be written
        return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))

    expected = {QueueKey(kept(key.topic), kept(key.broker_name), key.queue_id): value for key, value in table.items()}
    body = encode_queue_tables({"others": others, "table": table})
    assert decode_queue_table(body, "table") == {key: kept(value) for key, value in expected.items()}


def test_a_key_may_be_text() -> None:
    body = json.dumps({"table": {'{"brokerName":"b","queueId":2,"topic":"t"}': 5}}).encode()
    assert decode_queue_table(body, "table") == {QueueKey("t", "b", 2): 5}


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b'{"table":3}', b'{"table":{"x":1}}', b'{"table":{{}:1}}', b'{"table":{{{}:1}:1}}', b"{}:", b"}:{",
     b'{"table":{{"topic":"t","brokerName":"b","queueId":true}:1}}', b'{"table":{{"topic":1}:1}'],
)  # fmt: skip
def test_a_body_that_is_no_table_is_refused(body: bytes) -> None:
    with pytest.raises(RemotingCommandError):
        decode_queue_table(body, "table")


@given(st.text('{}:",\\ ab'))
def test_no_text_is_a_bug(text: str) -> None:
    with suppress(RemotingCommandError):
        decode_queue_table(text.encode(), "a")
