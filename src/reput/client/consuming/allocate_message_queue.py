"""AVG: which queues of a topic each member of a group gets (`AllocateMessageQueueAveragely`); pure."""

from __future__ import annotations

from collections.abc import Sequence

from reput.remoting.queue_tables import QueueKey


def allocate_averagely(client_id: str, queues: Sequence[QueueKey], client_ids: Sequence[str]) -> tuple[QueueKey, ...]:
    """The queues of one member: neighbours; the first members have one more, if they do not come out even.

    Every member computes the same, so both sequences must be sorted. A member that is not listed has none.
    """
    if client_id not in client_ids:
        return ()
    share, left = divmod(len(queues), len(client_ids))
    index = client_ids.index(client_id)
    begin = index * share + min(index, left)
    return tuple(queues[begin : begin + share + (index < left)])
