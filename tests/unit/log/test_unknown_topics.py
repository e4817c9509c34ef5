"""A wanted topic that a store does not have is said, by whoever reads some topics of a store; and no other one is."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput import Message, TopicConfig
from reput.jobs.lake import ExportOptions, export
from reput.jobs.query import Source, find_messages, query_sql
from reput.jobs.runner import LocalRunner
from reput.jobs.statistics import statistics
from reput.log.directory import StoreDirectory
from reput.log.unknown_topics import unknown_topic, unknown_topics, without_warnings

Read = Callable[[str, str], object]

READS: dict[str, Read] = {
    "read_log": lambda store, topic: reput.read_log(store, topics=[topic]),
    "log_dataset": lambda store, topic: reput.log_dataset(store, topics=[topic]),
    "find_messages": lambda store, topic: find_messages(store, topics=[topic]),
    "query_sql": lambda store, topic: query_sql(Source(path=store, topics=[topic]), "select count(*) from messages"),
    "statistics": lambda store, topic: statistics(store, runner=LocalRunner(), topics=[topic]),
    "export": lambda store, topic: export(
        store, f"{store}-{topic}", runner=LocalRunner(), options=ExportOptions(topics=[topic])
    ),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("topics") / "store"
    with reput.MessageStore.open(path, small=True) as opened:
        opened.put_messages([Message("orders", b"a"), Message("items", b"b")])
        opened.wait_dispatched()
    return str(path)


@pytest.mark.parametrize("name", READS)
def test_a_topic_that_is_not_there_is_said_once_with_the_nearest_name(
    name: str, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    READS[name](store, "ordres")
    said = [record.getMessage() for record in caplog.records if record.name == "reput.topics"]
    assert said == ["there is no topic 'ordres'; did you mean 'orders'?"]
    caplog.clear()
    READS[name](store, "orders")
    assert "reput.topics" not in {record.name for record in caplog.records}


def test_a_tail_says_which_topic_it_waits_for_if_another_one_has_nearly_its_name(
    store: str, caplog: pytest.LogCaptureFixture
) -> None:
    with reput.MessageStore.open(store, read_only=True) as opened:
        for topic in ("orders", "later", "ordres"):
            opened.tail(topic).close()
    assert caplog.messages == [
        "there is no topic 'ordres'; did you mean 'orders'?; messages of 'ordres' are waited for"
    ]


def test_a_command_that_has_said_it_silences_the_warning(store: str, caplog: pytest.LogCaptureFixture) -> None:
    with without_warnings():
        reput.read_log(store, topics=["ordres"])
    assert caplog.messages == []
    assert not logging.getLogger("reput.topics").disabled


@pytest.mark.parametrize(
    ("known", "text"),
    [
        (["orders"], None),
        (["orderz", "a"], "there is no topic 'orders'; did you mean 'orderz'?"),
        (["a", "b"], "there is no topic 'orders'; there are a, b"),
        ([], "the store has no queue of topic 'orders': it has no consume queue with messages"),
    ],
)
def test_texts(known: list[str], text: str | None) -> None:
    assert unknown_topic("orders", known) == text


def test_a_log_without_queues_is_read_all_the_same(tmp_path: Path) -> None:
    with reput.MessageStore.open(tmp_path / "store", small=True, dispatch="external") as opened:
        opened.put_message(Message("orders", b"a"))
    assert reput.read_log(tmp_path / "store", topics=["orders"]).read_all().num_rows == 1


def test_a_topic_that_was_made_is_there_before_its_first_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with reput.MessageStore.open(tmp_path, small=True) as opened:
        opened.put_message(Message("orders", b"a"))
        opened.update_topics([TopicConfig("orders2", 1, 1)])
        opened.wait_dispatched()
        opened.tail("orders2").close()
    reput.read_log(tmp_path, topics=["orders2"])
    assert caplog.messages == []
    (tmp_path / "config" / "topics.json").write_text("{")
    (tmp_path / "config" / "topics.json.bak").unlink(missing_ok=True)
    assert unknown_topics(["orders2"], StoreDirectory(tmp_path)) == [
        "there is no topic 'orders2'; did you mean 'orders'?"
    ]


def test_very_many_names_are_looked_at_once_and_few_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with reput.MessageStore.open(tmp_path, small=True) as opened:
        opened.put_message(Message("orders", b"a"))
    names = {f"orders-{number:06}-eu" for number in range(20_000)}
    monkeypatch.setattr(StoreDirectory, "topic_folders", lambda _: names)
    compared: list[int] = []

    def compare(topic: str, known: list[str], n: int) -> list[str]:
        compared.append(len(known))
        return difflib.get_close_matches(topic, known, n)

    monkeypatch.setattr("reput.log.unknown_topics.get_close_matches", compare)
    wanted = [*names, "orders-010000-e", *(f"x{number}" for number in range(20))]
    texts = unknown_topics(wanted, StoreDirectory(tmp_path))
    assert texts[0] == "there is no topic 'orders-010000-e'; did you mean 'orders-010000-eu'?"
    assert texts[-1].startswith("there are no topics x15, x16, ")
    assert len(texts) == 9
    assert max(compared) <= 1000
    assert len(compared) == 8
