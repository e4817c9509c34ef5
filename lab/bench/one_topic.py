"""One topic of a large store, by each reader: `python -m lab.bench.one_topic [--gib 45] [--folder DIR]`.

The store has 17 topics with four queues each: `rare` with a thousand messages, `few` with 3 % of all, and fifteen that
share the rest; bodies are JSON, a record is about 1 KiB. Each reader is a process of its own. A line has its seconds
for the rare topic, from the disk and again from the system's memory, for the topic of 3 % and for all topics, from the
disk: of a command from its start to its end, of readers in Python and on Spark after a read of the rare topic in a
small store, which loads what they need. Those of the rare topic are the medians of three.
The last line is the proof alone, that queues and log fit: units a second of one processor, from memory.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

RARE, FEW, ALL = "rare", "few", ""
_RECORD_BYTES, _RARE_MESSAGES, _FEW_PERCENT, _OTHERS = 1056, 1000, 3, 15
_BATCH, _BODIES = 50_000, 4096
_QUEUES = 4
#: The same once more: queues and the topic's records are in the system's memory then.
_FROM_MEMORY = "again"
_TRIES = 3

#: Programs of one reader each; sys.argv has the store and the topic, which is "" for all.
_READ_LOG = """
import sys, time, reput
def rows(store, topic):
    batches = reput.read_log(store, columns=["queue_offset", "body"], topics=[topic] if topic else None)
    return sum(len(batch) for batch in batches)
rows(sys.argv[3], "rare")
begun = time.perf_counter()
print(rows(*sys.argv[1:3]), time.perf_counter() - begun)
"""
_LOG_DATASET = """
import sys, time, reput, pyarrow.dataset as ds
def rows(store, topic):
    condition = ds.field("topic") == topic if topic else None
    scanner = reput.log_dataset(store).scanner(columns=["queue_offset", "body"], filter=condition)
    return sum(len(batch) for batch in scanner.to_batches())
rows(sys.argv[3], "rare")
begun = time.perf_counter()
print(rows(*sys.argv[1:3]), time.perf_counter() - begun)
"""
_PROOF = """
import sys, time
from reput.log.directory import StoreDirectory
from reput.log.plans.queue_records import proven_batches
directory = StoreDirectory(sys.argv[1])
queues, logs = directory.queues(), directory.log_files()
def units():
    return sum(len(batch.records.offsets) for batch in proven_batches(queues, logs, directory.files))
