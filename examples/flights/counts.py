"""Two counts of the messages, made on Spark over a store and in Arrow over a table.

`counts`: messages and minutes of delay by topic, hour of the event, airport and carrier. `delays`: departures and their
minutes of delay by scheduled hour of the day in New York, airport and carrier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from examples.flights.events import DEPARTED, EVENT_TIME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT_KEYS = ("topic", "hour", "airport", "carrier")
DELAY_KEYS = ("scheduled_hour", "airport", "carrier")
VALUES = ("messages", "delay_minutes")
TYPES = {
    "topic": pa.string(),
    "hour": pa.timestamp("us", tz="UTC"),
    "airport": pa.string(),
    "carrier": pa.string(),
    "scheduled_hour": pa.int32(),
    "messages": pa.int64(),
    "delay_minutes": pa.int64(),
}
COUNT_COLUMNS = ["topic", "tags", "properties"]
SPARK_SCHEMA = "topic string, tags string, properties map<string, string>"
"""COUNT_COLUMNS with Spark's types: the schema that is given chooses the columns that are read from the store."""


class Counts(NamedTuple):
    """Both counts, sorted by their keys: keys, then `messages` and `delay_minutes` as int64."""

    counts: pa.Table
    delays: pa.Table


def count_on_spark(spark: SparkSession, store: str) -> Counts:
    """Count the rows of a store on Spark."""
    from pyspark.sql import functions as F

    rows = spark.read.format("reput").schema(SPARK_SCHEMA).load(store)
    rows = rows.select(
        "topic",
        F.date_trunc("hour", F.timestamp_millis(F.col("properties")[EVENT_TIME].cast("long"))).alias("hour"),
        F.col("properties")["origin"].alias("airport"),
        F.col("tags").alias("carrier"),
        F.col("properties")["scheduled_hour"].cast("int").alias("scheduled_hour"),
        F.coalesce(F.col("properties")["delay_minutes"].cast("long"), F.lit(0)).alias("delay_minutes"),
    ).cache()

    def grouped(frame: DataFrame, keys: tuple[str, ...]) -> pa.Table:
        sums = (F.count("*").alias("messages"), F.sum("delay_minutes").alias("delay_minutes"))
        return frame.groupBy(*keys).agg(*sums).toArrow()

    counts = grouped(rows, COUNT_KEYS)
    delays = grouped(rows.filter(F.col("topic") == DEPARTED), DELAY_KEYS)
    rows.unpersist()
    return Counts(_in_order(counts, COUNT_KEYS), _in_order(delays, DELAY_KEYS))


def count_in_arrow(rows: pa.Table) -> Counts:
    """Count rows with the columns topic, tags and properties in Arrow."""
    delay_minutes = pc.map_lookup(rows["properties"], "delay_minutes", "first")
    event_time = pc.map_lookup(rows["properties"], EVENT_TIME, "first").cast(pa.int64()).cast(pa.timestamp("ms"))
    table = pa.table(
        {
            "topic": rows["topic"],
            "hour": pc.floor_temporal(event_time.cast(pa.timestamp("us")), unit="hour"),
            "airport": pc.map_lookup(rows["properties"], "origin", "first"),
            "carrier": rows["tags"],
            "scheduled_hour": pc.map_lookup(rows["properties"], "scheduled_hour", "first").cast(pa.int32()),
            "delay_minutes": pc.fill_null(delay_minutes.cast(pa.int64()), 0),
        }
    )

    def grouped(table: pa.Table, keys: tuple[str, ...]) -> pa.Table:
        sums = table.group_by(list(keys)).aggregate([([], "count_all"), ("delay_minutes", "sum")])
        return sums.rename_columns({"count_all": "messages", "delay_minutes_sum": "delay_minutes"})

    counts = grouped(table, COUNT_KEYS)
    delays = grouped(table.filter(pc.equal(table["topic"], DEPARTED)), DELAY_KEYS)
    return Counts(_in_order(counts, COUNT_KEYS), _in_order(delays, DELAY_KEYS))


def _in_order(table: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    schema = pa.schema([(name, TYPES[name]) for name in (*keys, *VALUES)])
    return table.select(schema.names).cast(schema).sort_by([(key, "ascending") for key in keys]).combine_chunks()
