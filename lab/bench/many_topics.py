"""Cost of many topics in SQL and exports: `python -m lab.bench.many_topics [--topics 1000 10000] [--folder DIR]`.

Prints a line for each count of topics; each figure is of a process of its own. `select` is the processor's time before
a statement over one topic can run. The exports are of a message in each topic, so of as many files: the time of the
processor for a file, and the most memory, in one commit and in many; what a run costs that finds ten messages of ten
topics, and what one that finds nothing new. `--forms` names what is exported: the format, and how bodies are decoded;
with `json` each topic is a table of its own.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

#: Few bytes for each queue; a log file is a commit where the commits are many.
_SMALL: dict[str, Any] = {
    "mapped_file_size_commit_log": 1 << 20,
    "max_message_size": 4096,
    "mapped_file_size_consume_queue": 400,
    "message_index_enable": False,
}
#: Topics that have news before the run after the first one.
_NEWS = 10
FORMS = ("parquet-raw", "parquet-json", "delta-raw", "iceberg-raw", "delta-json", "iceberg-json")


def _put(folder: str, topics: str) -> None:
    """A message for each of the first topics, in a store that may be there."""
    import pyarrow as pa

    import reput

    count = int(topics)
    body = b'{"id": 7, "text": "%s"}' % (b"x" * 78)
    table = pa.table({"topic": [f"topic-{n:06d}" for n in range(count)], "body": [body] * count})
    with reput.MessageStore.open(f"{folder}/store", flush_disk_type="ASYNC_FLUSH", **_SMALL) as store:
        store.put_arrow(table)


def _select(folder: str) -> None:
    from reput.jobs.query.sql_job import Source

    source = Source(path=f"{folder}/store")
    began = time.process_time()
    found = source.tables("select count(*) n, max(tags) from 'topic-000123' where keys is not null")
    assert found == ["topic-000123"]
    print(time.process_time() - began)


def _export(folder: str, form: str, commit_bytes: str, name: str) -> None:
    """Export to a folder; prints seconds of the processors, files, and MB."""
    from reput.jobs.lake import ExportOptions, export
    from reput.jobs.runner import LocalRunner

    kind, decode = form.split("-")
    options = ExportOptions(format=kind, decode=decode, commit_bytes=int(commit_bytes))  # type: ignore[arg-type]
    began = time.process_time()
    result = export(f"{folder}/store", f"{folder}/{name}", runner=LocalRunner(1), options=options)
    files = sum(topic.files for topic in result.topics)
    print(time.process_time() - began, files, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, result.commits)


def _child(*arguments: str) -> list[float]:
    command = [sys.executable, "-m", "lab.bench.many_topics", "--child", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def _measure(folder: Path, topics: int, forms: Sequence[str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _child("put", str(folder), str(topics))
    [select] = _child("select", str(folder))
    print(f"{topics:>7,} topics: select {select:.3f} s", flush=True)
    first = {}
    for form in forms:
        one = _child("export", str(folder), form, str(1 << 40), f"{form}-one")
        shutil.rmtree(folder / f"{form}-one")
        first[form] = one, _child("export", str(folder), form, "1", f"{form}-many")
    _child("put", str(folder), str(_NEWS))
    for form, (one, many) in first.items():
        news = _child("export", str(folder), form, "1", f"{form}-many")
        again = _child("export", str(folder), form, "1", f"{form}-many")
        shutil.rmtree(folder / f"{form}-many")
        print(
            f"{topics:>7,} topics, {form}: {1000 * one[0] / one[1]:.2f} ms a file, {one[2]:.0f} MB in 1 commit, "
            f"{1000 * many[0] / many[1]:.2f} ms a file, {many[2]:.0f} MB in {many[3]:.0f} commits; news in {_NEWS} "
            f"topics {news[0]:.2f} s, {news[2]:.0f} MB; nothing new {again[0]:.2f} s, {again[2]:.0f} MB",
            flush=True,
        )
    shutil.rmtree(folder)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--forms", choices=FORMS, nargs="+", default=["parquet-raw", "iceberg-raw"])
    parser.add_argument("--folder", type=Path, default=Path("build/bench/topics"))
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        what, *rest = arguments.child
        children: dict[str, Callable[..., None]] = {"put": _put, "select": _select, "export": _export}
        children[what](*rest)
        return
    for topics in arguments.topics:
        _measure(arguments.folder, topics, arguments.forms)


if __name__ == "__main__":
    main()
