"""A Spark session that reads the logs all the time: each store as a batch, in turn, and the first one as a stream.

    python -m lab.campaign.soak.spark FILE SCRATCH STORE...

It tells FILE what it has read, or what was wrong.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from pyspark.sql import functions

from lab.campaign.soak.telling import Teller
from reput.spark import read_log, read_log_stream, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PAUSE_S = 5
_COLUMNS = ["topic", "queue_id", "queue_offset", "status"]
#: What may happen beside retention, before the first start of a writer, and on a busy machine (Spark gives a process of
#: Python 10 s to start): part of the error -> what it is counted as.
_HARMLESS = {
    "retention has deleted": "Spark reads overtaken by retention",
    "is no store": "Spark reads before there was a store",
    "failed to connect back": "Spark's Python processes that started too late",
}


def by_queue(messages: DataFrame) -> dict[tuple[str, int], tuple[int, int, int]]:
    """First queue offset, last one and count of each queue; the CRC of every body was compared."""
    queues = messages.groupBy("topic", "queue_id").agg(
        functions.min("queue_offset"), functions.max("queue_offset"), functions.count("*"),
        functions.count_if(functions.col("status") != "OK"),
    )  # fmt: skip
    found = {}
    for topic, queue_id, first, last, count, bad in queues.collect():
        assert bad == 0, f"{topic} {queue_id}: {bad} rows are not OK"
        assert last - first + 1 == count, f"{topic} {queue_id}: {count} messages from {first} to {last}"
        found[topic, queue_id] = first, last, count
    return found


def read(spark: SparkSession, path: str, teller: Teller) -> None:
    """One batch read of a whole log: no queue has a gap."""
    try:
        found = by_queue(read_log(spark, path, columns=_COLUMNS, mode="FAILFAST"))
    except Exception as error:
        count_or_raise(error, teller)
        return
    teller.count("Spark reads")
    teller.count("rows of Spark reads", sum(count for _, _, count in found.values()))


def count_or_raise(error: BaseException | None, teller: Teller) -> None:
    """Count an error that is no broken promise."""
    for part, name in _HARMLESS.items():
        if part in str(error):
            teller.count(name)
            return
    raise error or AssertionError("a stream has ended by itself")


class Follower:
    """A stream over one log: each batch goes on where the one before has ended, queue by queue."""

    def __init__(self, teller: Teller) -> None:
        self._teller = teller
        self._ends: dict[tuple[str, int], int] = {}
        self._batch = -1

    def take(self, batch: DataFrame, number: int) -> None:
        """One micro-batch; one that Spark repeats because it did not hear of its end counts once."""
        if number <= self._batch:
            return
        for queue, (first, last, count) in by_queue(batch).items():
            assert self._ends.get(queue, first) == first, f"{queue}: {first} after {self._ends[queue]}"
            self._ends[queue] = last + 1
            self._teller.count("rows of the Spark stream", count)
        self._batch = number
        self._teller.count("batches of the Spark stream")


def main() -> None:
    told, scratch, *paths = sys.argv[1:]
    teller = Teller(told)
    try:
        spark = session("local[1]", "soak", **{"spark.driver.memory": "512m", "spark.local.dir": scratch})
        teller.tell("opened")
        while not os.path.isdir(f"{paths[0]}/commitlog"):  # its writer starts at the same time
            time.sleep(1)
        stream = read_log_stream(spark, paths[0], _COLUMNS).writeStream.foreachBatch(Follower(teller).take)
        stream = stream.option("checkpointLocation", f"{scratch}/checkpoint").trigger(processingTime="10 seconds")
        query = stream.start()
        while True:
            for path in paths:
                read(spark, path, teller)
                teller.tell_counts()
                time.sleep(_PAUSE_S)
                if not query.isActive:
                    count_or_raise(query.exception(), teller)
                    query = stream.start()
    except BaseException as error:
        teller.fail(error)


if __name__ == "__main__":
    main()
