"""Cost of many topics in SQL and exports: `python -m lab.bench.many_topics [--topics 1000 10000] [--folder DIR]`.

Prints a line for each count of topics and form; each figure is of a process of its own. `select` is the processor's
time before a statement over one topic can run. The exports are of a message in each topic, so of as many files: the
time of the processor for a file, and the most memory, in one commit or in many; what a run costs that finds nothing
new, right after that one and later, and what one costs that finds a message of one topic. `--forms` names what is
exported: the format, and how bodies are decoded; with `json` each topic is a table of its own. `--publish` keeps the
figures in lab/many_topics.json, beside those of other forms and counts, and writes the table of lab/many-topics.md.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lab.campaign.pages import markdown_table, source_commit, write_between_marks

#: Few bytes for each queue; a log file is a commit where the commits are many.
_SMALL: dict[str, Any] = {
    "mapped_file_size_commit_log": 1 << 20,
    "max_message_size": 4096,
    "mapped_file_size_consume_queue": 400,
    "message_index_enable": False,
}
FORMS = ("parquet-raw", "parquet-json", "delta-raw", "iceberg-raw", "delta-json", "iceberg-json")
#: Bytes of the log in a commit, at least.
_COMMIT_BYTES = {"one": 1 << 40, "many": 1}
_LAB = Path(__file__).parents[1]
_KEPT = _LAB / "many_topics.json"


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


def _export(folder: str, form: str, commits: str) -> None:
    """Export to a folder; prints seconds of the processors and of the clock, files, MB, and commits."""
    from reput.jobs.lake import ExportOptions, export
    from reput.jobs.runner import LocalRunner

    kind, decode = form.split("-")
    options = ExportOptions(format=kind, decode=decode, commit_bytes=_COMMIT_BYTES[commits])  # type: ignore[arg-type]
    began, clock = time.process_time(), time.perf_counter()
    result = export(f"{folder}/store", f"{folder}/{form}-{commits}", runner=LocalRunner(1), options=options)
    spent = time.process_time() - began, time.perf_counter() - clock
    files = sum(topic.files for topic in result.topics)
    print(*spent, files, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, result.commits)


def _child(*arguments: str) -> list[float]:
    command = [sys.executable, "-m", "lab.bench.many_topics", "--child", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def _measure(folder: Path, topics: int, forms: Sequence[str], commits: str) -> list[dict[str, Any]]:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rows = []
    for form in forms:
        _child("put", str(folder), str(topics))
        [select] = _child("select", str(folder))

        def run(form: str = form) -> dict[str, float]:
            names = ("processor_s", "clock_s", "files", "mb", "commits")
            return dict(zip(names, _child("export", str(folder), form, commits), strict=True))

        runs = {"first": run(), "nothing_new": run()}
        _child("put", str(folder), "1")
        runs |= {"news_of_one": run(), "nothing_new_later": run()}
        assert [one["files"] for one in runs.values()] == [topics, 0, 1, 0], runs
        shutil.rmtree(folder)
        row = {"form": form, "topics": topics, "select_s": select, "date": str(datetime.now(UTC).date()), **runs}
        rows.append(row | {"commit": source_commit()[:12]})
        print(", ".join(_cells(row)), flush=True)
    return rows


_HEAD = (
    "format, bodies", "topics", "commits", "first run, a file", "its most memory", "nothing new, right after it",
    "a message of one topic", "nothing new, later", "select", "date",
)  # fmt: skip


def _cells(row: dict[str, Any]) -> list[str]:
    first = row["first"]
    again, news, later = (row[name] for name in ("nothing_new", "news_of_one", "nothing_new_later"))
    runs = (f"{one['processor_s']:.2f} s, {one['mb']:.0f} MB" for one in (again, news, later))
    a_file = f"{1000 * first['processor_s'] / first['files']:.2f} ms ({1000 * first['clock_s'] / first['files']:.2f})"
    return [
        row["form"].replace("-", ", "), f"{row['topics']:,}", f"{first['commits']:.0f}", a_file,
        f"{first['mb']:.0f} MB", *runs, f"{row['select_s']:.3f} s", row["date"],
    ]  # fmt: skip


def _publish(rows: Sequence[dict[str, Any]]) -> None:
    """Keep rows in the place of older ones of their kind, and write the table."""

    def kind(row: dict[str, Any]) -> tuple[int, int, bool]:
        return FORMS.index(row["form"]), row["topics"], row["first"]["commits"] > 1

    kept = json.loads(_KEPT.read_text()) if _KEPT.exists() else []
    by_kind = {kind(row): row for row in (*kept, *rows)}
    in_order = [row for _, row in sorted(by_kind.items())]
    _KEPT.write_text(json.dumps(in_order, indent=1) + "\n")
    write_between_marks(_LAB / "many-topics.md", markdown_table(_HEAD, [_cells(row) for row in in_order]))


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--forms", choices=FORMS, nargs="+", default=["parquet-raw", "iceberg-raw"])
    parser.add_argument("--commits", choices=_COMMIT_BYTES, default="one")
    parser.add_argument("--folder", type=Path, default=Path("build/bench/topics"))
    parser.add_argument("--publish", action="store_true")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        what, *rest = arguments.child
        children: dict[str, Callable[..., None]] = {"put": _put, "select": _select, "export": _export}
        children[what](*rest)
        return
    for topics in arguments.topics:
        rows = _measure(arguments.folder, topics, arguments.forms, arguments.commits)
        if arguments.publish:
            _publish(rows)


if __name__ == "__main__":
    main()
