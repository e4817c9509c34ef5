"""Properties of records by name, as slices of memory, without Python objects."""

from __future__ import annotations

import numpy as np

from reput.kernels.machine.jit import kernel
from reput.kernels.machine.memory import equal_bytes, load_i64_native, load_u8, store_i64_native
from reput.kernels.records.columns import N_PROPERTIES_POSITION, N_PROPERTIES_SIZE
from reput.kernels.records.property_names import NAME_END, PAIR_END
from reput.kernels.records.record_header import READ, read_record


@kernel("void(int64, int64, int64, int64, int64, int64, int32[::1], int64, int64, int64[:, ::1], int32[:, ::1])")
def find_property_slices(  # type: ignore[no-untyped-def]
    buffer, size, base_offset, pairs, count, names, name_offsets, slices, rows, wide, narrow
):
    """Find the values of some properties in `count` records, as RocketMQ's `string2messageProperties` does.

    Args:
        buffer: Address of `size` bytes that begin at commit log offset `base_offset`.
        pairs: Address of native int64 pairs, commit log offset and size of each record.
        names: Address of the names; int32[names + 1] `name_offsets`.
        slices: Address of room for int64[names, rows, 2], of which the first `count` rows are written: address and size
            of each value, size 0 if the record lacks the property, or does not prove itself.
        wide, narrow: One-row scratch columns.
    """
    for i in range(count):
        for k in range(name_offsets.size - 1):
            store_i64_native(slices + 16 * (k * rows + i), buffer)
            store_i64_native(slices + 16 * (k * rows + i) + 8, 0)
        offset = load_i64_native(pairs + 16 * i)
        record = buffer + offset - base_offset
        if record < buffer or read_record(record, record, buffer + size, offset, wide, narrow, 0) != READ:
            continue
        pair = record + narrow[N_PROPERTIES_POSITION, 0]
        text_end = pair + narrow[N_PROPERTIES_SIZE, 0]
        while pair < text_end:
            end = pair
            name_end = np.int64(0)
            while end < text_end:
                byte = load_u8(end)
                if byte == PAIR_END:
                    break
                if byte == NAME_END and name_end == 0:
                    name_end = end
                end += 1
            if pair < name_end < end - 1:  # a name and a value
                for k in range(name_offsets.size - 1):
                    begin, name_size = np.int64(name_offsets[k]), name_end - pair
                    if name_offsets[k + 1] - begin == name_size and equal_bytes(pair, names + begin, name_size):
                        store_i64_native(slices + 16 * (k * rows + i), name_end + 1)
                        store_i64_native(slices + 16 * (k * rows + i) + 8, end - name_end - 1)
            pair = end + 1
