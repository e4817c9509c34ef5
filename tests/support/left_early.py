"""Program that leaves readers of a log before their end: `python -m tests.support.left_early STORE TIMES READER...`.

What the last turn made is still referred to when the interpreter ends.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import duckdb
import pyarrow.compute as pc
import pyarrow.dataset as ds

import reput
from reput.errors import StoreFormatError
from reput.jobs.lake.import_source import open_source
from reput.jobs.query import Source, query_sql


def _first(batches: Any) -> tuple[Any, Any]:
    """The first batch of an iterator, and the iterator, left where it is."""
    batches = iter(batches)
    return batches, next(batches)


def _closed(path: str) -> object:
    batches = reput.log_dataset(path).to_batches()
    first = next(batches)
    batches.close()
    return first


def _raised(path: str) -> object:
    def failing() -> Iterator[object]:
        for batch in query_sql(Source(path=path), "select * from messages").reader:
            yield batch
            raise RuntimeError("the reader's user failed")

    try:
        return list(failing())
    except RuntimeError as error:
        return error


def _sql(path: str, statement: str) -> object:
    rows = query_sql(Source(path=path), statement)
    return rows, _first(rows.reader)


def _duckdb(path: str, statement: str) -> object:
    messages = reput.log_dataset(path)
    reader = duckdb.connect().register("messages", messages).sql(statement).to_arrow_reader(10)
    return reader, _first(reader)


def _csv(path: str) -> object:
    """The first rows of a CSV file, and the error of one that is none at its end."""
    with tempfile.NamedTemporaryFile("wb", suffix=".csv") as file:
        file.write(b"topic,body\n" + b"orders,a\n" * 100_000)
        file.flush()
        source = open_source(file.name)
        ((part,),) = source.batches
        read = _first(part.batches())
        file.write(b"orders,a,b\n")
        file.flush()
        try:
            return read, open_source(file.name)
        except StoreFormatError as error:
            return read, error


def _tail(path: str) -> object:
    with reput.MessageStore.open(path, read_only=True) as store:
        batch = store.tail("b").poll_arrow(10)
        return batch, _first(store.tail("a", timeout=10))


READERS: dict[str, Callable[[str], object]] = {
    "an import of CSV": _csv,
    "read_log": lambda path: _first(reput.read_log(path)),
    "read_log in DuckDB": lambda path: duckdb.from_arrow(reput.read_log(path)).limit(3).fetchall(),
    "read_log in Arrow's scanner": lambda path: ds.Scanner.from_batches(reput.read_log(path)).head(3),
    "read_log in Arrow's scanner, batches": lambda path: _first(
        ds.Scanner.from_batches(reput.read_log(path)).to_batches()
    ),
    "log_dataset's head": lambda path: reput.log_dataset(path).head(3, filter=pc.field("queue_offset") > 0),
    "log_dataset's batches": lambda path: _first(reput.log_dataset(path).to_batches(filter=pc.field("topic") == "b")),
    "log_dataset, closed": _closed,
    "log_dataset in DuckDB, limit": lambda path: _duckdb(path, "select * from messages limit 3"),
    "log_dataset in DuckDB, batches": lambda path: _duckdb(path, "select * from messages where queue_offset % 99 = 7"),
    "polars, limit": lambda path: reput.log_dataset(path).to_polars().head(3).collect(),
    "polars, streaming": lambda path: reput.log_dataset(path).to_polars().head(3).collect(engine="streaming"),
    "polars, batches": lambda path: _first(reput.log_dataset(path).to_polars().collect_batches(chunk_size=10)),
    "SQL, limit": lambda path: query_sql(Source(path=path), "select * from messages limit 3").reader.read_all(),
    "SQL, batches": lambda path: _sql(path, "select * from messages where commit_log_offset % 99 = 0"),
    "SQL, a topic": lambda path: _sql(path, "select total from a where total % 9 = 1"),
    "SQL, error": _raised,
    "tail": _tail,
}


def main(path: str, times: str, *names: str) -> None:
    for name in names or READERS:
        for _ in islice(iter(int, 1), int(times)):
            kept.append(READERS[name](path))
            del kept[:-1]
    print("left", len(names or READERS))


kept: list[object] = []
if __name__ == "__main__":
    main(*sys.argv[1:])
