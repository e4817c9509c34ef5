"""SQL92 filters: RocketMQ's own filter classes beside ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.expressions import MESSAGES, all_expressions, drawn, outcome
from tests.support.rocketmq.apache import Apache

pytestmark = pytest.mark.java

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
