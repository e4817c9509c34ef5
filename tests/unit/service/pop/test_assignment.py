"""Which queues the members of a group get."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from reput.remoting.queue_tables import QueueKey
from reput.service.pop.assignment import STRATEGIES, popped_queues, pulled_queues

QUEUES = [QueueKey("t", broker, queue) for broker in ("a", "b") for queue in range(3)]


@given(st.sampled_from(sorted(STRATEGIES)), st.integers(1, 9), st.integers(0, 6))
def test_each_queue_has_one_member_that_pulls(name: str, members: int, queues: int) -> None:
    ids = [f"c{number}" for number in range(members)]
    shares = [pulled_queues(STRATEGIES[name], one, QUEUES[:queues], ids) for one in ids]
    assert Counter(queue for share in shares for queue in share) == Counter(QUEUES[:queues])
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_strategies_are_rocketmqs() -> None:
    ids = ["c0", "c1", "c2", "c3"]
    numbers = {name: [[QUEUES.index(queue) for queue in pulled_queues(one, member, QUEUES, ids)] for member in ids]
               for name, one in STRATEGIES.items()}  # fmt: skip
    assert numbers == {"AVG": [[0, 1], [2, 3], [4], [5]], "AVG_BY_CIRCLE": [[0, 4], [1, 5], [2], [3]]}


def test_members_pop_from_all_brokers_or_share_with_the_next_ones() -> None:
    average, ids = STRATEGIES["AVG"], ["c0", "c1", "c2"]
    all_queues = [QueueKey("t", "a", -1), QueueKey("t", "b", -1)]
    for share in (0, -1, 2, 9):
        assert popped_queues(average, "c1", QUEUES, ids, share) == all_queues
    assert popped_queues(average, "c2", QUEUES, ids, 1) == [*QUEUES[4:], *QUEUES[:2]]
    assert popped_queues(average, "c9", QUEUES, ids, 1) == []
    assert popped_queues(average, "c5", QUEUES[:2], [f"c{number}" for number in range(6)], 1) == [QUEUES[1]]
