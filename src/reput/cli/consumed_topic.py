"""ConsumedTopic: how far a consumer is in the queues of a topic, and where it is to end."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from reput.admin.admin_client import brokers_of
from reput.admin.topics import topic_queues
from reput.cli.messages import some_names
from reput.cli.output import write_error
from reput.client.topic_route import nothing_to_subscribe, subscribe_queues
from reput.errors import MQClientError, ReputError
from reput.remoting.queue_tables import QueueKey

if TYPE_CHECKING:
    from reput.admin.admin_client import AdminClient
    from reput.client import PullConsumer

#: Where nothing has come for so long, nothing will: by then a broker that was started again is back, and a member of a
#: group has its share of the queues.
_PATIENCE_S = 30.0


class ConsumedTopic:
    """A topic that is read up to where its queues ended when they were asked first.

    That is the begin, or later for a queue whose broker came back later. A queue that nobody answers for has no known
    end, so it is not read to its end.

    Args:
        client: Asks who serves the queues.
        topic: The topic.
    """

    def __init__(self, client: AdminClient, topic: str) -> None:
        self.topic = topic
        self._client = client
        self._ends: dict[QueueKey, int] = {}
        self._lost: tuple[QueueKey, ...] = ()
        self._left_out: tuple[QueueKey, ...] = ()
        self._positions: dict[QueueKey, int | None] = {}
        self._moved_at = time.monotonic()

    async def ask_ends(self) -> None:
        """Ask where the queues end that have no end yet.

        Raises MQClientError where there is no such topic, RemotingError where nobody answers for any of its brokers.
        """
        route = await self._client.route(self.topic)
        brokers = brokers_of(self.topic, route)
        for one in await topic_queues(self._client, self.topic, brokers):
            self._ends.setdefault(QueueKey(self.topic, one.broker, one.queue_id), one.max_offset)
        queues = subscribe_queues(self.topic, route)
        self._lost = tuple(one for one in queues if not brokers[one.broker_name])

    def with_end(self, queues: Iterable[QueueKey]) -> list[QueueKey]:
        """The queues whose ends are known; the others are left out of what is read.

        Raises MQClientError where the topic has no queues.
        """
        asked = tuple(queues)
        if not asked:
            raise MQClientError(nothing_to_subscribe(self.topic))
        self._left_out = tuple(queue for queue in asked if queue not in self._ends)
        return [queue for queue in asked if queue in self._ends]

    async def is_over(self, consumer: PullConsumer) -> bool:
        """Whether a consumer has polled its queues up to their ends, or nothing has come for too long."""
        positions = {queue: consumer.position(queue) for queue in consumer.assignment}
        waited_for = {queue: self._positions.get(queue) for queue in self._behind()}
        if positions.keys() != self._positions.keys() or any(positions[one] != at for one, at in waited_for.items()):
            self._moved_at = time.monotonic()
        self._positions = positions
        behind = self._behind()
        if behind and behind.isdisjoint(self._ends):
            self._client.ask_again()
            with suppress(ReputError):  # nobody answers yet
                await self.ask_ends()
            behind = self._behind()
        is_read = bool(positions or self._left_out) and not behind  # a member without a queue may still get one
        return is_read or time.monotonic() > self._moved_at + _PATIENCE_S

    def _behind(self) -> set[QueueKey]:
        """The queues that are not read to their ends."""
        return {
            queue
            for queue, position in self._positions.items()
            if position is None or queue not in self._ends or position < self._ends[queue]
        }

    def tell_left(self) -> int:
        """Say what is not read to its end; the exit status, 2 where there is such a queue."""
        if not self._positions and not self._left_out:
            write_error(f"no queue of topic {self.topic!r} in {_PATIENCE_S:g} s: other members of the group have them")
            return 2
        left = sorted({*self._lost, *self._left_out, *self._behind()})  # no member of a group gets those that are lost
        if left:
            found = some_names(f"{one.broker_name}:{one.queue_id} ({self._place(one)})" for one in left)
            write_error(f"queues of topic {self.topic!r} that are not read to their ends: {found}")
        return 2 if left else 0

    def _place(self, queue: QueueKey) -> str:
        position, end = self._positions.get(queue), self._ends.get(queue)
        if end is None:
            return "nobody tells where it ends"
        return f"{'nothing' if position is None else f'up to offset {position}'} of {end}"
