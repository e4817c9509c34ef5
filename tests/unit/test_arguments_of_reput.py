"""Arguments of what `reput` and `reput.testing` have: what is none is refused by its name, and nothing is made."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from enum import Enum
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

import reput
import reput.testing
from reput.client import ClientTls
from reput.config.message_store import MessageStoreConfig
from reput.errors import ConfigError
from reput.testing import LocalBroker
from tests.support.bad_arguments import bad_values, check_refused, names_in, parameters

STORE, NEW = "store", "new"


@wraps(reput.testing.broker)
def broker(**options: Any) -> None:
    with reput.testing.broker(**options):
        pass


#: Right arguments of what makes a store, a broker, a reader or options; paths are below the folder of the test.
GOOD: dict[Callable[..., Any], dict[str, Any]] = {
    reput.MessageStore.open: {"path": NEW, "small": True},
    reput.Broker.start: {"path": NEW},
    LocalBroker.start: {"path": NEW},
    broker: {},
    reput.read_log: {"path": STORE},
    reput.log_dataset: {"path": STORE},
    MessageStoreConfig.from_mapping: {"mapping": {}},
    MessageStoreConfig.from_broker_conf: {"text": "", "source": "broker.conf"},
    ClientTls: {},
}
#: Right arguments of each verb of a store.
VERBS: dict[str, dict[str, Any]] = {
    "get_message": {"topic": "orders", "queue_id": 0, "offset": 0},
    "query_message": {"topic": "orders", "key": "k"},
    "query_messages": {"topic": "orders", "keys": ["k"]},
    "view_message": {"message_id": ""},
    "look_message_by_offset": {"commit_log_offset": 0},
    "commit_log_data": {"offset": 0, "max_size": 1},
    "tail": {"topic": "orders", "timeout": 0, "group": "g"},
    "update_topic": {},
    "update_topics": {},
    "delete_topic_config": {},
    "min_offset": {"topic": "orders", "queue_id": 0},
    "max_offset": {"topic": "orders", "queue_id": 0},
    "offset_by_time": {"topic": "orders", "queue_id": 0, "timestamp_ms": 0},
    "message_store_timestamp": {"topic": "orders", "queue_id": 0, "offset": 0},
    "delete_expired": {"dry_run": True},
    "preload": {},
    "wait_dispatched": {},
    "close": {},
    "queues": {},
    "runtime_info": {},
    "earliest_time": {},
    "latest_time": {},
}
#: Verbs that take messages, whose errors are of messages; and verbs for brokers and followers.
ELSEWHERE = {"put_message", "put_messages", "put_batch", "put_arrow", "async_put_message", "open"}
INSIDE = {
    *("get_raw", "find_pull", "look_records", "find_records", "units", "index_end", "change_retention"),
    *("replica_writer", "loop_writer"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("arguments")
    with reput.MessageStore.open(path / STORE, small=True) as store:
        store.put_message(reput.Message("orders", b"x"))
    return path


@pytest.mark.parametrize(
    ("function", "name"),
    [pytest.param(one, name, id=f"{one.__qualname__}-{name}") for one in GOOD for name in parameters(one)],
)
def test_what_is_no_argument_is_refused_and_nothing_is_made(
    folder: Path, function: Callable[..., Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    before = names_in(folder)
    check_refused(function, GOOD[function], name, bad_values(function, name))
    assert names_in(folder) == before


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[reput.MessageStore]:
    with reput.MessageStore.open(tmp_path_factory.mktemp("verbs") / STORE, small=True) as store:
        store.put_messages([reput.Message("orders", b"x", keys=["k"])] * 3)
        store.wait_dispatched()
        yield store


@pytest.mark.parametrize(
    ("verb", "name"),
    [(verb, name) for verb in VERBS for name in parameters(getattr(reput.MessageStore, verb)) if name != "self"],
)
def test_a_verb_of_a_store_refuses_what_is_none(store: reput.MessageStore, verb: str, name: str) -> None:
    function = getattr(store, verb)
    values = bad_values(function, name)
    if parameters(function)[name].startswith("int"):  # a negative one is before the begin, as RocketMQ takes it
        values = [value for value in values if value != -1]
    check_refused(function, VERBS[verb], name, values)


def test_all_verbs_of_a_store_and_all_names_of_reput_are_in_the_tables() -> None:
    methods = {name for name, _ in inspect.getmembers(reput.MessageStore, callable) if not name.startswith("_")}
    assert methods - ELSEWHERE - INSIDE == set(VERBS)
    names = {name: getattr(reput, name) for name in reput.__all__}
    given = {name for name, one in names.items() if not (isinstance(one, type) and issubclass(one, Exception | Enum))}
    assert given == {
        *("Broker", "MessageStore", "MessageStoreConfig", "log_dataset", "read_log"),
        *("Message", "MessageExtBatch"),  # MessageIllegalError says what no message has
        "TopicConfig",  # checked by `update_topic`
        *("MessageExt", "PutFuture"),  # made by the store
    }
    assert set(reput.testing.__all__) == {"LocalBroker", "broker"}


@pytest.mark.parametrize(
    "key", ["store_path_commit_log", "read_only_commit_log_store_paths", "rocketmq_home", "tls_server_cert_path"]
)
@pytest.mark.parametrize("value", ["a\0b", "\ud800", "", 5, b"x", []])
def test_a_key_with_a_path_that_no_system_has_is_refused_in_a_line_that_can_be_written(
    tmp_path: Path, key: str, value: Any
) -> None:
    with pytest.raises(ConfigError, match=r"^\S+=.*: expected a text") as found:
        reput.Broker.start(tmp_path / NEW, **{key: value})
    assert str(found.value).encode()
    assert not names_in(tmp_path)
