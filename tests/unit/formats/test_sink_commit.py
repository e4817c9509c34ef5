"""What a store says of its sinks, and the frames of staged records: back as they went, and damage is told."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.errors import CorruptMetadataError, StoreFormatError
from reput.formats.sink_commit import (
    BrokenBatch,
    SinkBatch,
    SinkCommit,
    SinkIntent,
    Sinks,
    StagedPart,
    decode_sinks,
    encode_sinks,
)
from reput.formats.staged_records import HEAD_SIZE, decode_frame_head, decode_tables, encode_frame_head

NAMES, COUNTS = st.text(min_size=1, max_size=9), st.integers(0, (1 << 63) - 1)
BATCHES = st.builds(SinkBatch, NAMES, COUNTS, st.none() | NAMES)
PARTS = st.lists(
    st.builds(StagedPart, NAMES, st.integers(1, (1 << 63) - 1), COUNTS, COUNTS), min_size=1, max_size=3
).map(tuple)
INTENTS = st.builds(SinkIntent, st.none() | BATCHES, COUNTS, COUNTS, COUNTS, st.booleans(), PARTS)
COMMITS = st.builds(SinkCommit, st.none() | BATCHES, COUNTS, COUNTS, COUNTS, COUNTS)
SINKS = st.builds(
    Sinks,
    st.dictionaries(NAMES, COMMITS, max_size=3),
    st.none() | INTENTS,
    st.dictionaries(NAMES, st.builds(BrokenBatch, INTENTS, COUNTS), max_size=2),
)
ONE = Sinks(
    {"by_hour": SinkCommit(SinkBatch("by_hour", 7, "q"), 1000, 2000, 3, 99)},
    SinkIntent(None, 2000, 101, 99, False, (StagedPart("/staged/0", 5, 500, 12),)),
)


@given(SINKS)
def test_what_is_written_is_read(sinks: Sinks) -> None:
    assert decode_sinks(encode_sinks(sinks), "file") == sinks


def test_the_file_is_json_in_the_words_of_rocketmq_s_files() -> None:
    content = json.loads(encode_sinks(ONE))
    assert content["commits"]["by_hour"] == {
        "batch": {"sinkId": "by_hour", "batchId": 7, "queryId": "q"},
        "beginOffset": 1000,
        "endOffset": 2000,
        "rows": 3,
        "storeTimestamp": 99,
    }
    assert content["intent"]["parts"] == [{"path": "/staged/0", "rows": 5, "size": 500, "crc": 12}]


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", encode_sinks(ONE)[:-9], encode_sinks(ONE).replace(b"beginOffset", b"begin")],
)
def test_a_damaged_file_is_told_with_what_to_do(data: bytes) -> None:
    with pytest.raises(CorruptMetadataError, match=r"config/sinks.*restore it from a copy; or remove it"):
        decode_sinks(data, "config/sinks")


def test_each_wrong_bit_is_told_or_changes_nothing() -> None:
    data, harmless = encode_sinks(ONE), 0
    for position in range(len(data)):
        for bit in range(8):
            try:
                found = decode_sinks(
                    data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :], "path"
                )
            except CorruptMetadataError:
                continue
            assert found == ONE
            harmless += 1
    assert harmless < len(data)


def test_the_file_of_an_older_reput_has_no_crc() -> None:
    content = json.loads(encode_sinks(ONE))
    del content["crc32"]
    assert decode_sinks(json.dumps(content).encode(), "path") == ONE


def test_rows_of_an_intent_are_those_of_its_parts() -> None:
    assert ONE.intent is not None
    assert replace(ONE.intent, parts=ONE.intent.parts * 3).rows == 15


FRAME_ROWS = st.lists(st.tuples(st.integers(1, 99), st.integers(0, 1)), min_size=1, max_size=20)


@given(FRAME_ROWS, st.text(max_size=5))
def test_a_frame_comes_back_as_it_went(rows: list[tuple[int, int]], topic: str) -> None:
    keys = [(topic, 0), ("other", 7)]
    positions = np.cumsum([0, *(size for size, _ in rows)]).astype(np.int32)
    queues = np.array([queue for _, queue in rows], np.int32)
    data = encode_frame_head(keys, positions.tobytes(), queues.tobytes(), int(positions[-1]))
    head = decode_frame_head(data[:HEAD_SIZE], "file")
    assert (head.rows, head.records_size, head.tables_size) == (len(rows), positions[-1], len(data) - HEAD_SIZE)
    assert decode_tables(head, data[HEAD_SIZE:], "file") == (keys, positions.tobytes(), queues.tobytes())


def test_a_changed_frame_is_refused() -> None:
    data = bytearray(encode_frame_head([("topic", 0)], bytes(8), bytes(4), 1))
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 1
        if 8 <= position < 16:  # the size of the records, which their CRC guards
            continue
        with pytest.raises(StoreFormatError, match="file: "):
            decode_tables(decode_frame_head(bytes(changed[:HEAD_SIZE]), "file"), bytes(changed[HEAD_SIZE:]), "file")


def test_the_worked_examples_are_what_the_code_writes() -> None:
    text = (Path(__file__).parents[3] / "docs" / "formats" / "sink-commit.md").read_text()
    shown = re.findall(r"```json\n(.*?)```", text, re.DOTALL)[0].encode()
    sinks = decode_sinks(shown, "page")
    assert json.loads(encode_sinks(sinks)) == json.loads(shown)
    lines = re.findall(r"```hex\n(.*?)```", text, re.DOTALL)[0].splitlines()
    positions, queues = np.array([0, 91, 191], np.int32), np.zeros(2, np.int32)
    data = encode_frame_head([("orders", 0)], positions.tobytes(), queues.tobytes(), 191)
    assert b"".join(bytes.fromhex(line[10:57]) for line in lines) == data[:HEAD_SIZE]


@pytest.mark.parametrize(
    ("old", "new"),
    [('"beginOffset": 1000', '"beginOffset": "1000"'), ('"rows": 3', '"rows": -3'), ('"rows": 3', '"rows": 1e999'),
     ('"sinkId": "by_hour"', '"sinkId": null'), ('"begun": 0', '"begun": ' + "[" * 100_000),
     ('"rows": 3', '"rows": true'), ('"rows": 5', '"rows": 0'), ('"batchId": 7', '"batchId": 9223372036854775808')],
)  # fmt: skip
def test_a_value_that_no_sink_writes_is_told(old: str, new: str) -> None:
    text = re.sub(r',\s*"crc32": "\w+"', "", encode_sinks(ONE).decode())
    decode_sinks(text.encode(), "path")
    assert old in text
    with pytest.raises(CorruptMetadataError, match="expected what a sink writes"):
        decode_sinks(text.replace(old, new, 1).encode(), "path")
