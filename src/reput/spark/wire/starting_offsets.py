"""Offsets of a batch in each queue, by the options; the cluster is asked for the queues of a topic."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from reput.errors import ConfigError, DataLossError, RemotingError
from reput.log.selection import milliseconds
from reput.remoting.queue_tables import QueueKey
from reput.spark.wire.cluster import Cluster
from reput.spark.wire.data_loss import tell_loss
from reput.spark.wire.options import EARLIEST, EARLIEST_OFFSET, LATEST_OFFSET, Offsets, WireReadOptions
from reput.spark.wire.queue_ranges import QueueRange


def planned_ranges(cluster: Cluster, options: WireReadOptions) -> list[QueueRange]:
    """Ranges of queues that a batch reads.

    Raises ConfigError if the options do not name the queues that there are, RemotingError if they name messages
    that a slave, whose master is away, does not have.
    """
    queues = subscribed(cluster, options)
    begins = begins_of(cluster, options, queues)
    ends = _offsets(cluster, queues, "ending", options.ending_offsets, options.ending_timestamp, after=1)
    ranges = []
    for queue, begin, end in zip(queues, begins, ends, strict=True):
        earliest, latest = cluster.earliest(queue), cluster.latest(queue)
        named = [one[queue] for one in (options.starting_offsets, options.ending_offsets) if not isinstance(one, str)]
        if max(named, default=latest) > latest and not cluster.has_master(queue):
            raise RemotingError(
                f"{queue.topic}, queue {queue.queue_id} of {queue.broker_name}: the options name {max(named)}; its "
                f"master is away, and its slave ends at {latest}"
            )
        if not isinstance(options.starting_offsets, str) and not earliest <= begin <= latest:
            tell_loss(
                options,
                DataLossError(
                    f"option startingOffsets: {queue.topic}, queue {queue.queue_id} of {queue.broker_name} begins at "
                    f"{begin}, and it has {earliest} to {latest - 1}"
                ),
            )
        ranges.append(QueueRange(queue, max(begin, earliest), min(end, latest)))
    return ranges


def subscribed(cluster: Cluster, options: WireReadOptions) -> tuple[QueueKey, ...]:
    """The queues of the topics that are read. Raises ConfigError for a topic by name that is not there."""
    topics = cluster.topics(options)
    queues = cluster.queues(topics)
    if options.subscribe is not None:
        missing = set(topics) - {queue.topic for queue in queues}
        if missing:
            raise ConfigError(f"option subscribe: no name server knows a topic {', '.join(sorted(missing))}")
    return queues


def begins_of(cluster: Cluster, options: WireReadOptions, queues: Iterable[QueueKey]) -> list[int]:
    """First offsets of queues, by `startingOffsets` and `startingTimestamp`; errors as of `planned_ranges`."""
    return _offsets(cluster, queues, "starting", options.starting_offsets, options.starting_timestamp)


def _offsets(
    cluster: Cluster,
    queues: Iterable[QueueKey],
    name: str,
    offsets: Offsets,
    timestamp: datetime | int | None,
    after: int = 0,
) -> list[int]:
    queues = list(queues)
    if timestamp is not None:
        ms = milliseconds(f"{name}Timestamp", timestamp)
        return [cluster.at(queue, ms) + after for queue in queues]
    if isinstance(offsets, str):
        find = cluster.earliest if offsets == EARLIEST else cluster.latest
        return [find(queue) for queue in queues]
    _check_named(name, set(offsets), set(queues))
    special = {EARLIEST_OFFSET: cluster.earliest, LATEST_OFFSET: cluster.latest}
    return [special[offset](queue) if (offset := offsets[queue]) in special else offset for queue in queues]


def _check_named(name: str, named: set[QueueKey], there: set[QueueKey]) -> None:
    """Raises ConfigError unless all queues of the topics are named and no others, as the Kafka source wants it."""
    for queues, what in ((there - named, "queues that it does not name"), (named - there, "queues that nobody has")):
        if queues:
            found = ", ".join(f"{one.topic} {one.broker_name}:{one.queue_id}" for one in sorted(queues))
            raise ConfigError(f"option {name}Offsets: it needs each queue of the topics; {what}: {found}")
