"""Stores to export, and what plain readers find in an exported folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import parquet

import reput
from reput.jobs.lake import Export, ExportOptions, export
from reput.jobs.runner import LocalRunner

PARTITIONS = pa.schema([("topic", pa.string()), ("date", pa.date32())])
#: Log files of 16 KiB, so that a few hundred messages are many parts.
SMALL: dict[str, Any] = {"mapped_file_size_commit_log": 16 << 10, "max_message_size": 4096}
#: Topics that `put` gives messages in turn.
NAMES = ["orders", "%RETRY%group", "a|b", "a_b-c"]
#: Bodies of three topics that have no schema in common, and one body of each that does not fit the others.
TOPICS = {
    "orders": [b'{"id": %d, "total": %d.5}' % (n, n) for n in range(50)] + [b'{"id": "x"}'],
    "users": [b'{"id": "u-%d", "address": {"city": "Bonn"}}' % n for n in range(50)] + [b'{"id": 7}'],
    "notes": [b"note %d" % n for n in range(5)],
}


def run(store: Path, output: Path, **options: Any) -> Export:
    return export(store, output, runner=LocalRunner(2), options=ExportOptions(**options))


def rows_of(output: Path, kind: str = "messages") -> list[dict[str, Any]]:
    """All rows in log order, as a plain reader of the folder sees them."""
    if not (output / kind).exists():
        return []
    table = ds.dataset(output / kind, partitioning=ds.partitioning(PARTITIONS, flavor="hive")).to_table()
    return table.sort_by([("commit_log_offset", "ascending")]).to_pylist()


def log_rows(store: Path, topics: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Rows of `read_log`, with the day of each row."""
    rows = reput.read_log(store, topics=topics).read_all().to_pylist()
    return [row | {"date": row["store_timestamp"].date()} for row in rows]


def check_files(output: Path) -> list[Path]:
    """Each file is in log order, begins where its name says, and overlaps none of its folder."""
    paths = sorted(output.rglob("*.parquet"))
    ends: dict[Path, int] = {}
    for path in paths:
        offsets = parquet.read_table(path, partitioning=None)["commit_log_offset"].to_pylist()
        assert offsets == sorted(offsets)
        assert int(path.stem.partition("-")[0]) == offsets[0] > ends.get(path.parent, -1)
        ends[path.parent] = offsets[-1]
    return paths


def put(store: Path, first: int, count: int, *, body: bytes = b'{"id": %d, "name": "n"}') -> None:
    table = pa.table(
        {
            "topic": [NAMES[n % len(NAMES)] for n in range(first, first + count)],
            "queue_id": pa.array([n % 3 for n in range(first, first + count)], pa.int32()),
            "keys": [[f"k-{n}"] for n in range(first, first + count)],
            "body": [body % n for n in range(first, first + count)],
        }
    )
    with reput.MessageStore.open(store, **SMALL) as opened:
        opened.put_arrow(table)


def put_topics(store: Path, bodies: dict[str, list[bytes]]) -> None:
    """Messages of several topics, in turns."""
    rows = sorted((n, topic, body) for topic, some in bodies.items() for n, body in enumerate(some))
    table = pa.table({"topic": [topic for _, topic, _ in rows], "body": [body for *_, body in rows]})
    with reput.MessageStore.open(store, **SMALL) as opened:
        opened.put_arrow(table)
