"""Arguments of a store's reading verbs: one of another type is refused by its name, and is not taken for nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reput
from reput import MessageStore
from reput.config.message_store import MessageStoreConfig
from reput.errors import ConfigError
from reput.jobs.query import Source, query_sql

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
_NO_WHOLE: list[object] = ["0", None, 1.5, True, b"0", MOMENT]
_NO_TEXT: list[object] = [5, None, b"orders", ["orders"]]
_NO_TIMEOUT: list[object] = [-1, "1", True, float("nan")]
#: By the verb: what is fine, and what is none by the name of an argument.
VERBS: dict[str, tuple[dict[str, object], dict[str, list[object]]]] = {
    "get_message": (
        {"topic": "orders", "queue_id": 0, "offset": 0},
        {"topic": _NO_TEXT, "queue_id": _NO_WHOLE[:2], "offset": ["0", None, MOMENT], "max_msg_nums": ["5", None],
         "tags": [5, b"a", ["a"]], "max_total_size": ["5"]},
    ),
    "min_offset": ({"topic": "orders", "queue_id": 0}, {"topic": _NO_TEXT[:3], "queue_id": ["0", None]}),
    "max_offset": ({"topic": "orders", "queue_id": 0}, {"topic": _NO_TEXT[:3], "queue_id": ["0", None]}),
    "offset_by_time": (
        {"topic": "orders", "queue_id": 0, "timestamp_ms": 0},
        {"queue_id": ["0", None], "timestamp_ms": _NO_WHOLE, "boundary": ["middle", None]},
    ),
    "message_store_timestamp": (
        {"topic": "orders", "queue_id": 0, "offset": 0}, {"queue_id": ["0", None], "offset": _NO_WHOLE},
    ),
    "query_message": (
        {"topic": "orders", "key": "k"},
        {"topic": _NO_TEXT, "key": _NO_TEXT, "max_num": ["3", None, MOMENT], "begin": ["a", None, MOMENT],
         "end": ["a", MOMENT]},
    ),
    "tail": (
        {"topic": "orders"},
        {"topic": _NO_TEXT, "group": [5, "", "a@b"], "queue_ids": [0, "0", ["0"], [None], [-1]], "tags": [5, ["a"]],
         "consume_from": ["now", None, 0, datetime(2026, 1, 1)], "timeout": _NO_TIMEOUT},
    ),
}  # fmt: skip


@pytest.fixture
def full(store: reput.MessageStore) -> reput.MessageStore:
    store.put_messages([reput.Message("orders", b"x", keys=["k"], tags="a")])
    store.wait_dispatched()
    return store


@pytest.mark.parametrize("verb", VERBS)
def test_every_argument_refuses_what_is_none_by_its_name(full: reput.MessageStore, verb: str) -> None:
    fine, bad = VERBS[verb]
    getattr(full, verb)(**fine)
    for name, values in bad.items():
        for value in values:
            with pytest.raises(ConfigError, match=rf"^{name}\b|^queue_ids "):
                getattr(full, verb)(**fine | {name: value})


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("max_messages", lambda tail: tail.poll(0)),
        ("max_messages", lambda tail: tail.poll("5")),
        ("timeout", lambda tail: tail.poll(timeout=-1)),
        ("timeout", lambda tail: tail.poll_arrow(timeout="1")),
        ("columns", lambda tail: tail.poll_arrow(columns=["tag"])),
        ("queue_id", lambda tail: tail.seek("0", 0)),
        ("queue_id", lambda tail: tail.seek(9, 0)),
        ("offset", lambda tail: tail.seek(0, -1)),
        ("offset", lambda tail: tail.seek(0, MOMENT)),
    ],
)
def test_a_tail_refuses_what_is_none_and_goes_on(
    full: reput.MessageStore, name: str, given: Callable[[Any], object]
) -> None:
    with full.tail("orders", timeout=0) as tail:
        with pytest.raises(ConfigError, match=re.escape(name.removesuffix("s"))):
            given(tail)
        assert [message.body for message in tail.poll()] == [b"x"]


def test_numbers_of_numpy_are_whole(full: reput.MessageStore) -> None:
    assert len(full.get_message("orders", np.int64(0), np.int64(0), np.int32(5))) == 1  # type: ignore[arg-type]
    assert full.max_offset("orders", np.int64(0)) == 1  # type: ignore[arg-type]


def test_tags_that_seem_to_be_several_are_told_once(full: reput.MessageStore, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        assert not full.get_message("orders", 0, 0, tags="a,b")
    assert full.get_message("orders", 0, 0, tags="a || b")
    full.tail("orders", tags="a;b").close()
    assert [record.getMessage().count("|| alone separates tags") for record in caplog.records] == [1, 1]


@pytest.mark.parametrize("path", ["", None, 3, b"store", ["store"]])
@pytest.mark.parametrize(
    "use",
    [
        reput.MessageStore.open,
        reput.Broker.start,
        reput.read_log,
        reput.log_dataset,
        lambda path: query_sql(Source(path=path), "select 1"),
    ],
    ids=["open", "broker", "read_log", "log_dataset", "sql"],
)
def test_what_is_no_path_is_refused_and_an_empty_one_is_no_current_folder(use: Callable[[Any], Any], path: Any) -> None:
    with pytest.raises(ConfigError, match=r"path .*: expected a path"):
        use(path)


def test_a_store_that_rocketmq_alone_could_write_is_not_opened_for_writing(tmp_path: Path) -> None:
    config = MessageStoreConfig.from_mapping({"storeType": "defaultRocksDB"})
    with pytest.raises(ConfigError, match=r"^storeType=defaultRocksDB: queues are in files, .*; leave storeType out$"):
        MessageStore.open(tmp_path / "store", config=config)
    assert not (tmp_path / "store").exists()
    MessageStore.open(tmp_path / "store", small=True).close()
    with MessageStore.open(tmp_path / "store", read_only=True, config=config) as store:
        assert not store.topics
