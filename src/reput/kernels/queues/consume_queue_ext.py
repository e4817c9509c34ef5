"""Consume queue extensions: units and bit maps -> ext units and their positions in files, and back for a filter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reput.errors import ConfigError
from reput.formats.consume_queue import TAGS_CODE as UNIT_TAGS_CODE
from reput.formats.consume_queue import UNIT_SIZE
from reput.formats.consume_queue_ext import (
    BIT_MAP_SIZE,
    END_BLANK_SIZE,
    END_MARK,
    MAX_ADDRESS,
    MAX_UNIT_SIZE,
    MIN_UNIT_SIZE,
    STORE_TIMESTAMP,
    TAGS_CODE,
    encode_address,
)
from reput.kernels.machine.jit import kernel
from reput.kernels.machine.mapped_pages import is_readable
from reput.kernels.machine.memory import (
    copy,
    load_i16,
    load_i32_native,
    load_i64,
    load_i64_native,
    store_i16,
    store_i64,
)
from reput.kernels.queues.consume_queue import UnitRuns
from reput.kernels.records.columns import W_STORE_TIMESTAMP, RecordColumns

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    #: Bit maps for the records of a scan, one for each row, null for none; or None if no record has one.
    BitMaps = Callable[[RecordColumns], pa.BinaryArray | None]

_UNIT, _HEAD, _BLANK, _MARK_SIZE = UNIT_SIZE, MIN_UNIT_SIZE, END_BLANK_SIZE, len(END_MARK)
_MAX_ADDRESS, _FIRST_ADDRESS = MAX_ADDRESS, encode_address(0)


class ExtRuns(NamedTuple):
    """The ext units of some `UnitRuns`, without their offsets in the extension.

    Attributes:
        data: uint8, the concatenated units; queue k's begin at `starts[k]` and end at `starts[k + 1]`.
        starts: int64[queues + 1].
        sizes: int16[units], bytes of each unit's ext unit, in the order of the units; 0 without an ext unit.
    """

    data: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int16]

    def sizes_of(self, runs: UnitRuns, queue: int) -> npt.NDArray[np.int16]:
        """int16[units], the sizes of one queue's ext units."""
        first = int(runs.starts[queue]) // UNIT_SIZE
        return self.sizes[first : first + int(runs.counts[queue])]


@kernel(
    "int64(int64, int64[::1], int64[::1], int32[::1], int32[::1], int64[:, :], int64, int64, int64, int64, "
    "int64[::1], int16[::1])"
)
def _encode(  # type: ignore[no-untyped-def]
    units, starts, counts, rows, sources, wide, bit_map_offsets, bit_maps, max_size, out, ext_starts, sizes
):
    end = out
    for queue in range(counts.size):
        ext_starts[queue] = end - out
        first = starts[queue] // _UNIT
        for i in range(first, first + counts[queue]):
            row = np.int64(rows[i])
            source = np.int64(sources[row]) if sources.size else row
            sizes[i] = 0
            if source < 0:  # a further queue of the record: its units have plain tags codes
                continue
            bit_map, bit_map_size = bit_maps, np.int64(0)
            if bit_map_offsets:
                begin = np.int64(load_i32_native(bit_map_offsets + 4 * source))
                bit_map += begin
                bit_map_size = np.int64(load_i32_native(bit_map_offsets + 4 * source + 4)) - begin
            size = _HEAD + bit_map_size
            if size > max_size:
                continue
            sizes[i] = size
            store_i16(end, size)
            store_i64(end + TAGS_CODE, load_i64(units + _UNIT * i + UNIT_TAGS_CODE))
            store_i64(end + STORE_TIMESTAMP, wide[W_STORE_TIMESTAMP, row])
            store_i16(end + BIT_MAP_SIZE, bit_map_size)
            copy(end + _HEAD, bit_map, bit_map_size)
            end += size
    ext_starts[counts.size] = end - out
    return end - out


def bit_maps_of(bit_maps: BitMaps | None, columns: RecordColumns) -> pa.BinaryArray | None:
    """The hook's bit maps for a scan's records, checked; nulls become empty bit maps, which count as none.

    Raises:
        ConfigError: The hook's value is no BinaryArray with one value for each record.
    """
    maps: Any = None if bit_maps is None else bit_maps(columns)
    if maps is None:
        return None
    import pyarrow as pa

    if not isinstance(maps, pa.BinaryArray) or len(maps) != columns.rows:
        raise ConfigError(
            f"bit_maps gave {type(maps).__name__}, expected a pyarrow BinaryArray of {columns.rows} values, one for "
            "each row of the columns, or None"
        )
    return maps.fill_null(b"") if maps.null_count else maps


