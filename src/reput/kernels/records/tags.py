"""Comparison of the text of tags whose hashes are equal."""

from __future__ import annotations

import numpy as np

from reput.kernels.machine.jit import kernel
from reput.kernels.machine.memory import equal_bytes, load_i64_native, store_i64_native
from reput.kernels.records.columns import (
    N_PROPERTIES_POSITION,
    N_PROPERTIES_SIZE,
    N_TAGS_POSITION,
    N_TAGS_SIZE,
)
from reput.kernels.records.record_header import READ, read_record
from reput.kernels.records.record_properties import find_tags_and_keys


@kernel("int64(int64, int64, int64, int64, int64, int64, int32[::1], int64[:, ::1], int32[:, ::1])")
def keep_matching_tags(  # type: ignore[no-untyped-def]
    buffer, size, base_offset, pairs, count, texts, text_offsets, wide, narrow
):
    """Keep the pairs (commit log offset, size), of `count`, whose record has one of the texts as its tags.

    RocketMQ's broker compares hashes and leaves the text to the client; different tags can have the same hash.

    Args:
        buffer: Address of `size` bytes that begin at commit log offset `base_offset`.
        pairs: Address of native int64 pairs; the kept ones are moved to the front.
        texts: Address of the wanted texts; int32[texts + 1] `text_offsets`.
        wide, narrow: One-row scratch columns.

    Returns:
        The number of kept pairs.
    """
    kept = 0
    for i in range(count):
        offset = load_i64_native(pairs + 16 * i)
        record = buffer + offset - base_offset
        if record < buffer or read_record(record, record, buffer + size, offset, wide, narrow, 0) != READ:
            continue
        text, text_size = record + narrow[N_PROPERTIES_POSITION, 0], np.int64(narrow[N_PROPERTIES_SIZE, 0])
        find_tags_and_keys(record, text, text_size, buffer + size, narrow, 0)
        tags, tags_size = record + narrow[N_TAGS_POSITION, 0], np.int64(narrow[N_TAGS_SIZE, 0])
        for j in range(text_offsets.size - 1):
            begin = np.int64(text_offsets[j])
            if np.int64(text_offsets[j + 1]) - begin == tags_size and equal_bytes(tags, texts + begin, tags_size):
                store_i64_native(pairs + 16 * kept, offset)
                store_i64_native(pairs + 16 * kept + 8, load_i64_native(pairs + 16 * i + 8))
                kept += 1
                break
    return kept
