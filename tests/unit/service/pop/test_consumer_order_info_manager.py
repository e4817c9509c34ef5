"""What groups popped in order: a model, and RocketMQ's file byte for byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.formats.metadata import encode_metadata
from reput.service.pop.consumer_order_info_manager import ConsumerOrderInfoManager, OrderAck

GOLDEN = json.loads((Path(__file__).parents[3] / "golden/pop/records-5.3.3.json").read_text())
FILES = {one["name"]: one["text"] for one in GOLDEN["files"]}
QUEUE = "orders", "g", 0


def popped(orders: ConsumerOrderInfoManager, *offsets: int, at: int = 1000, attempt: str = "a") -> dict[int, int]:
    counts = orders.update(*QUEUE, pop_time=at, invisible_time=100, offsets=offsets, attempt_id=attempt, now_ms=at)
    return dict(counts)


def test_rocketmqs_file_is_read_and_written_byte_for_byte(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    text = FILES["config/consumerOrderInfo.json"].encode()
    (tmp_path / "config/consumerOrderInfo.json").write_bytes(text)
    orders = ConsumerOrderInfoManager(str(tmp_path))
    assert encode_metadata(orders.content()) == text
    assert orders.free_at("PopO", "GO", 0, None, 5, 1795386758163) == 1795386758163 + 60_000
    assert orders.free_at("PopO", "GO", 0, "attk2", 5, 1795386758163) == 0
    assert orders.commit_and_next("PopO", "GO", 0, 4, 1795386758163, 1) == 5


def test_an_ack_moves_the_offset_to_the_first_hole(tmp_path: Path) -> None:
    orders = ConsumerOrderInfoManager(str(tmp_path))
    assert orders.commit_and_next(*QUEUE, 7, 1000, 1) == 8, "nothing was popped"
    assert popped(orders, 7, 8, 11) == {}
    acks = [orders.commit_and_next(*QUEUE, offset, 1000, 1) for offset in (11, 7, 9, 8)]
    assert acks == [7, 8, OrderAck.ILLEGAL, 12]
    assert orders.commit_and_next(*QUEUE, 7, 999, 1) is OrderAck.LATE
    assert orders.free_at(*QUEUE, None, 5, 5000) == 0
    assert popped(orders, at=2000) == {}
    assert orders.commit_and_next(*QUEUE, 7, 2000, 1) is OrderAck.ILLEGAL


def test_deliveries_are_counted_but_not_those_of_the_same_attempt(tmp_path: Path) -> None:
    orders = ConsumerOrderInfoManager(str(tmp_path))
    assert popped(orders, 1, 2) == {}
    assert popped(orders, 1, 2) == {}
    assert popped(orders, 1, 2, 3, attempt="b") == {1: 1, 2: 1}
    assert popped(orders, 2, 3, attempt="c") == {2: 2, 3: 1}


def test_a_queue_is_free_when_the_last_message_is_visible(tmp_path: Path) -> None:
    orders = ConsumerOrderInfoManager(str(tmp_path))
    popped(orders, 1, 2)
    orders.update_next_visible_time(*QUEUE, 2, 1000, 5000, 1)
    orders.update_next_visible_time(*QUEUE, 1, 999, 9000, 1)
    assert orders.free_at(*QUEUE, None, 5, 5000) == 5000
    orders.commit_and_next(*QUEUE, 2, 1000, 1)
    assert orders.free_at(*QUEUE, None, 5, 5000) == 1100
    orders.clear_block(*QUEUE, 1)
    assert orders.free_at(*QUEUE, None, 5, 5000) == 0


def test_what_nobody_pops_any_more_is_forgotten(tmp_path: Path) -> None:
    orders = ConsumerOrderInfoManager(str(tmp_path))
    popped(orders, 1)
    orders.auto_clean(lambda *_: True, 1000 + 86_400_000)
    assert len(orders.content().table) == 1
    orders.auto_clean(lambda *_: True, 1001 + 86_400_000)
    assert not orders.content().table
    popped(orders, 1)
    orders.auto_clean(lambda *queue: queue != QUEUE, 1000)
    assert not orders.content().table


@given(st.lists(st.tuples(st.integers(1, 4), st.lists(st.integers(0, 3), max_size=5)), max_size=6))
def test_a_group_gets_each_message_until_it_is_acked_without_a_hole_before(
    rounds: list[tuple[int, list[int]]],
) -> None:
    """Pops from the offset on, acks of some: the offset never passes a message that nobody acked."""
    orders, offset, acked = ConsumerOrderInfoManager("/nowhere"), 0, set()
    for number, (size, acks) in enumerate(rounds):
        found = range(offset, offset + size)
        acked -= set(found)  # what was acked behind a hole comes again
        popped(orders, *found, at=number, attempt=str(number))
        for one in acks:
            following = orders.commit_and_next(*QUEUE, offset + one, number, 1)
            if one < size:
                assert isinstance(following, int)
                acked.add(found[one])
                assert following == next((one for one in found if one not in acked), found[-1] + 1)
            else:
                assert following is OrderAck.ILLEGAL
        offset = next((one for one in found if one not in acked), found[-1] + 1)


@pytest.mark.parametrize("back_ms", [0, 1, 2, 200, 3000])
def test_a_small_step_back_of_the_clock_opens_no_queue_that_was_popped_in_order(tmp_path: Path, back_ms: int) -> None:
    orders = ConsumerOrderInfoManager(str(tmp_path))
    popped(orders, 1, at=9000)
    assert orders.free_at(*QUEUE, None, 5, 9000 - back_ms) == 9100


def test_a_pop_of_a_clock_that_was_ahead_blocks_nothing(tmp_path: Path) -> None:
    orders = ConsumerOrderInfoManager(str(tmp_path))
    popped(orders, 1, at=9000)
    assert orders.free_at(*QUEUE, None, 5, 9000 - 3001) == 0
