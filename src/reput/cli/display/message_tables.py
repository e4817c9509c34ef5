"""Messages as Parquet, as `reput produce` reads and `reput consume` writes it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import IO

import pyarrow as pa
from pyarrow import parquet

from reput.cli.display.message_rows import NOT_COPIED
from reput.errors import ConfigError
from reput.kernels.records.property_maps import without_properties

#: Rows of one table that is read: as many as a producer encodes at once.
_ROWS = 65_536
#: Columns of the message that a row was, not of its copy.
_ORIGINAL = "topic", "queue_id", "unique_key"


def read_tables(file: IO[bytes], topic: str) -> Iterator[pa.Table]:
    """The rows of a Parquet file, all for one topic, whatever the file says.

    A queue, a unique key and a broker's properties were the original's, and are left out: a copy gets its own.

    Raises ConfigError for what is no Parquet.
    """
    source = file if file.seekable() else io.BytesIO(file.read())
    try:
        opened = parquet.ParquetFile(pa.PythonFile(source, mode="r"))
        for batch in opened.iter_batches(batch_size=_ROWS):
            columns = {name: batch[name] for name in batch.schema.names if name not in _ORIGINAL}
            if "properties" in columns and pa.types.is_map(columns["properties"].type):
                columns["properties"] = without_properties(columns["properties"], NOT_COPIED)
            yield pa.table({**columns, "topic": pa.repeat(pa.scalar(topic), batch.num_rows)})
    except pa.ArrowInvalid as error:
        raise ConfigError(f"standard input is no Parquet: {error}") from None


class TableWriter:
    """Writes tables of one schema to a file, as Parquet; it is whole once it is closed."""

    def __init__(self, file: IO[bytes]) -> None:
        if file.isatty():
            raise ConfigError("Parquet is nothing for a terminal: send it to a file, `... > messages.parquet`")
        self._file = file
        self._writer: parquet.ParquetWriter | None = None

    def write(self, table: pa.Table) -> None:
        """Write rows."""
        if self._writer is None:
            self._writer = parquet.ParquetWriter(pa.PythonFile(self._file, mode="w"), table.schema, compression="zstd")
        self._writer.write_table(table)

    def close(self) -> None:
        """End the file; without a row it stays empty."""
        if self._writer is not None:
            self._writer.close()
            self._file.flush()
