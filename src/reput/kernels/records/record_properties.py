"""Tags, keys and unique key of a properties text, as slices, without Python objects.

The text is `name 0x01 value 0x02 ...` (docs/formats/commit-log.md). As in RocketMQ's `string2messageProperties`: the
text's end ends a pair, too; a pair without name or value does not count; the first 0x01 separates name and value; of
equal names the last counts.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from reput.formats.index_file import TAG_TYPE, TOPIC_END
from reput.formats.java import INT32_MAX
from reput.kernels.machine.java_hash import index_hash
from reput.kernels.machine.jit import inlined
from reput.kernels.machine.memory import find_byte_mask, load_i32, load_u8, trailing_zeros
from reput.kernels.records.columns import (
    N_KEYS_POSITION,
    N_KEYS_SIZE,
    N_TAGS_POSITION,
    N_TAGS_SIZE,
    N_UNIQUE_KEY_POSITION,
    N_UNIQUE_KEY_SIZE,
)
from reput.kernels.records.property_names import (
    DELAY_REST,
    DELAY_SIZE,
    DELAY_WORD,
    KEY_END,
    KEYS_SIZE,
    KEYS_WORD,
    NAME_END,
    PAIR_END,
    TAGS_SIZE,
    TAGS_WORD,
    UNIQ_KEY_SIZE,
    UNIQ_REST,
    UNIQ_WORD,
)

_SEPARATOR = np.uint8(PAIR_END)
_TOPIC_END, _TAG_TYPE = np.uint32(ord(TOPIC_END)), np.uint32(ord(TAG_TYPE))
#: From a pair's begin to its value.
_TAGS_VALUE, _KEYS_VALUE, _DELAY_VALUE = TAGS_SIZE + 1, KEYS_SIZE + 1, DELAY_SIZE + 1
_UNIQ_KEY_VALUE = UNIQ_KEY_SIZE + 1


@inlined
def find_tags_and_keys(base, text, size, buffer_end, narrow, row):  # type: ignore[no-untyped-def]
    """Write the slices of TAGS, KEYS and UNIQ_KEY of one record (positions from `base`; size 0 if absent)."""
    tags, tags_size, keys, keys_size, unique, unique_size = base, 0, base, 0, base, 0
    text_end = text + size
    pair = text
    block = text
    while block < text_end:
        mask = find_byte_mask(block, text_end, buffer_end, _SEPARATOR)
        last = block + 64 >= text_end
        while mask or last:
            end = text_end
            if mask:
                end = min(block + trailing_zeros(mask), text_end)
                mask &= mask - np.uint64(1)
            if end - pair > _TAGS_VALUE:
                name = load_i32(pair)
                if name == TAGS_WORD:
                    if load_u8(pair + TAGS_SIZE) == NAME_END:
                        tags, tags_size = pair + _TAGS_VALUE, end - pair - _TAGS_VALUE
                elif name == KEYS_WORD:
                    if load_u8(pair + KEYS_SIZE) == NAME_END:
                        keys, keys_size = pair + _KEYS_VALUE, end - pair - _KEYS_VALUE
                elif (
                    name == UNIQ_WORD
                    and end - pair > _UNIQ_KEY_VALUE
                    and load_i32(pair + 4) == UNIQ_REST
                    and load_u8(pair + UNIQ_KEY_SIZE) == NAME_END
                ):
                    unique, unique_size = pair + _UNIQ_KEY_VALUE, end - pair - _UNIQ_KEY_VALUE
            pair = end + 1
            if end >= text_end:
                break
        block += 64
    narrow[N_TAGS_POSITION, row], narrow[N_TAGS_SIZE, row] = tags - base, tags_size
    narrow[N_KEYS_POSITION, row], narrow[N_KEYS_SIZE, row] = keys - base, keys_size
    narrow[N_UNIQUE_KEY_POSITION, row], narrow[N_UNIQUE_KEY_SIZE, row] = unique - base, unique_size


@njit
def delay_level(text, size):  # type: ignore[no-untyped-def]
    """The value of DELAY; 0 if it is absent or no decimal number up to `INT32_MAX`."""
    level, pair, text_end = np.int64(0), text, text + size
    while pair < text_end:
        end = pair
        while end < text_end and load_u8(end) != _SEPARATOR:
            end += 1
        if (
            end - pair > _DELAY_VALUE
            and load_i32(pair) == DELAY_WORD
            and load_u8(pair + 4) == DELAY_REST
            and load_u8(pair + DELAY_SIZE) == NAME_END
        ):
            level = np.int64(0)
            for i in range(pair + _DELAY_VALUE, end):
                digit = np.int64(load_u8(i)) - 0x30
                level = level * 10 + digit
                if digit < 0 or digit > 9 or level > INT32_MAX:
                    level = np.int64(0)
                    break
        pair = end + 1
    return level


@inlined
def hash_keys(  # type: ignore[no-untyped-def]
    topic_hash, unique, unique_size, keys, keys_size, tags, tags_size, hashes, count
):
    """Append the index hashes of one record: UNIQ_KEY, KEYS split at blanks, `T#` and TAGS (`IndexService.buildIndex`).

    Returns the new count, or -1 if `hashes` is full.
    """
    if unique_size:
        if count >= hashes.size:
            return -1
        hashes[count] = index_hash(topic_hash, unique, unique_size)
        count += 1
    keys_end = keys + keys_size
    while keys < keys_end:
        end = keys
        while end < keys_end and load_u8(end) != KEY_END:
            end += 1
        if end > keys:
            if count >= hashes.size:
                return -1
            hashes[count] = index_hash(topic_hash, keys, end - keys)
            count += 1
        keys = end + 1
    if tags_size:
        if count >= hashes.size:
            return -1
        state = (topic_hash * np.uint32(31) + _TAG_TYPE) * np.uint32(31) + _TOPIC_END
        hashes[count] = index_hash(state, tags, tags_size)
        count += 1
    return count
