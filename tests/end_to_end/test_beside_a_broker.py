"""A store that a broker serves is a normal store: what reads it works beside the broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import reput
from tests.support.broker import SMALL, send_numbers
from tests.support.commands import run_reput

MESSAGES = 500


@pytest.fixture
def served(tmp_path: Path) -> Iterator[reput.Broker]:
    with reput.Broker.start(tmp_path / "store", **SMALL | {"bind_address": "127.0.0.1"}) as broker:
        send_numbers(broker.address, 0, MESSAGES)
        yield broker


def printed(*arguments: object) -> str:
    """What a command that finds nothing wrong prints."""
    answer = run_reput(*arguments)
    assert answer.status == 0, answer.err
    return answer.out


def test_commands_read_what_the_broker_has_stored(served: reput.Broker, tmp_path: Path) -> None:
    store = tmp_path / "store"
    queues = json.loads(printed("info", store, "--json"))["queues"]
    assert sum(queue["max_offset"] for queue in queues if queue["topic"] == "orders") == MESSAGES
    assert "orders" in printed("top", store, "--once", "--interval", 0)
    assert json.loads(printed("query", store, "--topic", "orders", "--key", "k7", "--json"))["body"] == "7"
    assert (
        json.loads(printed("get", store, "--topic", "orders", "--queue-id", 3, "--max-num", 1, "--json"))["body"] == "3"
    )
    printed("audit", store)


def test_a_reader_and_a_scan_go_on_while_messages_come(served: reput.Broker, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with reput.MessageStore.open(store, read_only=True) as reader:
        assert reader.max_offset("orders", 0) == MESSAGES // 4
    send_numbers(served.address, MESSAGES, 2 * MESSAGES)
    bodies = reput.read_log(store).read_all()["body"]
    assert {int(body.as_py()) for body in bodies} == set(range(2 * MESSAGES))
    with reput.MessageStore.open(store, read_only=True) as reader:
        assert reader.max_offset("orders", 0) == 2 * MESSAGES // 4


def test_a_backup_that_is_taken_meanwhile_is_a_whole_store(served: reput.Broker, tmp_path: Path) -> None:
    printed("backup", tmp_path / "store", tmp_path / "backups")
    send_numbers(served.address, MESSAGES, 2 * MESSAGES)
    printed("restore", tmp_path / "backups", tmp_path / "restored")
    with reput.MessageStore.open(tmp_path / "restored") as store:
        assert store.max_offset("orders", 1) == MESSAGES // 4
    printed("audit", tmp_path / "restored")
