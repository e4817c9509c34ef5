"""Batch reader of brokers: the planner asks for offsets, and each task pulls ranges of queues.

The rows of a DataFrame are the same in each of its queries as long as the brokers have the messages: the ends of the
queues are found when it is planned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from reput.errors import CorruptRecordError, DataLossError, ReputError
from reput.log.plans.pruning import Wanted
from reput.log.selection import Selection, make_selection, milliseconds
from reput.remoting.queue_tables import QueueKey
from reput.remoting.topic_validator import TOOLS_GROUP
from reput.spark.compat import Filter
from reput.spark.daemon import freeze_worker
from reput.spark.filters import narrowed
from reput.spark.short_errors import without_traceback
from reput.spark.wire.cluster import Cluster
from reput.spark.wire.data_loss import tell_loss
from reput.spark.wire.options import WireReadOptions
from reput.spark.wire.pulls import Pulls, batches
from reput.spark.wire.queue_ranges import QueueRange, cut
from reput.spark.wire.starting_offsets import planned_ranges

if TYPE_CHECKING:
    import pyarrow as pa

_OFFSET = "queue_offset"


class WirePartition(InputPartition):
    """Range of a queue that one task pulls."""

    def __init__(self, wanted: QueueRange) -> None:
        super().__init__(None)
        self.wanted = wanted


class WireReader(DataSourceReader):
    """Reader of some columns of brokers' messages. Spark makes one a query, plans by it, and pickles it for the tasks.

    Its methods raise ConfigError if options contradict the cluster, MQClientError and RemotingError if it does
    not answer, and DataLossError if planned messages are gone and `failOnDataLoss` is true.

    Args:
        ends: of `queue_ends`, where a DataFrame is planned again and again; None: the queues end where they end.
    """

    def __init__(
        self, options: WireReadOptions, columns: tuple[str, ...], ends: Mapping[QueueKey, int] | None = None
    ) -> None:
        self._options = options
        self._ends = ends
        self._columns = columns
        self._filters: tuple[Filter, ...] = ()
        selection_of(options, columns, "")  # raises for wrong columns and times before anything is asked

    @without_traceback
    def partitions(self) -> list[InputPartition]:
        """Plan the tasks, queue by queue."""
        ranges = _ranges_now(self._options)
        if (ends := self._ends) is not None:
            ranges = [one._replace(end=min(one.end, ends.get(one.queue, one.begin))) for one in ranges]
        wanted = narrowed(Wanted(), self._filters)
        ranges = [narrow for one in ranges if (narrow := _narrowed(one, wanted)) is not None]
        return partitions_of(ranges, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Pull the wanted rows of one task."""
        if isinstance(partition, WirePartition):  # Spark makes another partition where there are none
            yield from read_range(self._options, self._columns, partition.wanted)


class FilteringWireReader(WireReader):
    """WireReader that leaves out queues and ranges by the query's filters, as `FilteringLogReader`."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep the filters for pruning, and return all of them: Spark applies them, too."""
        self._filters = tuple(filters)
        return filters


def queue_ends(options: WireReadOptions) -> dict[QueueKey, int]:
    """Ends of the queues that a batch reads, as they are now."""
    return {one.queue: one.end for one in _ranges_now(options)}


def _ranges_now(options: WireReadOptions) -> list[QueueRange]:
    cluster = Cluster(options.access)
    try:
        return planned_ranges(cluster, options)
    finally:
        cluster.close()


def partitions_of(ranges: Iterable[QueueRange], options: WireReadOptions) -> list[InputPartition]:
    """The partitions of ranges, cut by the options."""
    pieces = cut(list(ranges), options.min_partitions, options.max_records_per_partition)
    return [WirePartition(one) for one in pieces]


def selection_of(options: WireReadOptions, columns: tuple[str, ...], broker_name: str) -> Selection:
    """The wanted rows and columns of one broker's messages; its name is the column `store`."""
    end = options.ending_timestamp
    return make_selection(
        columns=columns,
        begin=options.starting_timestamp,
        end=None if end is None else milliseconds("endingTimestamp", end) - 1,
        raw_body=options.raw_body,
        store=broker_name,
    )


def read_range(options: WireReadOptions, columns: tuple[str, ...], wanted: QueueRange) -> Iterator[pa.RecordBatch]:
    """Task: pull the wanted rows of a range."""
    with_offset = columns if _OFFSET in columns else (*columns, _OFFSET)
    selection = selection_of(options, with_offset, wanted.queue.broker_name)

    def lost(error: DataLossError) -> None:
        tell_loss(options, error)

    def left_out(reason: str, commit_log_offset: int, messages: int) -> None:
        broker = f"broker {wanted.queue.broker_name}"
        tell_loss(options, CorruptRecordError(broker, commit_log_offset, f"{messages} left out: {reason}"))

    cluster = Cluster(options.access)
    try:
        pulls = Pulls(cluster, options.group or TOOLS_GROUP, wanted, lost)
        for batch in batches(pulls, wanted, selection, left_out):
            yield batch if with_offset is columns else batch.select(list(columns))
    except ReputError as error:
        raise error.with_traceback(None) from None  # as `without_traceback`
    finally:
        cluster.close()
    freeze_worker()


def _narrowed(one: QueueRange, wanted: Wanted) -> QueueRange | None:
    """Part of a range that filters leave; None if they leave nothing of its queue."""
    queue, offsets = one.queue, wanted.queue_offset
    if wanted.topics is not None and queue.topic not in wanted.topics:
        return None
    if wanted.queue_ids is not None and queue.queue_id not in wanted.queue_ids:
        return None
    return QueueRange(queue, max(one.begin, offsets.low), min(one.end, offsets.high + 1))
