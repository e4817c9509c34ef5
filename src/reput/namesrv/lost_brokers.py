"""LostBrokers: masters that went without a word, so that tools do not take the rest of a topic for all of it.

RocketMQ's name server forgets them. This one tells of them if a request asks for it (`withLostBrokers`), as reput's
tools do and RocketMQ's clients do not. Pure, as `RouteInfoManager`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from reput.remoting.route_bodies import BrokerData, QueueData

#: A broker that has not come back after so long is forgotten.
KEPT_MS = 24 * 60 * 60 * 1000
#: Brokers, and topics of all of them together, that are kept at most: the network may register any number.
MOST_BROKERS, MOST_TOPICS = 1000, 100_000
#: Longest name that is kept; RocketMQ's topics have 255 characters at most.
_LONGEST_NAME = 255


class _Lost(NamedTuple):
    """A lost broker: the time of its loss, its cluster, and its queues by topic."""

    lost_ms: int
    cluster: str
    queues: dict[str, QueueData]


class LostBrokers:
    """By broker name; the oldest go first if they are too many."""

    def __init__(self) -> None:
        self._lost: dict[str, _Lost] = {}  # the oldest first

    def note(self, name: str, cluster: str, queues: Mapping[str, QueueData], now_ms: int) -> None:
        """Keep a broker that is lost, with its queues by topic; without any, those that are kept of it stay."""
        before = self._lost.pop(name, None)
        if len(name) > _LONGEST_NAME or len(cluster) > _LONGEST_NAME:
            return
        named = ((topic, replace(one, others={})) for topic, one in queues.items() if len(topic) <= _LONGEST_NAME)
        kept = dict(islice(named, MOST_TOPICS)) or (before.queues if before else {})
        self._lost[name] = _Lost(now_ms, cluster, kept)
        while len(self._lost) > MOST_BROKERS or sum(len(one.queues) for one in self._lost.values()) > MOST_TOPICS:
            del self._lost[next(iter(self._lost))]

    def forget(self, name: str) -> None:
        """The broker is back, or gone on purpose."""
        self._lost.pop(name, None)

    def forget_topic(self, topic: str, cluster: str | None = None) -> None:
        """The topic was deleted; `cluster`: there alone."""
        for one in self._lost.values():
            if cluster in (None, one.cluster):
                one.queues.pop(topic, None)

    def expire(self, now_ms: int) -> None:
        """Forget the brokers that were lost too long ago."""
        self._lost = {name: one for name, one in self._lost.items() if one.lost_ms + KEPT_MS >= now_ms}

    def queues(self, topic: str) -> dict[str, QueueData]:
        """The queues of a topic by broker name."""
        return {name: one.queues[topic] for name, one in self._lost.items() if topic in one.queues}

    def topics(self) -> Iterator[str]:
        """The topics of all of them; one of several brokers more than once."""
        return (topic for one in self._lost.values() for topic in one.queues)

    def brokers(self) -> dict[str, BrokerData]:
        """All of them by name; none has an address."""
        return {name: BrokerData(one.cluster, name) for name, one in self._lost.items()}
