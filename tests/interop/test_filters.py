"""SQL92 filters: RocketMQ's own filter classes beside ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reput import Broker
from tests.support.broker import make_topic
from tests.support.expressions import MESSAGES, all_expressions, drawn, outcome
from tests.support.rocketmq.apache import Apache

pytestmark = pytest.mark.java

FILE_SIZE = 1 << 20
KEYS = {"enablePropertyFilter": "true", "enableConsumeQueueExt": "true", "enableCalcFilterBitMap": "true"}
HERE = {"bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1", "mapped_file_size_commit_log": FILE_SIZE} | KEYS
PROPERTIES = [{"n": str(number), "region": ["east", "west", "north"][number % 3]} for number in range(100)]
EAST = "region = 'east' AND n BETWEEN 20 AND 80"
EASTERN = [number for number in range(20, 81) if number % 3 == 0]

GOLDEN = Path(__file__).parents[1] / "golden/filters-5.3.3.json"


def evaluate(apache: Apache, expressions: list[str]) -> dict[str, str]:
    messages = [dict(one) for one in MESSAGES]
    results = apache.run("filter-evaluate", expressions=expressions, messages=messages)
    return dict(zip(expressions, results, strict=True))


@pytest.mark.parametrize("apache", ["5.3.3"], indirect=True)
def test_the_golden_data_is_what_rocketmqs_classes_say(apache: Apache) -> None:
    golden = json.loads(GOLDEN.read_text())
    assert evaluate(apache, list(all_expressions())) == golden["expressions"]
    for sizes, expected in golden["bits"].items():
        rate, consumers = map(int, sizes.split(","))
        assert apache.run("filter-bits", error_rate=rate, consumers=consumers, names=golden["names"]) == expected


@pytest.mark.parametrize("apache", ["5.3.3", "5.5.0"], indirect=True)
def test_further_expressions_give_the_same_results(apache: Apache) -> None:
    expressions = drawn(93, 3000)
    found = evaluate(apache, expressions)
    assert {text: outcome(text, MESSAGES) for text in found} == found


def consume(apache: Apache, namesrv: str, group: str, expression: str, count: int, **more: object) -> Any:
    where = {"namesrv": namesrv, "topic": "orders", "group": group}
    return apache.run("filter-consume", **where, expression=expression, count=count, **more)


def test_consumers_get_what_their_expressions_match(apache: Apache, tmp_path: Path) -> None:
    with Broker.start(tmp_path / "store", **HERE) as broker:
        make_topic(broker.address, "orders", 1)
        apache.run("filter-send", namesrv=broker.namesrv, topic="orders", properties=PROPERTIES)
        assert consume(apache, broker.namesrv, "east", EAST, len(EASTERN)) == EASTERN
        assert consume(apache, broker.namesrv, "few", "n IN ('7', '99') OR missing > 3", 2) == [7, 99]
        assert consume(apache, broker.namesrv, "wrong", "n > 'a'", 0) == "code 23"


@pytest.mark.parametrize("apache", ["5.3.3"], indirect=True)
def test_either_broker_goes_on_with_the_others_filters_and_bit_maps(apache: Apache, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with Broker.start(path, **HERE) as broker:
        make_topic(broker.address, "orders", 1)
        apache.run("filter-send", namesrv=broker.namesrv, topic="orders", properties=[{"region": "west"}])
        assert consume(apache, broker.namesrv, "west", "region = 'west'", 1) == [0]  # its filter is known from now on
        apache.run("filter-send", namesrv=broker.namesrv, topic="orders", properties=PROPERTIES)
    ours = (path / "consumequeue_ext/orders/0" / ("0" * 20)).read_bytes()
    western = [number for number in range(100) if number % 3 == 1]
    with apache.serving(path, log_file_size=FILE_SIZE, topic="orders", queues=1, keys=KEYS) as namesrv:
        assert consume(apache, namesrv, "west", "region = 'west'", len(western)) == western
        apache.run("filter-send", namesrv=namesrv, topic="orders", properties=PROPERTIES)
    theirs = (path / "consumequeue_ext/orders/0" / ("0" * 20)).read_bytes()
    unit = 20 + 14
    begin = 20 + 100 * unit  # the first message came before any filter
    assert theirs[:begin] == ours[:begin]
    our_maps = [ours[20 + i * unit + 20 :][:14] for i in range(100)]
    their_maps = [theirs[begin + i * unit + 20 :][:14] for i in range(100)]
    assert [any(one) for one in our_maps] == [number % 3 == 1 for number in range(100)]
    assert their_maps == our_maps
    written = json.loads((path / "config/consumerFilter.json").read_text())
    assert written["filterDataByTopic"]["orders"]["groupFilterData"]["west"]["expression"] == "region = 'west'"
    with Broker.start(path, **HERE) as broker:
        assert consume(apache, broker.namesrv, "west", "region = 'west'", len(western)) == western
