from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.client.consuming.allocate_message_queue import allocate_averagely
from reput.remoting.queue_tables import QueueKey


def queues(count: int) -> list[QueueKey]:
    return [QueueKey("t", "broker-a", number) for number in range(count)]


@pytest.mark.parametrize(
    ("count", "members", "shares"),
    [
        (8, 2, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (8, 3, [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (2, 3, [[0], [1], []]),
        (0, 1, [[]]),
    ],
)
def test_members_have_neighbours_and_the_first_ones_have_one_more(
    count: int, members: int, shares: list[list[int]]
) -> None:
    ids = [f"c{number}" for number in range(members)]
    found = [[queue.queue_id for queue in allocate_averagely(one, queues(count), ids)] for one in ids]
    assert found == shares


def test_a_member_that_the_broker_does_not_list_has_no_queue() -> None:
    assert allocate_averagely("new", queues(4), ["a", "b"]) == ()


@given(count=st.integers(0, 60), members=st.integers(1, 20))
def test_each_queue_has_one_member(count: int, members: int) -> None:
    ids = [f"c{number:02}" for number in range(members)]
    shares = [allocate_averagely(one, queues(count), ids) for one in ids]
    assert [queue for share in shares for queue in share] == queues(count)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
