"""The parts of a source are read piece by piece, whatever their row groups are, as a dataset gives them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyarrow import parquet

from reput.errors import ConfigError
from reput.jobs.lake.import_source import open_source

_READ = """
import sys
from reput.jobs.lake.import_source import open_source

def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) << 10

((part,),) = open_source(sys.argv[1]).batches
before = peak()
rows = sum(batch.num_rows for batch in part.batches())
print(rows, peak() - before)
"""


@pytest.mark.slow
def test_a_row_group_larger_than_the_memory_may_be_is_read_piece_by_piece(tmp_path: Path) -> None:
    bodies = pa.array([os.urandom(2000) for _ in range(1000)])
    table = pa.concat_tables([pa.table({"topic": ["orders"] * 1000, "body": bodies})] * 200)
    parquet.write_table(
        table, tmp_path / "one.parquet", row_group_size=1 << 30, compression="none", use_dictionary=False
    )
    assert parquet.ParquetFile(tmp_path / "one.parquet").num_row_groups == 1
    done = subprocess.run(
        [sys.executable, "-c", _READ, str(tmp_path / "one.parquet")], capture_output=True, text=True, check=True
    )
    rows, growth = map(int, done.stdout.split())
    assert rows == 200_000
    assert growth < table.nbytes / 3


def test_columns_are_those_of_the_dataset_whatever_each_file_has(tmp_path: Path) -> None:
    """A column may be missing in a file, of a narrower type, a folder's name, or a dictionary."""
    first = pa.table({"body": [b"a", b"b"], "queue_id": pa.array([1, None], pa.int64()), "tags": ["x", None]})
    second = pa.table({"queue_id": pa.array([3, 4], pa.int32()), "body": [b"c", None]})
    third = pa.table({"body": [b"d"], "tags": pa.array(["y"]).dictionary_encode()})
    for name, table in (("topic=a/1", first), ("topic=a/2", second), ("topic=b%20c/3", third)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        parquet.write_table(table, tmp_path / f"{name}.parquet")
    source = open_source(tmp_path)
    rows = pa.Table.from_batches([row for batch in source.batches for part in batch for row in part.batches()])
    partitioning = ds.partitioning(pa.schema([("topic", pa.string())]), flavor="hive")
    expected = ds.dataset(tmp_path, partitioning=partitioning, schema=source.schema).to_table()
    assert rows.schema == source.schema
    assert rows.sort_by("body").to_pylist() == expected.sort_by("body").to_pylist()
    assert rows["topic"].to_pylist() == ["a"] * 4 + ["b c"]


def test_a_file_without_rows_has_its_columns(tmp_path: Path) -> None:
    """Spark writes one for a DataFrame without rows."""
    parquet.write_table(
        pa.table({"body": pa.array([], pa.string()), "tags": pa.array([], pa.string())}), tmp_path / "1"
    )
    source = open_source(tmp_path / "1", topic="orders")
    assert (source.schema.names, source.batches) == (["body", "tags", "topic"], ())
    with pytest.raises(ConfigError, match=r"it has body, tags$"):
        open_source(tmp_path / "1")
