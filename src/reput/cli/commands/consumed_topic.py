"""ConsumedTopic: how far a consumer is in the queues of a topic, and where it is to end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from reput.admin.admin_client import Brokers, brokers_of
from reput.admin.topics import topic_queues
from reput.cli.display.output import write_error
from reput.client.instance.topic_route import nothing_to_subscribe, subscribe_queues
from reput.errors import MQClientError, ReputError
from reput.log.unknown_topics import some_names
from reput.remoting.queue_tables import QueueKey

if TYPE_CHECKING:
    from reput.admin.admin_client import AdminClient
    from reput.client import PullConsumer

#: If nothing has come for so long, nothing will: by then a broker that was started again is back, and a member of a
#: group has its share of the queues.
_PATIENCE_S = 30.0
#: Seconds between two looks for brokers that are away, while a command follows.
_LOOK_S = 30.0


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
        self._lost: set[QueueKey] = set()
        self._left_out: tuple[QueueKey, ...] = ()
        self._positions: dict[QueueKey, int | None] = {}
        self._seen: dict[QueueKey, int | None] = {}  # positions, also of queues that others have now, or nobody
        self._moved_at = time.monotonic()
        self._told: set[str] = set()

    async def ask_ends(self) -> None:
        """Ask where the queues end that have no end yet.

        Raises MQClientError if there is no such topic, or nobody may read it, RemotingError if nobody answers for any
        of its brokers.
        """
        brokers = await self._find_lost()
        for one in await topic_queues(self._client, self.topic, brokers):
            self._ends.setdefault(QueueKey(self.topic, one.broker, one.queue_id), one.max_offset)

    async def _find_lost(self) -> Brokers:
        """Note which queues are lost, so that no member of a group gets them; the brokers of the topic."""
        route = await self._client.route(self.topic)
        brokers = brokers_of(self.topic, route)
        queues = subscribe_queues(self.topic, route)
        if not queues:  # a member of a group would wait for one
            raise MQClientError(nothing_to_subscribe(self.topic))
        self._lost = {one for one in queues if not brokers[one.broker_name]}
        return brokers

    def tell_away(self, error: ReputError | None = None) -> None:
        """Say who is away, or why nobody knows, but for what was said before; all are asked again then."""
        notes = self._client.notes() or [str(error)] * (error is not None)
        for note in notes:
            if note not in self._told:
                write_error(note)
        self._told = set(notes)
        self._client.ask_again()

    async def look(self) -> None:
        """Ask who is away now, and say it."""
        try:
            await self.ask_ends()
        except ReputError as error:
            self.tell_away(error)
        else:
            self.tell_away()

    async def watch(self) -> None:
        """Look again and again, until it is cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            await self.look()

    def with_end(self, queues: Iterable[QueueKey]) -> list[QueueKey]:
        """The queues whose ends are known; the others are left out of what is read.

        So are queues of brokers that a consumer's route lacks: of several name servers one may have been started anew.

        Raises MQClientError if the topic has no queues.
        """
        asked = tuple(queues)
        if not asked:
            raise MQClientError(nothing_to_subscribe(self.topic))
        brokers = {queue.broker_name for queue in asked}
        absent = (queue for queue, end in self._ends.items() if end and queue.broker_name not in brokers)
        self._left_out = (*absent, *(queue for queue in asked if queue not in self._ends))
        return [queue for queue in asked if queue in self._ends]

    async def is_over(self, consumer: PullConsumer) -> bool:
        """Whether a consumer has polled its queues up to their ends, or nothing has come for too long."""
        positions = {queue: consumer.position(queue) for queue in consumer.assignment}
        waited_for = {queue: self._positions.get(queue) for queue in self._behind()}
        if positions.keys() != self._positions.keys() or any(positions[one] != at for one, at in waited_for.items()):
            self._moved_at = time.monotonic()
        self._positions = positions
        self._seen |= positions
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
        return {queue for queue in self._positions if not self._is_read(queue)}

    def _is_read(self, queue: QueueKey) -> bool:
        position, end = self._seen.get(queue), self._ends.get(queue)
        return position is not None and end is not None and position >= end

    async def tell_left(self) -> int:
        """Say what is not read to its end; the exit status, 2 if there is such a queue."""
        with suppress(ReputError):  # else it is as it was
            await self._find_lost()
        if not self._positions and not self._left_out:
            write_error(f"no queue of topic {self.topic!r} in {_PATIENCE_S:g} s: other members of the group have them")
            return 2
        lost = (queue for queue in self._lost if not self._is_read(queue))
        left = sorted({*lost, *self._left_out, *self._behind()})
        if left:
            found = some_names(f"{one.broker_name}:{one.queue_id} ({self._place(one)})" for one in left)
            write_error(f"queues of topic {self.topic!r} that are not read to their ends: {found}")
        return 2 if left else 0

    def _place(self, queue: QueueKey) -> str:
        position, end = self._seen.get(queue), self._ends.get(queue)
        if end is None:
            return "its end is not known"
        return f"{'nothing' if position is None else f'up to offset {position}'} of {end}"
