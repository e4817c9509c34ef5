"""The topics of a broker's start: messages that are in the store are there for consumers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from reput import Broker, Message, MessageStore
from reput.errors import ConfigError, StoreFullError
from reput.files import DISK
from reput.formats.metadata import TopicConfig, Topics
from reput.log.metadata import read_metadata
from reput.remoting.codes import ResponseCode
from reput.store.config_files import persist_metadata
from tests.support.asking import call
from tests.support.broker import SMALL, pull_command, serving_broker
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


def test_a_topic_of_batches_without_its_configuration_keeps_no_other_topic_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path, **SMALL) as store:
        store.update_topic(TopicConfig("batches", attributes={"queue.type": "BatchCQ"}))
        store.put_batch([Message("batches", b"1"), Message("batches", b"2")])
    fill_queues(path, "orders", 0)
    (path / "config/topics.json").unlink()
    (path / "config/topics.json.bak").unlink(missing_ok=True)
    with Broker.start(path, **KEYS) as broker:
        assert call(broker.address, pull_command("orders")).code == ResponseCode.SUCCESS
    assert "a topic of messages was not made topic=batches" in caplog.text


def test_a_start_that_is_killed_before_its_own_topics_are_made_does_all_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    fill_queues(path, "orders", 0)

    def killed(*_: object) -> None:
        raise StoreFullError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(MessageStore, "update_topics", killed)
        with pytest.raises(StoreFullError):
            Broker.start(path, **KEYS)
    with Broker.start(path, **KEYS) as broker:
        assert call(broker.address, pull_command("orders")).code == ResponseCode.SUCCESS


def test_a_topic_that_was_deleted_at_a_broker_does_not_come_back_nor_its_messages(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "store"
    fill_queues(path, "orders", 0)
    Broker.start(path, **KEYS).close()
    with MessageStore.open(path, **SMALL) as store:
        store.delete_topic_config(["orders"])
    with Broker.start(path, **KEYS) as broker:
        assert call(broker.address, pull_command("orders")).code == ResponseCode.TOPIC_NOT_EXIST
    assert "messages cannot be read" not in caplog.text


def test_messages_whose_topics_are_lost_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "store"
    fill_queues(path, "orders", 0)
    Broker.start(path, **KEYS).close()
    topics = read_metadata(str(path), Topics, DISK)
    assert topics is not None
    table = {name: config for name, config in topics.topic_config_table.items() if name != "orders"}
    persist_metadata(str(path), replace(topics, topic_config_table=table), DISK)
    Broker.start(path, **KEYS).close()
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


async def test_topics_that_are_asked_for_together_are_made_together_and_a_refused_one_alone_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[int] = []
    update = MessageStore.update_topics

    def counted(store: MessageStore, configs: Sequence[TopicConfig]) -> None:
        writes.append(len(configs))
        if any(config.topic_name == "odd" for config in configs):
            raise ConfigError("it is odd")
        update(store, configs)

    monkeypatch.setattr(MessageStore, "update_topics", counted)
    async with serving_broker(tmp_path / "store") as served:
        creation = served.controller.state.creation
        writes.clear()
        names = [f"new-{number}" for number in range(300)]
        made = await asyncio.gather(*(creation.create(TopicConfig(name)) for name in names))
        assert [config.topic_name for config in made] == names
        assert writes == [300]

        writes.clear()
        odd = TopicConfig("odd")
        configs = [TopicConfig(f"more-{number}") for number in range(64)]
        found = await asyncio.gather(*map(creation.create, [*configs[:20], odd, *configs[20:]]), return_exceptions=True)
        assert [type(one) for one in found] == [TopicConfig] * 20 + [ConfigError] + [TopicConfig] * 44
        assert len(writes) <= 2 * 7
        assert not any(creation.is_creating(name) for name in [*names, "odd"])


async def test_a_broker_that_stops_waits_for_the_topics_that_are_being_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, free, update = threading.Event(), threading.Event(), MessageStore.update_topics

    def slow(store: MessageStore, configs: Sequence[TopicConfig]) -> None:
        begun.set()
        free.wait()
        update(store, configs)

    async with serving_broker(tmp_path / "store") as served:
        monkeypatch.setattr(MessageStore, "update_topics", slow)
        creation = served.controller.state.creation
        made = creation.start(TopicConfig("late"))
        await asyncio.to_thread(begun.wait)
        stopping = asyncio.create_task(creation.stop())
        await asyncio.sleep(0)
        assert not stopping.done()
        free.set()
        await stopping
        assert made.done()
        await creation.stop()  # nothing is being made
