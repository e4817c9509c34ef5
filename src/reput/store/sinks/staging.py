"""Files of staged records: written by the tasks of a sink, read by its commit.

All work that does not need the store is done here: rows are checked and encoded as `put_arrow` does it. The commit,
which holds the store's lock, only gives each record its location, at the speed of a copy.

Staged files are not synced. A batch that a power cut takes away was not committed: Spark writes it again.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reput.config.message_store import MessageStoreConfig
from reput.errors import StoreError
from reput.files import FileLayer
from reput.formats.multi_dispatch import INNER_MULTI_DISPATCH
from reput.formats.property_crc import PROPERTY_CRC_SIZE
from reput.formats.record_layout import BLANK_SIZE
from reput.formats.sink_commit import StagedPart
from reput.formats.staged_records import HEAD_SIZE, decode_frame_head, decode_tables, encode_frame_head
from reput.kernels.records.message_table import CheckedTable
from reput.log.store_host import encode_store_host

#: Bytes of a frame: its records stay in the processor's cache from the encoder to the file, and from there to the log.
_FRAME_BYTES = 1 << 20


class Frame(NamedTuple):
    """Staged records that are written and read in one call.

    Attributes:
        data: uint8, the records one after the other.
        positions: int32[rows + 1], where each record starts in `data`, and where the last record ends.
        queues: int32[rows], the queue of each record by its number in `queue_keys`.
        queue_keys: (topic, queue id).
    """

    data: npt.NDArray[np.uint8]
    positions: npt.NDArray[np.int32]
    queues: npt.NDArray[np.int32]
    queue_keys: Sequence[tuple[str, int]]

    def after(self, rows: int) -> Frame:
        """The frame without its first rows."""
        begin = self.positions[rows]
        return Frame(self.data[begin:], self.positions[rows:] - begin, self.queues[rows:], self.queue_keys)


class StagingFile:
    """Writer of one file of staged records; a context manager that closes the file.

    Args:
        files: The file layer.
        path: The file; its folder exists.
        config: The configuration of the store that the records are for.
    """

    def __init__(self, files: FileLayer, path: str, config: MessageStoreConfig) -> None:
        self._path = path
        self._file = files.open(path, writable=True, create=True)
        self._config = config
        self._store_host = encode_store_host(config)
        self._reserved = PROPERTY_CRC_SIZE if config.enabled_append_prop_crc else 0
        self._buffer = np.empty(_FRAME_BYTES, np.uint8)
        self._position = 0
        self._rows = self._size = self._crc = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def check(self, batch: pa.RecordBatch, first_row: int) -> CheckedTable:
        """Check rows as `put_arrow` does; raises its MessageIllegalError, with the number of the row."""
        config = self._config
        return CheckedTable(
            pa.Table.from_batches([batch]),
            first_row,
            max_body_size=config.max_message_size,
            max_record_size=config.mapped_file_size_commit_log - BLANK_SIZE,
            store_host=self._store_host,
            now_ms=int(time.time() * 1000),
            reserved=self._reserved,
            refused_property=INNER_MULTI_DISPATCH if config.enable_lmq and config.enable_multi_dispatch else None,
        )

    def write(self, rows: CheckedTable) -> None:
        """Encode rows, and write them after the rows before."""
        if rows.largest > self._buffer.size:
            self._buffer = np.empty(rows.largest, np.uint8)
        host = np.frombuffer(self._store_host, np.uint8)
        for batch in rows:
            row = 0
            while row < batch.sizes.size:
                if self._reserved:  # the encoder leaves these bytes as they are, and the CRC takes them for zeros
                    self._buffer[:] = 0
                following, positions = batch.encode_into(self._buffer, row, host)
                records = self._buffer[: positions[-1]]
                self.write_frame(Frame(records, positions, batch.queues[row:following], batch.queue_keys))
                row = following

    def write_frame(self, frame: Frame) -> None:
        """Write encoded rows after the rows before."""
        records, positions, queues, queue_keys = frame
        head = encode_frame_head(queue_keys, positions.tobytes(), queues.tobytes(), records.size)
        self._file.write(self._position, head)
        self._file.write(self._position + len(head), records.data)
        self._position += len(head) + records.size
        self._rows += queues.size
        self._size += records.size
        self._crc = zlib.crc32(records.data, self._crc)

    @property
    def part(self) -> StagedPart | None:
        """The part that the file holds so far; None if it holds no record."""
        return StagedPart(self._path, self._rows, self._size, self._crc) if self._rows else None


def read_frames(files: FileLayer, part: StagedPart) -> Iterator[Frame]:
    """Read the frames of a part; each frame is valid until the next frame but one is asked for.

    Raises:
        StoreError: The file is gone, or is not what the task wrote; the latter may be known only after the last frame.
    """
    rows = size = crc = position = 0
    buffer, other = np.empty(_FRAME_BYTES, np.uint8), np.empty(_FRAME_BYTES, np.uint8)
    with files.open(part.path) as file:
        while rows < part.rows:
            head = decode_frame_head(file.read(position, HEAD_SIZE), part.path)
            position += HEAD_SIZE
            keys, positions, queues = decode_tables(head, file.read(position, head.tables_size), part.path)
            position += head.tables_size
            if buffer.size < head.records_size:
                buffer = np.empty(head.records_size, np.uint8)
            records = buffer[: head.records_size]
            if file.read_into(position, records.data) < records.size:
                break
            position += records.size
            rows, size, crc = rows + head.rows, size + records.size, zlib.crc32(records.data, crc)
            yield Frame(records, _int32(positions), _int32(queues), keys)
            buffer, other = other, buffer
    if (rows, size, crc) != (part.rows, part.size, part.crc):
        raise StoreError(
            f"{part.path}: expected {part.rows} staged records of {part.size} bytes and CRC {part.crc:#x}, found "
            f"{rows} of {size} bytes and CRC {crc:#x}; the file was changed, or its file system does not show the same "
            "to every machine: nothing of the batch was committed, so write it again"
        )


def _int32(data: bytes) -> npt.NDArray[np.int32]:
    return np.frombuffer(bytearray(data), np.int32)  # kernels take arrays that may be written to
