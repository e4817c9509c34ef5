"""SQL92 filters of groups, and their file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reput.filter.bloom_filter import BloomFilter
from reput.formats.metadata import ConsumerFilterData
from reput.remoting.subscription_data import SubscriptionData, build_subscription_data
from reput.service import consumer_filter_manager
from reput.service.consumer_filter_manager import ConsumerFilterManager

BORN, DAY = 1_700_000_000_000, 24 * 3_600_000
BLOOM = BloomFilter(20, 32)


def opened(
    path: Path, *, now: int = BORN, bloom: BloomFilter = BLOOM, is_enabled: bool = True
) -> ConsumerFilterManager:
    (path / "config").mkdir(exist_ok=True)
    return ConsumerFilterManager(str(path), bloom_filter=bloom, is_enabled=is_enabled, now_ms=now)


def sql(topic: str, text: str, version: int = 1) -> SubscriptionData:
    return build_subscription_data(topic, text, "SQL92", sub_version=version)


def known(manager: ConsumerFilterManager, topic: str = "orders", group: str = "g") -> ConsumerFilterData:
    data = manager.filter_data(topic, group)
    assert data is not None
    return data


def persist(manager: ConsumerFilterManager) -> None:
    snapshot = manager.snapshot()
    assert snapshot is not None
    manager.persist(snapshot)


def test_the_file_is_as_rocketmq_writes_it(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    manager.register("sql-group", [sql("order-topic", "a > 3", BORN)], BORN)
    persist(manager)
    written = json.loads((tmp_path / "config/consumerFilter.json").read_text())
    assert written == {
        "filterDataByTopic": {
            "order-topic": {
                "groupFilterData": {
                    "sql-group": {
                        "bloomFilterData": {"bitNum": 112, "bitPos": [27, 104, 92]}, "bornTime": BORN,
                        "clientVersion": BORN, "consumerGroup": "sql-group", "dead": False, "deadTime": 0,
                        "expression": "a > 3", "expressionType": "SQL92", "topic": "order-topic",
                    }
                },
                "topic": "order-topic",
            }
        }
    }  # fmt: skip


def test_filters_are_dead_after_a_start_until_their_consumer_comes(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    manager.register("g", [sql("orders", "a > 3")], BORN)
    persist(manager)
    manager = opened(tmp_path, now=BORN + 60_000)
    assert manager.snapshot() is None
    assert known(manager).dead_time == BORN + 30_000
    manager.register("g", [sql("orders", "a > 3")], BORN + 61_000)
    assert (known(manager).dead_time, known(manager).born_time) == (0, BORN)
    assert opened(tmp_path, now=BORN + 5).filter_data("orders", "g") is not None
    assert known(opened(tmp_path, now=BORN + 5)).dead_time == BORN  # never before it was born


@pytest.mark.parametrize(
    ("text", "version", "expected"),
    [
        ("a > 3", 1, ("a > 3", 1, BORN)),
        ("a > 4", 1, ("a > 3", 1, BORN)),  # of the same version: nothing new
        ("a > 4", 0, ("a > 3", 1, BORN)),
        ("a > 3", 2, ("a > 3", 2, BORN)),
        ("a > 4", 2, ("a > 4", 2, BORN + 1)),
    ],
)
def test_a_heartbeat_changes_a_filter_by_its_version(
    tmp_path: Path, text: str, version: int, expected: tuple[str, int, int]
) -> None:
    manager = opened(tmp_path)
    manager.register("g", [sql("orders", "a > 3")], BORN)
    manager.register("g", [sql("orders", text, version)], BORN + 1)
    data = known(manager)
    assert (data.expression, data.client_version, data.born_time) == expected
    compiled = manager.message_filter(data)
    assert compiled is not None
    assert compiled.expression == data.expression


def test_an_expression_that_does_not_compile_removes_the_one_before(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    manager.register("g", [sql("orders", "a >")], BORN)
    assert manager.filter_data("orders", "g") is None
    manager.register("g", [sql("orders", "a > 3", 2)], BORN)
    manager.register("g", [sql("orders", "a >", 3)], BORN)
    assert manager.filter_data("orders", "g") is None


def test_topics_that_a_group_leaves_and_groups_that_leave_have_dead_filters(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    manager.register("g", [sql("orders", "a > 3"), sql("bills", "a > 3")], BORN)
    manager.register("g", [sql("orders", "a > 3")], BORN + 5)
    assert (known(manager).dead_time, known(manager, "bills").dead_time) == (0, BORN + 5)
    manager.unregister("g", BORN + 9)
    assert (known(manager).dead_time, known(manager, "bills").dead_time) == (BORN + 9, BORN + 5)
    manager.clean(BORN + 5 + DAY)
    assert manager.filter_data("bills", "g") is None
    assert manager.filter_data("orders", "g") is not None
    manager.clean(BORN + 9 + DAY)
    assert manager.filter_data("orders", "g") is None
    persist(manager)
    assert json.loads((tmp_path / "config/consumerFilter.json").read_text()) == {"filterDataByTopic": {}}


def test_filters_of_another_bloom_filter_are_dropped(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    manager.register("g", [sql("orders", "a > 3")], BORN)
    persist(manager)
    assert opened(tmp_path, bloom=BloomFilter(10, 32)).filter_data("orders", "g") is None


def test_where_filters_are_off_none_is_registered_and_the_file_stays(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    manager.register("g", [sql("orders", "a > 3")], BORN)
    persist(manager)
    manager = opened(tmp_path, is_enabled=False)
    manager.register("h", [sql("orders", "a > 3")], BORN)
    assert manager.filter_data("orders", "h") is None
    assert manager.snapshot() is None


def test_a_filter_of_another_broker_that_does_not_compile_is_kept_and_not_used(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    manager.register("g", [sql("orders", "a > 3")], BORN)
    persist(manager)
    file = tmp_path / "config/consumerFilter.json"
    file.write_text(file.read_text().replace("a > 3", "a >"))
    manager = opened(tmp_path)
    assert manager.message_filter(known(manager)) is None
    assert manager.filters("orders") == [known(manager)]


def test_tags_are_no_filter(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    manager.register("g", [build_subscription_data("orders", "a || b")], BORN)
    assert manager.filter_data("orders", "g") is None


def test_filters_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_filter_manager, "MOST_FILTERS", 2)
    manager = opened(tmp_path)
    manager.register("g", [sql(topic, "a > 3") for topic in "abc"], BORN)
    assert [manager.filter_data(topic, "g") is not None for topic in "abc"] == [True, True, False]
    manager.unregister("g", BORN)
    manager.clean(BORN + DAY)
    manager.register("g", [sql("c", "a > 3")], BORN)
    assert manager.filter_data("c", "g") is not None
