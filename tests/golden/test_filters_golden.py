"""SQL92 expressions and Bloom filters, as RocketMQ 5.3.3's own classes evaluate them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reput.filter.bloom_filter import BloomFilter
from tests.support.expressions import MESSAGES, all_expressions, outcome

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "filters-5.3.3.json").read_text())


def test_each_expression_gives_rocketmqs_result_for_each_message() -> None:
    assert GOLDEN["messages"] == list(MESSAGES)
    assert list(GOLDEN["expressions"]) == list(dict.fromkeys(all_expressions()))
    assert {text: outcome(text, MESSAGES) for text in GOLDEN["expressions"]} == GOLDEN["expressions"]


def test_the_golden_data_has_all_kinds_of_results() -> None:
    results = GOLDEN["expressions"].values()
    assert set("".join(one for one in results if one != "compile")) == set("FTNE")
    assert 100 < sum(one == "compile" for one in results) < 300


@pytest.mark.parametrize("sizes", GOLDEN["bits"])
def test_bits_of_names_are_rocketmqs(sizes: str) -> None:
    rate, consumers = map(int, sizes.split(","))
    bloom, expected = BloomFilter(rate, consumers), GOLDEN["bits"][sizes]
    assert bloom.bit_num == expected["bit_num"]
    names = GOLDEN["names"]
    assert [list(bloom.bit_positions(name)) for name in names] == expected["positions"]
