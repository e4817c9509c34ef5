"""`read_log_stream`: the stream source with its options as arguments; and the lag of a query."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from reput.config.arguments import refusal, texts_of
from reput.spark.arguments import check_arguments, paths_of
from reput.spark.compat import LIMITS, require_minor
from reput.spark.options import absolute_folders, absolute_path, option_texts
from reput.spark.schema import spark_schema
from reput.spark.stream_offset import own_offset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_log_stream(
    spark: SparkSession,
    path: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    columns: Iterable[str] | None = None,
    topics: Iterable[str] | None = None,
    keys: Iterable[str] | None = None,
    until: str = "proven",
    *,
    starting_offsets: str | int | Mapping[str, str | int] | None = None,
    starting_timestamp: datetime | int | None = None,
    max_bytes_per_trigger: int | None = None,
    max_rows_per_trigger: int | None = None,
    fail_on_data_loss: bool = True,
    mode: str = "FAILFAST",
    raw_body: bool = False,
    commit_log_path: str | os.PathLike[str] | None = None,
    store: str | None = None,
    split_bytes: int | None = None,
) -> DataFrame:
    """Read the messages of one or more stores as a streaming DataFrame: stored messages, then new ones.

    Args:
        path: a store directory, a pattern such as `/brokers/*/store`, or a list of both; the column `store` names the
            store of a row.

    The other arguments are as for `reput.spark.read_log`, and the options of `StreamOptions` in
    `reput.spark.stream_options`.

    Raises ConfigError for an unknown column, or a path that is not on a local or mounted file system; Spark raises
    other errors when the query starts.
    """
    check_arguments(**locals())
    paths = list(map(absolute_path, paths_of("path", path)))
    schema = spark_schema(columns)
    if isinstance(starting_offsets, Mapping):
        begins = {absolute_path(name, "starting_offsets"): value for name, value in starting_offsets.items()}
        starting_offsets = json.dumps(begins)
    options = {
        "commitLogPath": absolute_folders(commit_log_path),
        "topics": None if topics is None else texts_of("topics", topics),
        "keys": None if keys is None else texts_of("keys", keys),
        "until": until,
        "startingOffsets": starting_offsets,
        "startingTimestamp": starting_timestamp,
        "maxBytesPerTrigger": max_bytes_per_trigger,
        "maxRowsPerTrigger": max_rows_per_trigger,
        "failOnDataLoss": fail_on_data_loss,
        "mode": mode,
        "rawBody": raw_body,
        "store": store,
        "splitBytes": split_bytes,
    }
    options["paths"] = paths
    return spark.readStream.format("reput").schema(schema).options(**option_texts(options)).load()


def bytes_behind_latest(progress: Any) -> dict[str, int]:
    """Lag of a query by its progress: log bytes after the end of each store's batch when it was planned, by path.

    Args:
        progress: `query.lastProgress`, or the `progress` of a listener's event; None, as before the first batch, has no
            lag.

    Other sources of the query are ignored. Raises ConfigError below Spark 4.2, which does not ask for the ends of the
    logs: as the latest offset it shows the end of the batch.
    """
    if progress is not None and not hasattr(progress, "__getitem__"):
        raise refusal("progress", progress, "the progress of a query, as its lastProgress")
    if progress is not None:
        require_minor(LIMITS, "bytes_behind_latest", "compare endOffset with where the log ends")
    lags: dict[str, int] = {}
    for source in progress["sources"] if progress is not None else ():
        end, latest = (own_offset(source[name]) for name in ("endOffset", "latestOffset"))
        for path in end.keys() & latest.keys():
            lags[path] = max(latest[path]["offset"] - end[path]["offset"], 0)
    return lags
