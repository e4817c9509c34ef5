"""Assignment of queues to the members of a group (`QueryAssignmentProcessor`, `AllocateMessageQueueStrategy`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from reput.remoting.queue_tables import QueueKey

#: Takes a member's number, how many members there are, and all queues.
Strategy = Callable[[int, int, Sequence[QueueKey]], list[QueueKey]]


def _average(index: int, members: int, queues: Sequence[QueueKey]) -> list[QueueKey]:
    share, left = divmod(len(queues), members)
    begin = index * share + min(index, left)
    return list(queues[begin : begin + share + (index < left)])


def _by_circle(index: int, members: int, queues: Sequence[QueueKey]) -> list[QueueKey]:
    return list(queues[index::members])


#: The strategies that a broker knows, by their names in requests.
STRATEGIES: Mapping[str, Strategy] = {"AVG": _average, "AVG_BY_CIRCLE": _by_circle}


def pulled_queues(
    strategy: Strategy, client_id: str, queues: Sequence[QueueKey], members: Sequence[str]
) -> list[QueueKey]:
    """The queues of a member that pulls: each queue has one member; both sequences are sorted."""
    return strategy(members.index(client_id), len(members), queues) if client_id in members else []


def popped_queues(
    strategy: Strategy, client_id: str, queues: Sequence[QueueKey], members: Sequence[str], share: int
) -> list[QueueKey]:
    """The queues of a member that pops: its own, and the queues of the next `share` members (`allocate4Pop`).

    A share of 0 or less, or of all others: -1, all queues of each broker. More members than queues: one queue.
    """
    if client_id not in members:
        return []
    if share <= 0 or share >= len(members) - 1:
        return list(dict.fromkeys(QueueKey(one.topic, one.broker_name, -1) for one in queues))
    index = members.index(client_id)
    if len(members) > len(queues):
        return [queues[index % len(queues)]]
    turns = [(index + turn) % len(members) for turn in range(share + 1)]
    return [queue for turn in turns for queue in strategy(turn, len(members), queues)]
