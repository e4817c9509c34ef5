"""A process that writes to a store as fast as it can and says what was acknowledged, until somebody kills it.

    python -m tests.support.writer STORE WAY SEED OPTIONS

OPTIONS is JSON. Each line on standard output is one acknowledged message: topic, queue id, queue offset, commit log
offset, key.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from collections import defaultdict
from pathlib import Path

import pyarrow as pa

import reput
from tests.support.invariants import SMALL, Acknowledged, Record

OPTIONS = SMALL | {
    "mapped_file_size_commit_log": 16_384,
    "flush_interval_commit_log": 5,
    "flush_interval_consume_queue": 10,
    "flush_consume_queue_thorough_interval": 30,
    "os_page_cache_busy_time_out_mills": 60_000,  # a machine that stands still is no disk that does not keep up
}
THREADS = 4
ROOT = Path(__file__).parents[2]


def body_of(key: str) -> bytes:
    """The body is made from the key: whoever knows the key can check it."""
    return random.Random(key).randbytes(random.Random(key).randrange(600))


def put_single(store: reput.MessageStore, name: str, seed: int) -> None:
    choices = random.Random(f"{seed} {name}")
    number = 0
    while True:
        key = f"{seed}-{name}-{number}"
        topic, queue_id = f"topic-{choices.randrange(2)}", choices.randrange(3)
        result = store.put_message(reput.Message(topic, body_of(key), keys=[key], tags="a"), queue_id)
        if result.status is reput.PutMessageStatus.PUT_OK:
            os.write(1, f"{topic} {queue_id} {result.queue_offset} {result.commit_log_offset} {key}\n".encode())
        number += 1


def put_tables(store: reput.MessageStore, seed: int) -> None:
    """Rows in table order, so the acknowledgement of a table is that of each of its rows."""
    choices = random.Random(seed)
    for number in range(1_000_000):
        rows = choices.randrange(1, 60)
        keys = [f"{seed}-{number}-{row}" for row in range(rows)]
        queues = [choices.randrange(3) for _ in range(rows)]
        before = {queue: store.max_offset("table", queue) for queue in range(3)}
        table = pa.table(
            {
                "topic": ["table"] * rows,
                "queue_id": pa.array(queues, pa.int32()),
                "keys": [[key] for key in keys],
                "body": [body_of(key) for key in keys],
            }
        )
        store.put_arrow(table)
        for key, queue in zip(keys, queues, strict=True):
            os.write(1, f"table {queue} {before[queue]} -1 {key}\n".encode())
            before[queue] += 1
        store.wait_dispatched()


def write_and_kill(
    store: Path, way: str, seed: int, options: dict[str, object]
) -> list[tuple[str, int, int, int, str]]:
    """Let a process write, kill it after a random number of acknowledgements, and return these."""
    command = [sys.executable, "-m", "tests.support.writer", str(store), way, str(seed), json.dumps(options)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        lines = []
        for _ in range(random.Random(seed).choice([1, 60, 300, 700])):
            line = writer.stdout.readline()
            assert line, "the writer ended by itself"
            lines.append(line)
        writer.kill()
        lines += writer.stdout.readlines()
    fields = [line.decode().split() for line in lines if line.endswith(b"\n")]
    return [(topic, int(queue), int(offset), int(place), key) for topic, queue, offset, place, key in fields]


def main() -> None:
    path, way, seed, options = sys.argv[1:]
    store = reput.MessageStore.open(path, **json.loads(options))
    if way == "table":
        put_tables(store, int(seed))
    threads = [threading.Thread(target=put_single, args=(store, f"thread{name}", int(seed))) for name in range(THREADS)]
    for thread in threads:
        thread.start()


if __name__ == "__main__":
    main()


def with_places(lines: list[tuple[str, int, int, int, str]], records: list[Record]) -> list[Acknowledged]:
    """The acknowledgements; a row of a table does not know its commit log offset, and takes it from the log."""
    place_of = {(*record.queue, record.row["queue_offset"]): record.offset for record in records}
    return [
        Acknowledged(topic, queue, offset, place_of[topic, queue, offset] if place < 0 else place, key, body_of(key))
        for topic, queue, offset, place, key in lines
    ]


def check_prefixes(records: list[Record]) -> None:
    """Of each table that was cut off, the first rows are there, in their order."""
    rows: dict[str, list[int]] = defaultdict(list)
    for record in records:
        table, _, row = record.row["keys"].decode().rpartition("-")
        rows[table].append(int(row))
    for table, found in rows.items():
        assert found == list(range(len(found))), table
