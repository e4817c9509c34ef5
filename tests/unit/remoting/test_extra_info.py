"""Handles of popped messages, and the offsets of an answer."""

from __future__ import annotations

import pytest

from reput.errors import RemotingCommandError
from reput.remoting.extra_info import (
    ExtraInfo,
    build_extra_info,
    build_msg_offset_info,
    build_order_count_info,
    build_start_offset_info,
    decode_extra_info,
)

INFO = ExtraInfo(0, 1795386602539, 60000, 0, "broker-a")
RETRY, RETRY_V2 = "%RETRY%GA2_PopA2", "%RETRY%GB+PopB"


def test_a_handle_has_eight_words_and_is_read_back() -> None:
    text = "0 1795386602539 60000 0 1 broker-a 0 0"
    assert build_extra_info(INFO, RETRY, 0, 0) == text
    for given in (text, text + " 4711", "0 1795386602539 60000 0 1 broker-a"):  # of a proxy, the fewest
        assert decode_extra_info(given) == INFO
    assert build_extra_info(INFO, "PopA2", 3, 9).split(" ")[4:] == ["0", "broker-a", "3", "9"]
    assert build_extra_info(INFO, RETRY_V2, 0, 0).split(" ")[4] == "2"
    assert decode_extra_info("5 1 1 999 0 broker-a 0 5").is_order


@pytest.mark.parametrize(
    "text",
    ["", "0 1 2", "0 1 2 3 0", "x 1 1 0 0 b", "1 1 1 99999999999 0 b", "1  1 1 0 0 b", f"{'9' * 5000} 1 1 0 0 b"],
)
def test_a_text_that_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(RemotingCommandError, match=r"java\.lang\."):
        decode_extra_info(text)


def test_offsets_of_an_answer_say_which_topic_holds_the_messages() -> None:
    assert build_start_offset_info("PopA2", 1, 8) == "0 1 8"
    assert build_start_offset_info(RETRY, 0, 8) == "1 0 8"
    assert build_msg_offset_info(RETRY_V2, 0, (8, 9)) == "2 0 8,9"


def test_counts_of_deliveries_name_those_that_were_delivered_before() -> None:
    assert build_order_count_info("PopO", 0, (0, 1, 2), {}) == "0 0 0"
    assert build_order_count_info("PopO", 0, (1, 2, 3), {1: 2, 2: 2, 3: 1}) == "0 qo0%1 2;0 qo0%2 2;0 qo0%3 1;0 0 1"
    assert build_order_count_info("PopO", 0, (1, 2, 3), {1: 1, 2: 1}) == "0 qo0%1 1;0 qo0%2 1;0 0 0"
