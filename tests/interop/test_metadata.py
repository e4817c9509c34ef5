"""The JSON files below config/: RocketMQ's own managers write what we read, and read what we write."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import reput
from reput.formats.fastjson import decode_fastjson, encode_fastjson
from reput.formats.metadata import (
    BEGIN_OFFSET_TABLE,
    FILE_NAMES,
    ConsumerOffsets,
    DataVersion,
    DelayOffsets,
    LmqConsumerOffsets,
    SimpleSubscriptionData,
    SubscriptionGroupConfig,
    SubscriptionGroups,
    TimerMetrics,
    TopicConfig,
    TopicMetric,
    Topics,
    TransactionMetrics,
    decode_metadata,
    encode_metadata,
)
from reput.jobs.audit.job import audit
from reput.jobs.runner import LocalRunner
from tests.support.rocketmq.apache import SOURCES, build

pytestmark = pytest.mark.java

#: The managers are a broker's, and differ so much between versions that they are compiled for this one only.
VERSION = "5.3.3"
ODD = "{1:2} \" \\ \n \x07 \x85 \u2028 ü 😀 / , 3: ' $.a.b"
CHANGED = DataVersion(5, 0, 1_700_000_000_000)
OURS: tuple[object, ...] = (
    Topics(
        {"a": TopicConfig("a", 3, 4, 2, attributes={ODD: ODD}), ODD: TopicConfig(ODD, order=True)},
        CHANGED,
        begin_offset_table={"deleted": 1 << 40, ODD: 1},
    ),
    SubscriptionGroups(
        {
            "g": SubscriptionGroupConfig("g", subscription_data_set=(SimpleSubscriptionData("t", "TAG", ODD, 3),)),
            ODD: SubscriptionGroupConfig(ODD, retry_max_times=3, attributes={"x": ODD}),
        },
        {"g": {ODD: 2}},
        CHANGED,
    ),
    ConsumerOffsets({"t@g": {0: 12, 1: 7, 100: 1 << 50}, ODD: {0: 1}}, CHANGED),
    LmqConsumerOffsets({"t@g": {0: 12}}, {"%LMQ%a@g": 3}),
    DelayOffsets({1: 5, 18: 3}, CHANGED),
    TimerMetrics({"t": TopicMetric(3, 1_700_000_000_001)}, CHANGED),
    TransactionMetrics({"t": TopicMetric(3, 1_700_000_000_001)}, CHANGED),
)


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., None]:
    """`java("MetadataFiles", "write", folder)`: runs a class of lab/interop/src/managers."""
    built = build(VERSION)
    jars = f"{built / 'jars'}/*"
    classes = tmp_path_factory.mktemp("classes")
    sources = (SOURCES / "src/managers/java/reput/interop").glob("*.java")
    subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", classes, *sources], check=True, capture_output=True)

    def run(name: str, *arguments: object) -> None:
        silent = f"-Drmq.logback.configurationFile={built / 'classes/logback.xml'}"
        command = ["java", silent, f"-Duser.home={classes}", "-cp", f"{classes}:{jars}", f"reput.interop.{name}"]
        subprocess.run([*command, *map(str, arguments)], check=True, capture_output=True, timeout=600)

    return run


@pytest.fixture
def managers(java: Callable[..., None]) -> Callable[..., None]:
    """`managers("write", folder)`."""
    return partial(java, "MetadataFiles")


def test_what_rocketmq_writes_is_read_and_written_back(managers: Callable[..., None], tmp_path: Path) -> None:
    managers("write", tmp_path)
    written = sorted(tmp_path.glob("*.json"))
    assert len(written) == 9
    for path in written:
        data = path.read_bytes()
        again = encode_fastjson(decode_fastjson(data))
        assert (again == data) == (b'"$ref"' not in data), path.name
        assert decode_fastjson(again) == decode_fastjson(data)
    for kind, name in FILE_NAMES.items():
        value = decode_metadata(kind, (tmp_path / name).read_bytes())
        assert decode_metadata(kind, encode_metadata(value)) == value


def test_what_we_write_rocketmq_reads(managers: Callable[..., None], tmp_path: Path) -> None:
    for value in OURS:
        (tmp_path / FILE_NAMES[type(value)]).write_bytes(encode_metadata(value))
    managers("copy", tmp_path, tmp_path / "theirs")
    for value in OURS:
        name = FILE_NAMES[type(value)]
        theirs = decode_fastjson((tmp_path / "theirs" / name).read_bytes())
        theirs.pop("groupTopicMap", None)
        ours = decode_fastjson(encode_metadata(value))
        ours.pop(BEGIN_OFFSET_TABLE, None)  # RocketMQ passes over it, and writes the file without it
        if isinstance(value, LmqConsumerOffsets):  # `LmqConsumerOffsetManager.decode` leaves it out
            del theirs["dataVersion"], ours["dataVersion"]
        assert theirs == ours, name


def test_a_broker_that_opened_and_closed_a_store_of_ours_has_changed_no_topic_of_it(
    java: Callable[..., None], tmp_path: Path
) -> None:
    topics = (TopicConfig("orders", 3, 4, 2, order=True, attributes={"message.type": "FIFO"}), TopicConfig("plain"))
    with reput.MessageStore.open(tmp_path, mapped_file_size_commit_log=65_536) as store:
        for topic in topics:
            store.update_topic(topic)
    file = tmp_path / "config/topics.json"
    ours = decode_metadata(Topics, file.read_bytes())
    java("BrokerTopics", tmp_path)
    theirs = decode_metadata(Topics, file.read_bytes())
    assert theirs.data_version == ours.data_version
    assert len(theirs.topic_config_table) > len(ours.topic_config_table)
    assert audit(tmp_path, runner=LocalRunner(1)).findings == ()
    file.write_bytes(file.read_bytes().replace(b'"message.type":"FIFO"', b'"message.type":"FIFN"'))
    assert [found.code for found in audit(tmp_path, runner=LocalRunner(1)).findings] == ["config-changed"]
