"""Staged files: small ones cost little, and all files of a task are synced at once, before its commit is decided."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from reput.files import FileLayer
from reput.jobs.lake.staging import StagedFileWriter, Staging
from tests.support.lake import put_topics, rows_of, run


@pytest.mark.parametrize(("rows", "compression"), [(3, "UNCOMPRESSED"), (1000, "ZSTD")])
def test_only_files_of_few_bytes_are_not_compressed(rows: int, compression: str, tmp_path: Path) -> None:
    table = pa.table({"commit_log_offset": range(rows), "body": [b"text %d" % n for n in range(rows)]})
    schema = pa.schema([("commit_log_offset", pa.int64()), ("body", pa.binary())])
    with StagedFileWriter(schema, Staging(str(tmp_path), FileLayer())) as writer:
        writer.write(table.cast(schema))
        name, size = writer.finish()
    file = parquet.ParquetFile(tmp_path / name)
    assert file.read().to_pylist() == table.to_pylist()
    assert file.metadata.row_group(0).column(0).compression == compression
    assert size == (tmp_path / name).stat().st_size


def test_all_files_of_a_task_are_synced_in_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, output = tmp_path / "store", tmp_path / "out"
    put_topics(store, {f"topic-{number}": [b"x"] for number in range(20)})
    synced = list[list[str]]()
    sync = FileLayer.sync_files

    def told(layer: FileLayer, paths: Sequence[str]) -> None:
        synced.append([path for path in paths if "/staging-" in path])
        assert not list((output / "_reput/commits").iterdir())
        sync(layer, paths)

    monkeypatch.setattr(FileLayer, "sync_files", told)
    run(store, output, split_bytes=1 << 20)
    assert [len(set(paths)) for paths in synced] == [20]
    assert len(rows_of(output)) == 20
