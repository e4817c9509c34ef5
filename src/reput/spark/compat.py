"""Differences between Spark's minors: the only module that asks which one runs.

Names that an older minor lacks are imported from here, and so is what stands for a thing that it does not do. What has
no substitute is refused by `require_minor`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
)
from pyspark.version import __version__

from reput.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

#: Major and minor version of the pyspark that is installed.
MINOR = tuple(map(int, __version__.split(".")[:2]))
#: The first minor that tells a stream's reader where a batch begins and how large it may be, and asks it for the lag.
LIMITS = (4, 2)
#: The first minor that pushes filters to a reader, plans a DataFrame once, and gives batches to the writer of a stream.
PUSH_DOWN = (4, 1)

#: Class for the files of checkpoints. On local disks the two writes of a stream's batch took 78 to 202 ms by Spark's
#: default, and 27 to 57 by this class.
CHECKPOINT_FILES = (
    "org.apache.spark.sql.execution.streaming."
    f"{'checkpointing.' if MINOR >= PUSH_DOWN else ''}FileSystemBasedCheckpointFileManager"
)

if TYPE_CHECKING or MINOR >= LIMITS:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:
        """Limit of a batch."""

    @dataclass
    class ReadAllAvailable(ReadLimit):
        """No limit."""

    @dataclass
    class ReadMaxRows(ReadLimit):
        """Limit in rows."""

        max_rows: int

    @dataclass
    class ReadMaxBytes(ReadLimit):
        """Limit in bytes."""

        max_bytes: int

    class SupportsTriggerAvailableNow:
        """Reader that would cut what is there at a query's start into batches; these minors make one batch of it."""


if TYPE_CHECKING or MINOR >= PUSH_DOWN:
    from pyspark.sql.datasource import (
        DataSourceStreamArrowWriter,
        EqualNullSafe,
        EqualTo,
        Filter,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        LessThan,
        LessThanOrEqual,
    )
else:

    class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
        """Writer of a stream that gets batches: Spark 4.0 looks only whether it is a writer of batches."""

    @dataclass(frozen=True)
    class Filter:
        """Condition of a query, which nobody makes here, nor one of those below."""

        attribute: tuple[str, ...]
        value: Any

    class EqualTo(Filter):
        """As of Spark 4.1."""

    class EqualNullSafe(Filter):
        """As of Spark 4.1."""

    class GreaterThan(Filter):
        """As of Spark 4.1."""

    class GreaterThanOrEqual(Filter):
        """As of Spark 4.1."""

    class In(Filter):
        """As of Spark 4.1."""

    class LessThan(Filter):
        """As of Spark 4.1."""

    class LessThanOrEqual(Filter):
        """As of Spark 4.1."""


__all__ = [
    "AVAILABLE_NOW_IS_ONE_BATCH",
    "CHECKPOINT_FILES",
    "EACH_ACTION_PLANS",
    "LIMITS",
    "MINOR",
    "PUSH_DOWN",
    "DataSourceStreamArrowWriter",
    "EqualNullSafe",
    "EqualTo",
    "Filter",
    "GreaterThan",
    "GreaterThanOrEqual",
    "In",
    "LessThan",
    "LessThanOrEqual",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "StartlessReader",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
    "for_this_minor",
    "register_source",
    "require_minor",
]

#: Whether all that the trigger `availableNow` reads is one batch.
AVAILABLE_NOW_IS_ONE_BATCH = MINOR < LIMITS
#: Whether each action on a DataFrame plans its reads again; the data source is made once.
EACH_ACTION_PLANS = MINOR < PUSH_DOWN


def require_minor(minor: tuple[int, int], what: str, instead: str) -> None:
    """Raise ConfigError if the pyspark that is installed is older than a minor.

    Args:
        minor: the first one that can do it.
        what: the options or the function that need it.
        instead: what else can be done.
    """
    if minor > MINOR:
        first = ".".join(map(str, minor))
        raise ConfigError(f"{what}: needs Spark {first} or newer, and this is Spark {__version__}; {instead}")


def arrow_schema(schema: StructType, **options: Any) -> pa.Schema:
    """Arrow schema of Spark's, with times in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if MINOR >= LIMITS:  # older minors have no other zone
        options["timezone"] = "UTC"
    return to_arrow_schema(schema, **options)


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Register a data source with a session, also one that Spark finds by itself, which 4.0 refuses."""
    from pyspark.errors import AnalysisException

    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


class StreamReader(Protocol):
    """A stream reader as Spark has it from 4.2 on, which also finds an end without a start."""

    def initialOffset(self) -> dict[str, Any]:
        """As of Spark."""

    def getDefaultReadLimit(self) -> ReadLimit:
        """As of Spark."""

    def latestOffset(self, start: Any, limit: ReadLimit) -> dict[str, Any]:
        """As of Spark."""

    def latest_without_start(self) -> dict[str, Any]:
        """End of a batch whose start is not known yet."""

    def check_restart(self, start: Any, end: Any) -> None:
        """Raise if an end that was found without a start cannot come after the end of the checkpoint's last batch."""

    def partitions(self, start: Any, end: Any) -> Sequence[InputPartition]:
        """As of Spark."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """As of Spark."""

    def commit(self, end: Any) -> None:
        """As of Spark."""

    def stop(self) -> None:
        """As of Spark."""


class StartlessReader(DataSourceStreamReader):
    """A stream reader as Spark below 4.2 drives it: Spark asks for the latest offset, and tells no start and no limit.

    A batch begins where the planned batch before it ends. After a restart Spark plans an empty batch at the end of the
    checkpoint's last batch. With its wrapper of the trigger `availableNow`, which is a setting, Spark asks for the end
    before that, and so without a start; it writes the end into the checkpoint after that.
    """

    def __init__(self, reader: StreamReader) -> None:
        self._reader = reader
        self._start: Any = None
        self._found_without_start: Any = None

    def initialOffset(self) -> dict[str, Any]:
        """As of the reader."""
        return self._reader.initialOffset()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        """End of the next batch. Raises ConfigError for an option that limits batches."""
        limit = self._reader.getDefaultReadLimit()
        if not isinstance(limit, ReadAllAvailable):
            require_minor(LIMITS, "maxRowsPerTrigger, maxBytesPerTrigger, maxOffsetsPerTrigger", "leave the limit out")
        if self._start is not None:
            return self._reader.latestOffset(self._start, limit)
        found: dict[str, Any] = self._reader.latest_without_start()
        self._found_without_start = found
        return found

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """As of the reader."""
        if self._start is None and self._found_without_start is not None and start == end:
            self._reader.check_restart(start, self._found_without_start)
        self._start = end
        return self._reader.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """As of the reader."""
        return self._reader.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """As of the reader."""
        self._reader.commit(end)

    def stop(self) -> None:
        """As of the reader."""
        self._reader.stop()


def for_this_minor(reader: StreamReader) -> DataSourceStreamReader:
    """The reader as the minor that is installed can drive it."""
    if MINOR >= LIMITS:
        assert isinstance(reader, DataSourceStreamReader)
        return reader
    return StartlessReader(reader)
