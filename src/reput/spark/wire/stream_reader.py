"""Stream reader of brokers: micro-batches of ranges of queues.

Spark's planner keeps one reader in a process of its own as long as the query runs. It asks for the latest offset again
and again, and for the ranges of each batch; tasks pull the ranges. Only the offset is state: a query that is started
again from its checkpoint plans the same batch again. Queues may come and go between batches: a new one is read from its
first message on, and one whose broker is away waits where it is.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from reput.errors import AccessDeniedError, ConfigError, DataLossError, MQBrokerError, RemotingError
from reput.events import Event
from reput.remoting.queue_tables import QueueKey
from reput.spark.compat import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from reput.spark.schema import column_names
from reput.spark.short_errors import without_traceback
from reput.spark.wire.cluster import Cluster
from reput.spark.wire.data_loss import tell_loss
from reput.spark.wire.options import WireReadOptions, stream_options
from reput.spark.wire.queue_ranges import QueueRange, limited
from reput.spark.wire.reader import WirePartition, partitions_of, read_range, selection_of
from reput.spark.wire.starting_offsets import begins_of, subscribed
from reput.spark.wire.wire_offset import END, FIRST, WireOffset, ends_of, json_of_queues, queues_of_json, ranges_of

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("reput.spark")


class WireStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream reader of some columns of brokers' messages, made of Spark's options and the user's schema.

    Its methods raise errors as of `WireReader`. The constructor raises none: Spark would hide it by an error of its
    own.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._given = dict(options), schema
        self._targets: dict[QueueKey, int] | None = None
        self._latest: dict[QueueKey, int] = {}
        self._away: set[QueueKey] = set()

    @cached_property
    def _options(self) -> WireReadOptions:
        return stream_options(self._given[0])

    @cached_property
    def _cluster(self) -> Cluster:
        return Cluster(self._options.access)

    @without_traceback
    def initialOffset(self) -> WireOffset:
        """Empty offset: the end of a queue's first batch holds its begin, which so is the same after a restart."""
        selection_of(self._options, column_names(self._given[1]), "")  # raises for wrong columns
        return {}

    @without_traceback
    def getDefaultReadLimit(self) -> ReadLimit:
        """Limit of a batch by the options."""
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    @without_traceback
    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of each queue as the end of the batches; queues that come later are not read."""
        queues = subscribed(self._cluster, self._options)
        self._targets = {queue: self._cluster.latest(queue) for queue in queues}

    @without_traceback
    def latestOffset(self, start: WireOffset, limit: ReadLimit) -> WireOffset:
        """End of the next batch; `start` without new messages. Queues share the limit by what waits in them."""
        before = ends_of(start)
        latest = self._latest_of(before)
        self._latest = {**{queue: end for queue, end in before.items() if queue not in latest}, **latest}
        begins = self._begins(before, latest)
        ends = {queue: max(latest[queue], begin) for queue, begin in begins.items()}
        ends = limited(begins, ends, getattr(limit, "max_rows", None))
        entries: dict[QueueKey, Any] = queues_of_json(start)
        for queue, end in ends.items():
            if begins[queue] != before.get(queue):
                entries[queue] = [begins[queue], end]
            elif end != begins[queue]:
                entries[queue] = end
        return json_of_queues(entries)

    @without_traceback
    def latest_without_start(self) -> WireOffset:
        """End of a batch whose start Spark below 4.2 has not told: where the queues end now, after any start.

        An entry has the begin of a queue's first batch, too, but for options that do not give one.
        """
        latest = self._latest_of({})
        begins: Mapping[QueueKey, int] = {}
        with suppress(ConfigError):  # is raised by `partitions` if the batch turns out to be the first one
            begins = dict(zip(latest, begins_of(self._cluster, self._options, latest), strict=True))
        return json_of_queues({queue: {FIRST: begins.get(queue), END: end} for queue, end in latest.items()})

    @without_traceback
    def check_restart(self, start: WireOffset, end: WireOffset) -> None:
        """Raise RemotingError if the checkpoint has a queue that `end`, of `latest_without_start`, would forget.

        Messages that are lost are told as by `latestOffset`.
        """
        before = ends_of(start)
        latest = self._latest_of(before)
        if away := sorted(before.keys() - (latest.keys() & ends_of(end).keys())):
            named = ", ".join(f"{queue.topic}, queue {queue.queue_id} of {queue.broker_name}" for queue in away)
            raise RemotingError(
                f"the checkpoint has {named}: not read now, or its broker is away. A query that ends by itself would "
                "forget how far it was read: start it again when the broker is there, take another trigger than "
                "availableNow, or Spark 4.2 or newer"
            )
        self._begins(before, latest)

    def reportLatestOffset(self) -> WireOffset:
        """Ends of the queues when the last batch was planned, for the query's progress: the lag is up to these ends."""
        return json_of_queues(self._latest)

    @without_traceback
    def partitions(self, start: WireOffset, end: WireOffset) -> Sequence[InputPartition]:
        """Ranges of a batch; after a restart they have the same messages."""

        def begin_of(queue: QueueKey) -> int:
            if start:
                return self._cluster.earliest(queue)
            queues = subscribed(self._cluster, self._options)
            return begins_of(self._cluster, self._options, queues)[queues.index(queue)]

        ranges = [QueueRange(queue, *bounds) for queue, bounds in sorted(ranges_of(start, end, begin_of).items())]
        return partitions_of(ranges, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Pull the wanted rows of one range."""
        if isinstance(partition, WirePartition):  # Spark makes another partition where there are no ranges
            yield from read_range(self._options, column_names(self._given[1]), partition.wanted)

    def commit(self, end: WireOffset) -> None:
        """Keep the progress in the group that the options name; if that fails, the log says so."""
        if self._options.group is not None:
            self._cluster.commit(self._options.group, ends_of(end))

    def stop(self) -> None:
        """Close the connections."""
        self._cluster.close()

    def _latest_of(self, before: Mapping[QueueKey, int]) -> dict[QueueKey, int]:
        """The end of each queue that can be read now.

        Raises RemotingError if a broker does not answer before the first batch: where its queues begin is not known.
        """
        cluster, found = self._cluster, {}
        queues = cluster.queues(cluster.topics(self._options)) if before else subscribed(cluster, self._options)
        for queue in sorted(before.keys() - set(queues)):
            if self._options.subscribes(queue.topic):
                self._waits(queue, "no name server knows the queue")
        silent: dict[str, RemotingError] = {}  # by broker: each of its queues would wait as long as the first
        for queue in queues:
            if self._targets is not None and queue not in self._targets:
                continue
            try:
                if queue.broker_name in silent:
                    raise silent[queue.broker_name]
                latest = cluster.latest(queue)
            except RemotingError as error:
                if not before or isinstance(error, AccessDeniedError):
                    raise
                if not isinstance(error, MQBrokerError):
                    silent[queue.broker_name] = error
                self._waits(queue, error)
                continue
            if latest < before.get(queue, 0) and not cluster.has_master(queue):
                self._waits(queue, f"its master is away, and its slave ends at {latest}")
                continue
            self._away.discard(queue)
            found[queue] = latest if self._targets is None else min(latest, self._targets[queue])
        return found

    def _waits(self, queue: QueueKey, reason: object) -> None:
        """Say once that a queue waits where it is."""
        if queue not in self._away:
            logger.warning(Event("a queue waits for its broker", queue=queue, error=reason))
        self._away.add(queue)

    def _begins(self, before: Mapping[QueueKey, int], latest: Mapping[QueueKey, int]) -> dict[QueueKey, int]:
        """First offsets of the next batch, by queue; a queue whose broker does not answer is left out, and waits."""
        if not before:
            queues = list(latest)
            return dict(zip(queues, begins_of(self._cluster, self._options, queues), strict=True))
        begins = {}
        for queue, end in latest.items():
            try:
                begins[queue] = self._begin(queue, before.get(queue), end)
            except RemotingError as error:
                self._waits(queue, error)
        return begins

    def _begin(self, queue: QueueKey, before: int | None, latest: int) -> int:
        """The end of the batch before, or where to go on if messages after it are gone."""
        if before is None:
            return self._cluster.earliest(queue)
        if before == latest:
            return before
        earliest = self._cluster.earliest(queue)
        if earliest <= before <= latest:
            return before
        following = earliest if before < earliest else latest
        name = f"{queue.topic}, queue {queue.queue_id} of {queue.broker_name}"
        has = f"the queue has {earliest} to {latest - 1}"
        tell_loss(self._options, DataLossError(f"{name}: the next message is {before}, and {has}"))
        return following
