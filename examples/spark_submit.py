"""A program for `spark-submit`: counts the messages of a store by topic, and rebuilds its queues and index.

spark-submit --master spark://host:7077 --py-files reput.zip examples/spark_submit.py STORE OUTPUT

`reput.zip` is the wheel under another name, as Spark takes no `.whl`. The nodes need not have reput then, only what it
depends on (docs/spark-cluster.md). STORE and OUTPUT are paths that all nodes share.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from reput.jobs.rebuild.job import rebuild
from reput.spark import read_log, register
from reput.spark.runner import SparkRunner


def main(store: str, output: str) -> None:
    spark = SparkSession.builder.appName("reput").getOrCreate()
    register(spark)  # Spark looks for formats where Python is installed, and not in --py-files
    counts = read_log(spark, store, columns=["topic"]).groupBy("topic").count().orderBy("topic")
    for topic, count in counts.collect():
        print(f"{topic}: {count}")
    result = rebuild(store, output, runner=SparkRunner(spark))
    print(f"{result.messages} messages rebuilt")
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("give STORE and OUTPUT: paths that all nodes share")
    main(*sys.argv[1:])
