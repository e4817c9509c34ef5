"""What becomes of half messages, and what op messages say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.formats.op_message import op_body, op_offsets
from reput.service import transactional_message
from reput.service.transactional_message import (
    CheckLimits,
    EndedHalves,
    OpBatches,
    Verdict,
    checked_once_more,
    half_properties,
    is_too_late,
    judge,
    with_first_offset,
)

LIMITS = CheckLimits(timeout_ms=6000, check_max=3, reserved_ms=100_000)
IMMUNITY, FIRST, TIMES = "CHECK_IMMUNITY_TIME_IN_SECONDS", "TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES"


def verdict(age_ms: int, ended: tuple[int, ...] = (), stored_ms: int = 0, **properties: str) -> Verdict:
    now = 1_000_000
    return judge(
        properties, born_ms=now - age_ms, stored_ms=stored_ms, now_ms=now, began_ms=now, limits=LIMITS, ended=ended
    )


def test_properties_of_a_half_message() -> None:
    sent = {"TAGS": "a", "TRAN_MSG": "true"}
    real = {"REAL_TOPIC": "orders", "REAL_QID": "3"}
    assert half_properties(sent, "orders", 3, "id") == sent | {"__transactionId__": "id"} | real
    assert half_properties(sent, "orders", 3, "") == sent | real


@pytest.mark.parametrize(
    ("age_ms", "more", "expected"),
    [
        (5999, {}, Verdict.LATER),
        (6000, {}, Verdict.LATER),
        (6001, {}, Verdict.CHECK),
        (-1, {}, Verdict.CHECK),
        (7000, {"stored_ms": 1_000_000}, Verdict.LATER),
        (100_001, {}, Verdict.DISCARD),
        (100_001, {"stored_ms": 1_000_000}, Verdict.DISCARD),
        (7000, {TIMES: "2"}, Verdict.CHECK),
        (7000, {TIMES: "3"}, Verdict.DISCARD),
        (0, {TIMES: "3"}, Verdict.DISCARD),
        (7000, {TIMES: "x"}, Verdict.CHECK),
        (7000, {IMMUNITY: "10"}, Verdict.PUT_BACK),
        (-100_000, {IMMUNITY: "10"}, Verdict.PUT_BACK),
        (-100_001, {IMMUNITY: "10"}, Verdict.CHECK),
        (10_000, {IMMUNITY: "10"}, Verdict.LATER),
        (10_001, {IMMUNITY: "10"}, Verdict.CHECK),
        (1, {IMMUNITY: "0"}, Verdict.CHECK),
        (5999, {IMMUNITY: "x"}, Verdict.PUT_BACK),
        (6001, {IMMUNITY: "x"}, Verdict.CHECK),
        (7000, {IMMUNITY: "10", FIRST: "4"}, Verdict.PUT_BACK),
        (7000, {IMMUNITY: "10", FIRST: "4", "ended": (4,)}, Verdict.ENDED),
        (7000, {IMMUNITY: "10", FIRST: "x", "ended": (4, -1)}, Verdict.LATER),
        (10_001, {IMMUNITY: "10", FIRST: "4", "ended": (4,)}, Verdict.CHECK),
    ],
)
def test_verdicts(age_ms: int, more: dict[str, Any], expected: Verdict) -> None:
    assert verdict(age_ms, **more) is expected


@pytest.mark.parametrize(
    ("immunity", "age_ms", "expected"),
    [(None, 1 << 40, False), ("", 1 << 40, False), ("1", 6000, False), ("1", 6001, True), ("7", 6001, False),
     ("7", 7001, True), ("x", 6001, True)],
)  # fmt: skip
def test_who_comes_too_late(immunity: str | None, age_ms: int, expected: bool) -> None:
    properties = {} if immunity is None else {IMMUNITY: immunity}
    assert is_too_late(properties, age_ms, 6000) is expected


def test_properties_of_a_copy() -> None:
    assert checked_once_more({"a": "b"}) == {"a": "b", TIMES: "1"}
    assert checked_once_more({TIMES: "1"}) == {TIMES: "2"}
    assert with_first_offset({"a": "b"}, 7) == {"a": "b", FIRST: "7"}
    assert with_first_offset({FIRST: "2"}, 7) == {FIRST: "2"}


@given(st.lists(st.integers(0, 2000), unique=True), st.integers(0, 60))
def test_op_messages_hold_what_was_added_in_its_order(offsets: list[int], max_size: int) -> None:
    batches, read = OpBatches(max_size), []
    for offset in offsets:
        assert batches.add(0, offset)
        assert batches.add(0, offset)  # ended twice
    assert bool(batches.queues(full=True)) == (len(op_body(offsets)) >= max(max_size, 1))
    while batches.queues(full=False):
        taken = batches.first(0)
        assert len(op_body(taken[:-1])) < max(max_size, 1)
        assert all(batches.is_ending(0, offset) for offset in taken)
        batches.written(0, taken)
        assert all(batches.is_ending(0, offset) for offset in taken)
        read += op_offsets(op_body(taken), "d")
    assert read == offsets
    assert not batches.is_ending(1, 0)


def test_offsets_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactional_message, "_MOST_WAITING", 2)
    batches = OpBatches(4096)
    assert [batches.add(0, offset) for offset in (1, 2, 3, 1)] == [True, True, False, True]
    assert batches.add(1, 3)


@given(st.data())
def test_an_op_message_is_needed_until_all_its_halves_are_judged(data: st.DataObject) -> None:
    """However a round is cut into several, no end is forgotten, and all op messages are used up in the end."""
    halves = data.draw(st.integers(0, 12))
    ops = data.draw(st.lists(st.lists(st.integers(0, max(halves - 1, 0)), max_size=4), max_size=8))
    if halves == 0:
        ops = [[] for _ in ops]
    has_ended = {half for op in ops for half in op}
    half = op = 0
    while half < halves:
        ended = EndedHalves(op, half)
        for number_of_op in range(op, len(ops)):
            ended.add(number_of_op, ops[number_of_op])
        for _ in range(data.draw(st.integers(1, 5))):
            if half < halves:
                assert ended.take(half) == (half in has_ended)
                half += 1
        assert op <= ended.op_offset <= len(ops)
        op = ended.op_offset
    ended = EndedHalves(op, half)
    for number_of_op in range(op, len(ops)):
        ended.add(number_of_op, ops[number_of_op])
    assert ended.op_offset == len(ops)
