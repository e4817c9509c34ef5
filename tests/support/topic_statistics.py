"""Statistics of some topics against a full run that is filtered to them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from reput.jobs.runner import LocalRunner, Runner
from reput.jobs.statistics.counting import SUMS
from reput.jobs.statistics.job import Dimension, Statistics, statistics


def check_topics(
    store: Path,
    topics: Iterable[str],
    *,
    runner: Runner | None = None,
    by: tuple[Dimension, ...] = ("topic", "queue", "tag"),
    check_crc: bool = False,
    split_bytes: int = 64 << 20,
) -> Statistics:
    """Compare the counts of some topics, all but shares, with a full run; returns the statistics."""
    topics = list(topics)
    asked: Any = {"bucket": "1s", "check_crc": check_crc}
    named: tuple[Dimension, ...] = by if "topic" in by else (*by, "topic")
    full = statistics(store, runner=LocalRunner(1), by=named, largest=1 << 30, **asked)
    found = statistics(
        store, runner=runner or LocalRunner(2), by=by, topics=topics, largest=5, split_bytes=split_bytes, **asked
    )
    assert found.table == _added_up(_of(full.table, topics), found.table)
    assert found.largest == _of(full.largest, topics).slice(0, 5)
    assert found.disk.files == full.disk.files
    assert found.disk.parts == _of(full.disk.parts, topics)
    assert found.disk.topics.drop(["share"]) == _of(full.disk.topics, topics).drop(["share"])
    assert found.messages == sum(_of(full.disk.topics, topics)["messages"].to_pylist())
    assert found.log_bytes == sum(_of(full.disk.topics, topics)["bytes"].to_pylist())
    assert set(found.findings) <= set(full.findings)
    return found


def _of(table: pa.Table, topics: list[str]) -> pa.Table:
    return table.filter(pc.is_in(table["topic"], pa.array(topics, pa.string())))


def _added_up(full: pa.Table, like: pa.Table) -> pa.Table:
    """The groups of a full run without the columns that `like` does not have."""
    names = [name for name in like.column_names if name not in SUMS]
    sums = full.group_by(names, use_threads=False).aggregate([(name, "sum") for name in SUMS])
    sums = sums.sort_by([(name, "ascending") for name in names])
    return pa.table({name: sums[name if name in names else f"{name}_sum"] for name in like.column_names}, like.schema)
