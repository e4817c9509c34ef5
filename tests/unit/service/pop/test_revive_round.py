"""Which messages come again, as one look at a revive queue tells."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reput.formats.pop_messages import (
    Ack,
    CheckPoint,
    CheckPointKey,
    encode_acks,
    encode_batch_ack,
    encode_check_point,
)
from reput.service.pop.revive_round import Judged, ReviveRound, written_again

NOW = 1_700_000_000_000
KEY = CheckPointKey("orders", "g", 0, 10, NOW - 60_000, "broker-a")
POINT = CheckPoint(KEY, 50_000, (10, 11, 13))


def judged(round_: ReviveRound) -> list[tuple[int, tuple[int, ...]]]:
    return [(one.revive_offset, one.unacked) for one in round_.judged()]


def added(*more: tuple[str, bytes]) -> ReviveRound:
    round_ = ReviveRound("broker-a")
    for number, (tag, body) in enumerate((("ck", encode_check_point(POINT)), *more)):
        assert round_.add(number, tag, body, NOW, NOW)
    return round_


def test_messages_without_an_ack_come_again() -> None:
    assert judged(added()) == [(0, (10, 11, 13))]
    assert judged(added(("ack", encode_acks(KEY, [11])[0]))) == [(0, (10, 13))]
    assert judged(added(("bAck", encode_batch_ack(Ack(KEY, (10, 11, 13)))))) == [(0, ())]


def test_an_ack_of_another_check_point_counts_for_none() -> None:
    others = [KEY._replace(pop_time=1), KEY._replace(start_offset=11), KEY._replace(broker_name="b"),
              KEY._replace(queue_id=1), KEY._replace(group="h"), KEY._replace(topic="o")]  # fmt: skip
    assert judged(added(*(("ack", encode_acks(one, [10])[0]) for one in others))) == [(0, (10, 11, 13))]


def test_an_ack_before_its_check_point_is_of_one_that_is_done() -> None:
    round_ = ReviveRound("broker-a")
    assert round_.add(4, "ack", encode_acks(KEY, [10])[0], NOW, NOW)
    assert not round_.has_check_points
    assert round_.add(5, "ck", encode_check_point(POINT), NOW, NOW)
    assert judged(round_) == [(5, (10, 11, 13))]


def test_bits_of_a_check_point_are_acks() -> None:
    round_ = ReviveRound("broker-a")
    round_.add(0, "ck", encode_check_point(POINT._replace(bit_map=0b101)), NOW, NOW)
    assert judged(round_) == [(0, (11,))]


def test_nothing_is_judged_before_all_that_was_due_has_been_read() -> None:
    late = POINT._replace(key=KEY._replace(pop_time=NOW - 51_000))  # due a second ago
    round_ = ReviveRound("broker-a")
    round_.add(0, "ck", encode_check_point(POINT), NOW - 1, NOW)
    round_.add(1, "ck", encode_check_point(late), NOW, NOW)
    assert [offset for offset, _ in judged(round_)] == [0]
    round_.quiet(NOW + 3000)
    assert len(judged(round_)) == 1, "the queue is not quiet for long enough"
    round_.quiet(NOW + 3001)
    assert len(judged(round_)) == 2


def test_a_time_that_is_to_come_judges_nothing() -> None:
    round_ = ReviveRound("broker-a")
    round_.add(0, "ck", encode_check_point(POINT._replace(invisible_time=70_000)), 1 << 60, NOW)
    assert judged(round_) == []


def test_what_is_neither_check_point_nor_ack_is_passed() -> None:
    round_ = ReviveRound("broker-a")
    for tag, body in ((None, b""), ("other", b"{}"), ("ck", b"{}"), ("ack", b"[]"), ("bAck", b"x")):
        assert not round_.add(0, tag, body, NOW, NOW)
    assert judged(round_) == []


def test_a_message_that_cannot_be_revived_is_tried_later_each_time() -> None:
    point, waits = POINT, []
    for _ in range(20):
        before = point.invisible_time
        point = written_again(point, 11, NOW + (1 << 40))
        waits.append((point.invisible_time - before) // 1000)
    assert waits[:4] == [10, 20, 30, 60]
    assert waits[-3:] == [7200] * 3
    assert (point.key, point.offsets, point.re_put_times) == (KEY._replace(start_offset=11), (11,), 20)
    assert written_again(POINT, 11, NOW - 20_000).invisible_time == 50_000, "it was not due yet"


@given(
    st.lists(st.tuples(st.integers(0, 5), st.lists(st.integers(0, 7), unique=True, max_size=8)), max_size=8),
    st.data(),
)
def test_each_message_is_acked_or_comes_again_once(points: list[tuple[int, list[int]]], data: st.DataObject) -> None:
    """Check points in any order of times, acks behind them: what is judged in several rounds is what nobody acked."""
    stream: list[tuple[str, bytes]] = []
    expected: dict[CheckPointKey, set[int]] = {}
    for number, (second, offsets) in enumerate(points):
        key = KEY._replace(start_offset=number, pop_time=NOW + second * 1000)
        found = tuple(number + one for one in offsets)
        acked = data.draw(st.sets(st.sampled_from(found))) if found else set()
        stream.append(("ck", encode_check_point(CheckPoint(key, 1000, found))))
        stream += [("ack", encode_acks(key, [one])[0]) for one in sorted(acked)]
        expected[key] = set(found) - acked
    revived: dict[CheckPointKey, set[int]] = {}
    done, now = -1, NOW
    while now < NOW + 20_000:
        now += 1500
        round_ = ReviveRound("broker-a")
        for offset in range(done + 1, len(stream)):
            round_.add(offset, *stream[offset], NOW, now)
        round_.quiet(now)
        one: Judged
        for one in round_.judged():
            assert one.check_point.key not in revived
            revived[one.check_point.key] = set(one.unacked)
            done = one.revive_offset
    assert revived == expected


def test_a_check_point_of_a_clock_that_was_ahead_holds_none_behind_it_up() -> None:
    """It lies in the queue a day before its messages are popped."""
    round_, ahead = ReviveRound("broker-a"), KEY._replace(pop_time=NOW + 86_400_000)
    assert round_.add(0, "ck", encode_check_point(CheckPoint(ahead, 50_000, (10,))), NOW + 86_449_000, NOW)
    assert round_.add(1, "ck", encode_check_point(POINT), NOW, NOW)
    assert judged(round_) == [(0, (10,)), (1, (10, 11, 13))]
    assert round_.is_at_end
