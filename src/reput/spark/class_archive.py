"""Make the class archive that halves the start of Spark's JVM.

The JVM writes the archive at the end of a training session: 20 to 35 s of work and 160 to 190 MB, for 3.5 s less until
the first result of each later session. So it is made once, ahead of time (`reput warm --spark`); a session uses an
existing archive and never makes one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING

import pyarrow as pa

from reput.errors import ReputError
from reput.files import DISK
from reput.spark import jvm
from reput.spark.held_interrupt import held_interrupt
from reput.spark.java import class_archive, class_archive_options, find_java
from reput.spark.session import session, spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_MASTER = "local[2]"


def build() -> str:
    """Make the archive for the Java and the Spark of local sessions, unless it exists; returns its path.

    Raises:
        ReputError: there is no Java or no Spark, or the JVM wrote no archive.
    """
    archive = class_archive(find_java(), spark_home())
    if DISK.exists(archive):
        return archive
    partial = f"{archive}.{os.getpid()}"  # two processes may train at once
    training = None
    try:
        with held_interrupt():
            training = subprocess.Popen(
                [sys.executable, "-m", __name__, partial],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                process_group=0,  # Ctrl-C comes to it from here, once
            )
        said, _ = training.communicate()
    except BaseException:
        if training is not None:
            training.send_signal(signal.SIGINT)
            training.wait()
        if DISK.exists(partial):
            DISK.unlink(partial)
        raise
    if training.returncode or not DISK.exists(partial):
        raise ReputError(
            f"{archive}: Java wrote no archive of Spark's classes; Spark works without it, and starts 3 s later. "
            f"The training session said:\n{said}"
        )
    DISK.rename(partial, archive)
    return archive


def train(archive: str) -> None:
    """Run the typical work of our jobs in a session that writes the archive at its end; returns when it is written."""
    spark = session(
        _MASTER, **{"spark.driver.defaultJavaOptions": class_archive_options(find_java(), archive, write=True)}
    )
    _exercise(spark)
    spark.stop()
    jvm.close()


def _exercise(spark: SparkSession) -> None:
    """Make Spark load the classes of our jobs: a Python data source, SQL, mapInArrow, results as rows and as Arrow."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Reader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(0), InputPartition(1)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            yield pa.record_batch({"topic": ["orders", "orders"], "size": pa.array([1, 2], pa.int64())})

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "training"

        def schema(self) -> str:
            return "topic string, size long"

        def reader(self, schema: StructType) -> DataSourceReader:
            return Reader()

    spark.dataSource.register(Source)
    rows = spark.read.format("training").load()
    rows.createOrReplaceTempView("messages")
    spark.sql("SELECT topic, count(*), sum(size) FROM messages WHERE size > 1 GROUP BY topic ORDER BY topic").collect()
    rows.mapInArrow(lambda batches: batches, "topic string, size long").toArrow()


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Handler of SIGINT in the process of the training session."""
    jvm.kill()
    os._exit(1)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, _interrupt)
    train(sys.argv[1])
