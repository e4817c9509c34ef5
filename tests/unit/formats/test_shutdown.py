"""What a clean exit leaves: read back, also what an older reput wrote; a wrong bit shows."""

from __future__ import annotations

import json

import pytest

from reput.formats.metadata import DataVersion, TopicConfig, Topics
from reput.formats.shutdown import Shutdown, as_json, decode_shutdown, encode_shutdown, recorded_topics

VERSION = DataVersion(3, 0, 1_700_000_000_000)
TOPICS = Topics(
    {
        "orders": TopicConfig("orders", 4, 4, order=True, attributes={"message.type": "FIFO"}),
        "ü\ud800": TopicConfig("ü\ud800", others={"liteTopicExpiration": -1}),
    },
    VERSION,
)
OFFSETS = {("orders", 0): 7, ("orders", 11): 2, ("%LMQ%a", 0): 1}
WHOLE = Shutdown(4711, 2, OFFSETS, as_json(TOPICS))
OF_BATCH = Shutdown(4711, 2, OFFSETS, None, ("batches", "orders"))


@pytest.mark.parametrize("shutdown", [WHOLE, WHOLE._replace(topics=None), Shutdown(0, -1, {}), OF_BATCH])
def test_it_is_read_back(shutdown: Shutdown) -> None:
    assert decode_shutdown(encode_shutdown(shutdown)) == shutdown


def test_topics_are_those_of_one_data_version() -> None:
    assert recorded_topics(WHOLE) == recorded_topics(WHOLE, VERSION) == TOPICS
    for other in (DataVersion(4, 0, VERSION.timestamp), DataVersion(3, 1, VERSION.timestamp), DataVersion(3)):
        assert recorded_topics(WHOLE, other) is None
    assert recorded_topics(None) is recorded_topics(WHOLE._replace(topics=None)) is None


def test_members_that_json_spells_otherwise_are_recorded_as_json_has_them() -> None:
    topic = TopicConfig("t", others={"a": (1, 2), "b": {1: "x", "y": 2}})
    recorded = recorded_topics(Shutdown(0, 0, {}, as_json(Topics({"t": topic}))))
    assert recorded is not None
    assert recorded.topic_config_table["t"].others == {"a": [1, 2], "b": {"1": "x", "y": 2}}


def test_the_file_of_an_older_reput_is_read() -> None:
    old = b'{"commitLogEnd": 4711, "indexFileCount": 2, "maxOffsets": {"orders": {"0": 7}}}'
    assert decode_shutdown(old) == Shutdown(4711, 2, {("orders", 0): 7}, None)


@pytest.mark.parametrize("shutdown", [WHOLE, WHOLE._replace(topics=None), OF_BATCH])
def test_each_wrong_bit_shows_or_changes_nothing(shutdown: Shutdown) -> None:
    data = encode_shutdown(shutdown)
    harmless = 0
    for position in range(len(data)):
        for bit in range(8):
            found = decode_shutdown(data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :])
            assert found in (None, shutdown)
            harmless += found is not None
    assert harmless < len(data)


@pytest.mark.parametrize(
    "content",
    [[], 5, {}, {"topics": 5, "crc32": 1}, {"crc32": "x"}, {"commitLogEnd": 1, "indexFileCount": 1, "topics": {}}],
)
def test_what_is_no_such_file_says_nothing(content: object) -> None:
    assert decode_shutdown(json.dumps(content).encode()) is None
    assert recorded_topics(Shutdown(0, 0, {}, {"topicConfigTable": 5})) is None
