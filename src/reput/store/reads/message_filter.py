"""Pulls that choose messages by their properties (`MessageFilter`): which units of a queue a filter wants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from reput.kernels.queues.index_search import scratch_row
from reput.kernels.queues.unit_types import UNIT_TYPE
from reput.kernels.records.property_slices import find_property_slices
from reput.kernels.records.pulled_records import gather_segments
from reput.store.log.mapped_file import MappedFile
from reput.store.reads.pages import Cold, NotInMemory, Pages

if TYPE_CHECKING:
    import pyarrow as pa

#: Messages that a pull looks at first, and at most, in one call of the filter.
_FIRST_ROWS, _MOST_ROWS = 32, 256
#: Bytes of properties after which a pull ends; a pull in an event loop goes on beside it then.
_MOST_BYTES = 256 << 10


class MessageFilter(Protocol):
    """Chooses messages by their properties."""

    @property
    def names(self) -> Sequence[str]:
        """The properties that it looks at."""

    @property
    def most_rows(self) -> int:
        """Messages that one pull may look at."""

    @property
    def is_short(self) -> bool:
        """Whether it takes so little time that an event loop may wait for it."""

    def matches(self, texts: Mapping[str, pa.StringArray], rows: int) -> npt.NDArray[np.bool_]:
        """bool[rows]: which messages are wanted. texts: for each name a text a message; null: it lacks the property."""


class FilterPass:
    """Lets filters look at the records of a log.

    Args:
        pages: Looks whether records are in memory.
        file_size: Bytes of a log file.
    """

    def __init__(self, pages: Pages, file_size: int) -> None:
        self._pages = pages
        self._file_size = file_size

    def mark(
        self,
        message_filter: MessageFilter,
        units: npt.NDArray[np.void],
        most: int,
        files: list[MappedFile],
        end: int,
        cold: Cold,
    ) -> int:
        """Put 1 in place of the tags codes of units whose messages are wanted, and 0 into the others.

        The work goes on until `most` messages are wanted. A unit whose record the log does not have gets 1: the
        choice of messages then says so.

        Args:
            message_filter: Looks at the messages.
            units: UNIT_TYPE[n], changed.
            most: Wanted messages that are enough.
            files: The log's files.
            end: The commit log offset after the last record.
            cold: As of `GetMessage.get`; with Cold.REFUSE what is not short counts as not in memory.

        Returns:
            The number of units that are marked, from the first one on.
        """
        if cold is Cold.REFUSE and not message_filter.is_short:
            raise NotInMemory
        begin = files[0].start_offset if files else end
        done = wanted = looked_at = 0
        rows = min(_FIRST_ROWS, message_filter.most_rows)
        units = units[: message_filter.most_rows]
        while done < units.size and wanted < most and looked_at <= _MOST_BYTES:
            chunk = units[done : done + rows]
            offsets, sizes = chunk["commit_log_offset"].astype(np.int64), chunk["size"].astype(np.int64)
            positions = offsets % self._file_size
            inside = (
                (begin <= offsets) & (sizes > 0) & (offsets + sizes <= end) & (positions + sizes <= self._file_size)
            )
            pairs = np.column_stack((offsets[inside], sizes[inside]))
            matching, size = self.look(message_filter, pairs, files, cold)
            looked_at += size
            if cold is Cold.REFUSE and looked_at > _MOST_BYTES:
                raise NotInMemory
            codes = np.ones(chunk.size, np.int64)
            codes[inside] = matching
            chunk["tags_code"] = codes
            done += chunk.size
            wanted += int(matching.sum())
            rows = min(2 * rows, _MOST_ROWS)
        return done

    def look(
        self, message_filter: MessageFilter, pairs: npt.NDArray[np.int64], files: list[MappedFile], cold: Cold
    ) -> tuple[npt.NDArray[np.bool_], int]:
        """Ask a filter about records.

        Args:
            message_filter: Looks at the messages.
            pairs: int64[n, 2], commit log offset and size of each record, in the log's order.
            files: The log's files.
            cold: As of `GetMessage.get`.

        Returns:
            bool[n], which messages are wanted; bytes of the properties that were looked at.
        """
        rows = len(pairs)
        if not rows:
            return np.empty(0, np.bool_), 0
        wanted = PropertyTexts(message_filter.names, rows)
        mappings = []  # kept until the values are copied
        for file, first, count in self._by_file(pairs, files):
            address = pairs.ctypes.data + 16 * first
            self._pages.look_at_records(cold, file, address, count, are_pairs=True)
            mapping = file.mapping
            mappings.append(mapping)
            wanted.find(mapping.address, mapping.size, file.start_offset, address, first, count)
        return message_filter.matches(wanted.gather(), rows), wanted.size

    def _by_file(self, pairs: npt.NDArray[np.int64], files: list[MappedFile]) -> Iterator[tuple[MappedFile, int, int]]:
        """The log file, the first row and the number of rows of each run of records in one file."""
        numbers = (pairs[:, 0] - files[0].start_offset) // self._file_size
        starts = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
        for first, after in zip(starts, [*starts[1:], len(pairs)], strict=True):
            yield files[int(numbers[first])], first, after - first


class PropertyTexts:
    """Texts of some properties of records, found first, and then gathered.

    Args:
        names: The properties.
        rows: Number of records.
    """

    def __init__(self, names: Sequence[str], rows: int) -> None:
        encoded = [name.encode() for name in names]
        self._names, self._rows = names, rows
        self._joined = np.frombuffer(b"".join(encoded) or b"\0", np.uint8)
        self._name_offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
        self._slices = np.empty((len(encoded), rows, 2), np.int64)

    def find(self, buffer: int, size: int, base_offset: int, pairs: int, first: int, count: int) -> None:
        """Find the values in `count` records from the row `first` on; other arguments as of `find_property_slices`."""
        find_property_slices(
            buffer, size, base_offset, pairs, count, self._joined.ctypes.data, self._name_offsets,
            self._slices.ctypes.data + 16 * first, self._rows, *scratch_row(),
        )  # fmt: skip

    @property
    def size(self) -> int:
        """Bytes of all values that were found."""
        return int(self._slices[:, :, 1].sum())

    def gather(self) -> dict[str, pa.StringArray]:
        """Copy the values: for each name a text a record, null if the record lacks the property."""
        return {name: _gather(self._slices[number]) for number, name in enumerate(self._names)}


def unit_table(address: int, count: int) -> npt.NDArray[np.void]:
    """A copy of units in memory: UNIT_TYPE[count]."""
    units = np.empty(count, UNIT_TYPE)
    one = np.array([address, units.nbytes], np.int64)
    gather_segments(one.ctypes.data, 1, units.ctypes.data)
    return units


def _gather(slices: npt.NDArray[np.int64]) -> pa.StringArray:
    """The texts at int64[rows, 2] addresses and sizes; null for size 0. They may be no UTF-8."""
    import pyarrow as pa  # starts threads, and most stores have no filters

    rows, sizes = len(slices), slices[:, 1]
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    data = np.empty(int(offsets[-1]), np.uint8)
    gather_segments(slices.ctypes.data, rows, data.ctypes.data)
    valid = np.packbits(sizes > 0, bitorder="little")
    return pa.Array.from_buffers(pa.string(), rows, [pa.py_buffer(valid), pa.py_buffer(offsets), pa.py_buffer(data)])