def encode_ext_units(
    runs: UnitRuns,
    columns: RecordColumns,
    sources: npt.NDArray[np.int32] | None,
    bit_maps: pa.BinaryArray | None,
    file_size: int,
) -> ExtRuns:
    """Ext units of grouped units (`ConsumeQueue.putMessagePositionInfoWrapper`).

    A unit whose ext unit does not fit into an ext file, or has more than 32 767 bytes, keeps its tags code.

    Args:
        runs: Grouped with rows.
        columns: The columns of the grouping.
        sources: int32[rows], the row of `bit_maps` for each row of `columns`, -1 for a row without ext unit; None if
            the rows are the same.
        bit_maps: See `bit_maps_of`.
        file_size: Size of an ext file in bytes.
    """
    assert runs.rows is not None
    units = int(runs.counts.sum())
    offsets = values = bit_maps_size = 0
    if bit_maps is not None:
        _, offset_buffer, value_buffer = bit_maps.buffers()
        offsets = offset_buffer.address + 4 * bit_maps.offset
        values = value_buffer.address if value_buffer is not None else 0
        bit_maps_size = bit_maps.total_values_length
    data = np.empty(units * MIN_UNIT_SIZE + bit_maps_size, np.uint8)
    starts, sizes = np.empty(runs.counts.size + 1, np.int64), np.empty(units, np.int16)
    used = _encode(
        runs.units.ctypes.data, runs.starts, runs.counts, runs.rows,
        np.empty(0, np.int32) if sources is None else sources, columns.wide, offsets, values,
        min(MAX_UNIT_SIZE, file_size - END_BLANK_SIZE), data.ctypes.data, starts, sizes,
    )  # fmt: skip
    return ExtRuns(data[:used], starts, sizes)


@kernel("int64(int16[::1], int64, int64, int64, int64[:, ::1], int64[::1])")
def _place(sizes, end, file_size, units, writes, result):  # type: ignore[no-untyped-def]
    count, begin, position = 0, np.int64(0), np.int64(0)
    for i in range(sizes.size):
        size = np.int64(sizes[i])
        if size == 0:
            continue
        room = file_size - end % file_size
        if size > room - _BLANK:
            if position > begin:
                writes[count, 0], writes[count, 1], writes[count, 2] = begin, position - begin, end - (position - begin)
                count += 1
            writes[count, 0], writes[count, 1], writes[count, 2] = -1, _MARK_SIZE, end
            count += 1
            end += room
            begin = position
        store_i64(units + _UNIT * i + UNIT_TAGS_CODE, end + _FIRST_ADDRESS)
        position += size
        end += size
    if position > begin:
        writes[count, 0], writes[count, 1], writes[count, 2] = begin, position - begin, end - (position - begin)
        count += 1
    result[0] = end
    return count


class ExtWrite(NamedTuple):
    """Bytes for the extension of one queue: `size` bytes to an offset of the extension, in one file.

    `begin` is their position among the ext units; -1 stands for `END_MARK`.
    """

    begin: int
    size: int
    offset: int


def place_ext_units(
    sizes: npt.NDArray[np.int16], end_offset: int, file_size: int, units: int
) -> tuple[list[ExtWrite], int]:
    """Give the ext units of one queue their offsets after its last one, and the units their addresses.

    A unit leaves `END_BLANK_SIZE` bytes of its file free; otherwise it goes to the next file (`ConsumeQueueExt.put`).

    Args:
        sizes: int16[units], bytes of the ext unit of each unit, at most the file size less `END_BLANK_SIZE`.
        end_offset: End of the last ext unit in the extension.
        file_size: Size of an ext file in bytes.
        units: Address of the consume queue units, whose tags codes become addresses.

    Returns:
        The writes, and the new end of the extension.
    """
    writes, result = np.empty((2 * sizes.size + 1, 3), np.int64), np.empty(1, np.int64)
    count = _place(sizes, end_offset, file_size, units, writes, result)
    return [ExtWrite(*write) for write in writes[:count].tolist()], int(result[0])


@kernel("int64(int64, int64)")
def last_ext_address(units, count):  # type: ignore[no-untyped-def]
    """The last address among the tags codes of `count` units; 0, which is no address, if there is none."""
    for i in range(count - 1, -1, -1):
        tags_code = load_i64(units + _UNIT * i + UNIT_TAGS_CODE)
        if tags_code <= _MAX_ADDRESS:
            return tags_code
    return 0


@kernel("int64(int64, int64, int64, int64, int64)")
def resolve_tags_codes(units, begin, count, map_fields, file_offset):  # type: ignore[no-untyped-def]
    """Replace addresses by the tags codes of their ext units, from unit `begin` up to one in another file.

    Args:
        units: Address of `count` units, which are changed.
        map_fields: Address of the `MapFields` of an ext file, which begins at `file_offset` of the extension; or 0.

    Returns:
        The first unit whose ext unit is not in this file, is not valid, or cannot be read; `count` if there is none.
    """
    file = load_i64_native(map_fields) if map_fields else np.int64(0)
    file_size = load_i64_native(map_fields + 8) if map_fields else np.int64(0)
    for i in range(begin, count):
        unit = units + _UNIT * i
        address = load_i64(unit + UNIT_TAGS_CODE)
        if address > _MAX_ADDRESS:
            continue
        position = address - _FIRST_ADDRESS - file_offset
        if position < 0 or position > file_size - _HEAD:
            return i
        if not is_readable(map_fields, position, position + _HEAD):
            return i
        ext = file + position
        size = np.int64(load_i16(ext))
        if size < _HEAD or size > file_size - position or load_i16(ext + BIT_MAP_SIZE) != size - _HEAD:
            return i
        store_i64(unit + UNIT_TAGS_CODE, load_i64(ext + TAGS_CODE))
    return count
