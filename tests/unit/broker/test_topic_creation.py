"""The topics of a broker's start: messages that are in the store are there for consumers."""

from __future__ import annotations

from pathlib import Path

import pytest

from reput import Broker, Message, MessageStore
from reput.formats.metadata import TopicConfig
from reput.remoting.codes import ResponseCode
from tests.support.asking import call
from tests.support.broker import SMALL, pull_command
from tests.support.master_and_slave import KEYS

NARROW = "messages cannot be read, as their topics have fewer queues"


def fill_queues(path: Path, topic: str, *queue_ids: int) -> None:
    with MessageStore.open(path, **SMALL) as store:
        for queue_id in queue_ids:
            store.put_message(Message(topic, b"x"), queue_id)


def test_a_store_that_no_broker_has_served_is_served_with_the_topics_of_its_messages(tmp_path: Path) -> None:
    path = tmp_path / "store"
    fill_queues(path, "orders", 0, 12)
    fill_queues(path, "%RETRY%g", 0)
    fill_queues(path, "rmq_sys_mine", 0)  # of the system: nobody may make it
    with MessageStore.open(path, **SMALL) as store:
        store.update_topic(TopicConfig("prices", 3, 3))
    with Broker.start(path, **KEYS) as broker:
        assert call(broker.address, pull_command("orders", queueId=12)).code == ResponseCode.SUCCESS
    with MessageStore.open(path, read_only=True) as store:
        found = {name: store.topics[name].read_queue_nums for name in ("orders", "%RETRY%g", "prices")}
        assert found == {"orders": 13, "%RETRY%g": 1, "prices": 3}
        assert "rmq_sys_mine" not in store.topics


def test_a_topic_that_was_deleted_at_a_broker_does_not_come_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "store"
    fill_queues(path, "orders", 0)
    Broker.start(path, **KEYS).close()
    with MessageStore.open(path, **SMALL) as store:
        store.delete_topic_config(["orders"])
    with Broker.start(path, **KEYS) as broker:
        assert call(broker.address, pull_command("orders")).code == ResponseCode.TOPIC_NOT_EXIST
    assert "messages cannot be read, as their topics are not there" in caplog.text


def test_queues_with_messages_that_a_topic_does_not_have_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "store"
    fill_queues(path, "orders", 0, 12)
    with MessageStore.open(path, **SMALL) as store:
        store.update_topic(TopicConfig("orders", 8, 8))
    Broker.start(path, **KEYS).close()
    assert f'{NARROW}; `reput admin create-topic --queues` adds some count=1 topics="orders (8 of 13)"' in caplog.text
