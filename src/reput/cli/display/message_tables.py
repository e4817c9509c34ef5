"""Messages as Parquet, as `reput produce` reads and `reput consume` writes it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from reput.cli.display.message_rows import NOT_COPIED
from reput.errors import ConfigError
from reput.formats.properties import REAL_TOPIC
from reput.kernels.records.property_maps import without_properties
from reput.remoting.timer_properties import DONE, TRANSACTION

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
                columns["properties"] = _copied(columns["properties"])
            yield pa.table({**columns, "topic": pa.repeat(pa.scalar(topic), batch.num_rows)})
    except pa.ArrowInvalid as error:
        raise ConfigError(f"standard input is no Parquet: {error}") from None


def _copied(properties: pa.Array) -> pa.Array:
    """As `of_copy` for each row, and without a broker's properties."""
    column = without_properties(properties, ())  # of one type
    is_done = pc.is_valid(pc.map_lookup(column, REAL_TOPIC, "first")).to_numpy(zero_copy_only=False)
    both = pa.concat_arrays([without_properties(column, NOT_COPIED | names) for names in (TRANSACTION, DONE)])
    return both.take(pa.array(np.arange(len(column)) + len(column) * is_done))


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