units()
begun = time.process_time()
print(units() / (time.process_time() - begun))
"""
_SPARK_SOURCE = """
import sys, time
from reput.spark import read_log, session
spark = session("local[2]")
read_log(spark, sys.argv[3]).selectExpr("sum(octet_length(body))").collect()
begun = time.perf_counter()
topics = [sys.argv[2]] if sys.argv[2] else None
print(read_log(spark, sys.argv[1], topics=topics).selectExpr("count(body)", "sum(octet_length(body))").collect()[0][0])
print(time.perf_counter() - begun)
"""
_SPARK_SQL = """
import sys, time
from reput.jobs.query import Source
from reput.spark import session
from reput.spark.sql import query_sql_on_spark
spark = session("local[2]")
text = "select count(body), sum(octet_length(body)) from %s"
query_sql_on_spark(spark, Source(path=sys.argv[3]), text % "rare").collect()
begun = time.perf_counter()
print(query_sql_on_spark(spark, Source(path=sys.argv[1]), text % (sys.argv[2] or "messages")).collect()[0][0])
print(time.perf_counter() - begun)
"""


def _fill(store: str, count: int) -> None:
    """Put the messages: the rare ones evenly spread, the others in an order that chance has drawn."""
    import numpy as np
    import pyarrow as pa

    import reput

    draw = np.random.default_rng(45)
    texts = [b'{"n":%d,"pad":"%s"}' % (n, draw.bytes(455).hex().encode()) for n in range(_BODIES)]
    bodies = pa.array(texts, pa.binary())
    names = pa.array([f"often-{n:02d}" for n in range(_OTHERS)] + [FEW, RARE])
    apart = count // _RARE_MESSAGES
    with reput.MessageStore.open(store, flush_disk_type="ASYNC_FLUSH") as opened:
        for begin in range(0, count, _BATCH):
            numbers = np.arange(begin, min(count, begin + _BATCH))
            topic = draw.integers(0, _OTHERS, len(numbers))
            topic[draw.random(len(numbers)) < _FEW_PERCENT / 100] = _OTHERS
            topic[numbers % apart == apart // 2] = _OTHERS + 1
            columns = {
                "topic": names.take(pa.array(topic)),
                "queue_id": pa.array((numbers % _QUEUES).astype(np.int32)),
                "body": bodies.take(pa.array(draw.integers(0, _BODIES, len(numbers)))),
            }
            opened.put_arrow(pa.table(columns))


def _python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def _reput(*words: str) -> list[str]:
    return [sys.executable, "-m", "reput", *words]


def _readers(folder: str, topic: str) -> dict[str, list[str]]:
    """The command of each reader, by name."""
    store, small, out = f"{folder}/store", f"{folder}/small", f"{folder}/out"
    chosen = ["--topics", topic] if topic else []
    where = f" where topic = '{topic}'" if topic else ""
    sql = "select count(body) as many, sum(octet_length(body)) as bytes from "
    readers = {
        "`read_log(topics=)`": [*_python(_READ_LOG), store, topic, small],
        "`log_dataset(...)`, a filter": [*_python(_LOG_DATASET), store, topic, small],
        "`query --topics`": _reput("query", store, *chosen, "--output", f"{out}.parquet", "--quiet"),
        "`query --sql`, the topic's table": _reput("query", store, "--sql", sql + (topic or "messages"), "--json"),
        "`query --sql`, `messages where topic =`": _reput("query", store, "--sql", sql + f"messages{where}", "--json"),
        "`export --topics`": _reput("export", store, out, *chosen, "--quiet"),
        "`stats --topics`": _reput("stats", store, *chosen, "--json", "--quiet"),
        "`replay --topics`": _reput("replay", store, out, *chosen, "--speed", "max", "--quiet"),
        "Spark's source": [*_python(_SPARK_SOURCE), store, topic, small],
        "SQL on Spark": [*_python(_SPARK_SQL), store, topic, small],
    }
    if not topic:  # copies of the whole store say nothing of a choice
        for name in ("`query --topics`", "`export --topics`", "`replay --topics`"):
            del readers[name]
    return readers


def _forget(store: str) -> None:
    """Take a store's files out of the system's memory."""
    for folder, _, names in os.walk(store):
        for name in names:
            with open(f"{folder}/{name}", "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _seconds(command: list[str]) -> float:
    """Seconds of a reader."""
    begun = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    seconds = time.perf_counter() - begun
    return seconds if "-m" in command else float(done.stdout.split()[-1])


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=45)
    parser.add_argument("--folder", type=Path, default=Path("build/one-topic"))
    parser.add_argument("--only", help="readers whose name has this text")
    parser.add_argument("--keep", action="store_true", help="use the store that is there, and leave it")
    given = parser.parse_args()
    folder = str(given.folder.absolute())
    if not given.keep:
        shutil.rmtree(folder, ignore_errors=True)
    store = f"{folder}/store"
    if not os.path.exists(store):
        given.folder.mkdir(parents=True, exist_ok=True)
        _fill(store, int(given.gib * (1 << 30)) // _RECORD_BYTES)
        _fill(f"{folder}/small", 10_000)
    columns = {"1,000 messages": RARE, _FROM_MEMORY: RARE, "3 % of them": FEW, "all": ALL}
    print(f"| reader | {' | '.join(columns)} |\n| --- |{' --- |' * len(columns)}", flush=True)
    for name in _readers(folder, RARE):
        if given.only is None or given.only in name:
            shown = []
            for title, topic in columns.items():
                seconds = []
                for _ in range(_TRIES if topic == RARE else 1):
                    if command := _readers(folder, topic).get(name):
                        if title != _FROM_MEMORY:
                            _forget(store)
                        seconds.append(_seconds(command))
                        shutil.rmtree(f"{folder}/out", ignore_errors=True)
                shown.append(f"{median(seconds):.2f} s" if seconds else "")
            print(f"| {name} | {' | '.join(shown)} |", flush=True)
    proof = subprocess.run([*_python(_PROOF), store], stdout=subprocess.PIPE, text=True, check=True)
    print(f"\nThe proof: {float(proof.stdout) / 1e6:.1f} M units/s", flush=True)
    if not given.keep:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
