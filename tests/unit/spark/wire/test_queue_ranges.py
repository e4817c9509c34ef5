"""Which messages a task and a batch read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reput.remoting.queue_tables import QueueKey
from reput.spark.wire.queue_ranges import QueueRange, cut, limited

QUEUES = [QueueKey("orders", "broker-a", number) for number in range(4)]
SIZES = st.lists(st.integers(0, 1000), min_size=4, max_size=4)


def ranges(*sizes: int) -> list[QueueRange]:
    return [QueueRange(queue, 10, 10 + size) for queue, size in zip(QUEUES, sizes, strict=False)]


def test_each_queue_with_messages_is_a_task() -> None:
    assert cut(ranges(5, 0, 7)) == [QueueRange(QUEUES[0], 10, 15), QueueRange(QUEUES[2], 10, 17)]
    assert cut([]) == []


def test_large_queues_are_cut_into_more_tasks() -> None:
    found = cut(ranges(100, 300), min_partitions=4)
    assert [(one.queue.queue_id, one.begin, one.end) for one in found] == [
        (0, 10, 110), (1, 10, 110), (1, 110, 210), (1, 210, 310),
    ]  # fmt: skip
    assert cut(ranges(2, 1), min_partitions=2) == ranges(2, 1)


@given(SIZES, st.none() | st.integers(1, 50), st.none() | st.integers(1, 50))
def test_pieces_are_the_ranges_whole_and_in_order(sizes: list[int], least: int | None, most: int | None) -> None:
    pieces = cut(ranges(*sizes), least, most)
    assert all(0 < piece.size <= (most or 1000) for piece in pieces)
    joined: dict[QueueKey, int] = {}
    for piece in pieces:
        assert piece.begin == joined.get(piece.queue, 10)
        joined[piece.queue] = piece.end
    assert joined == {one.queue: one.end for one in ranges(*sizes) if one.size}


@given(SIZES, st.integers(1, 2000))
def test_a_limit_is_shared_by_what_waits_and_nothing_waits_for_ever(sizes: list[int], most: int) -> None:
    begins = dict.fromkeys(QUEUES, 10)
    ends = {queue: 10 + size for queue, size in zip(QUEUES, sizes, strict=True)}
    found = limited(begins, ends, most)
    assert sum(found.values()) - 40 <= max(most, sum(1 for size in sizes if size))
    for queue, size in zip(QUEUES, sizes, strict=True):
        assert 10 + min(size, 1) <= found[queue] <= ends[queue]
    assert limited(begins, ends, None) == ends


def test_a_queue_that_has_gone_back_stays_where_it_is() -> None:
    assert limited({QUEUES[0]: 10, QUEUES[1]: 0}, {QUEUES[0]: 4, QUEUES[1]: 90}, 30) == {QUEUES[0]: 4, QUEUES[1]: 30}
