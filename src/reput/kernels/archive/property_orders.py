"""Orders of properties: a letter for each pair of a properties text, so that columns without an order give it back."""

from __future__ import annotations

from reput.kernels.machine.jit import kernel
from reput.kernels.machine.memory import load_i32, load_i64, load_u8
from reput.kernels.records.property_names import (
    KEYS_WORD,
    NAME_END,
    PAIR_END,
    TAGS_SIZE,
    TAGS_WORD,
    UNIQ_KEY_SIZE,
    UNIQ_KEY_WORD,
)

#: Letters of an order: UNIQ_KEY, TAGS, KEYS, the next pair of the map; after the last pair, that it has no separator;
#: and alone, that the row has the text itself.
LETTERS = "UTK.!?"
UNIQUE_KEY, TAGS, KEYS, PAIR, NO_END, AS_STORED = (ord(letter) for letter in LETTERS)
#: Least size of a pair in the middle of a text, and letters of a text beside those of its pairs.
_LEAST_PAIR, _FURTHER = 4, 2


def most_letters(properties_bytes: int, rows: int) -> int:
    """Room for the letters of rows, by the bytes that their properties take in all."""
    return properties_bytes // _LEAST_PAIR + _FURTHER * rows


@kernel("int64(int64, int32[::1], int32[::1], uint8[::1], uint8[::1], int32[::1])")
def property_orders(buffer, positions, sizes, as_stored, letters, offsets):  # type: ignore[no-untyped-def]
    """Write the order of each properties text; returns the number of letters.

    The letters say what a text looks like. Whether columns and order give it back is proven by doing so
    (`restored_records.prove_records`).

    Args:
        buffer: Address of the bytes with the texts.
        as_stored: uint8[n], not 0 for a row that has its text itself.
        letters: Room as `most_letters` says.
        offsets: int32[n + 1], takes the begin of each row's letters.
    """
    at = 0
    for row in range(positions.size):
        offsets[row] = at
        begin = at
        pair = buffer + positions[row]
        end = pair + sizes[row]
        is_known = as_stored[row] == 0
        while is_known and pair < end:
            name_end, p = end, pair
            while p < end and load_u8(p) != PAIR_END:
                if name_end == end and load_u8(p) == NAME_END:
                    name_end = p
                p += 1
            size = name_end - pair
            is_known = size > 0 and p - name_end > 1
            if is_known:
                letter = PAIR
                if size == TAGS_SIZE:
                    word = load_i32(pair)
                    letter = TAGS if word == TAGS_WORD else KEYS if word == KEYS_WORD else PAIR
                elif size == UNIQ_KEY_SIZE and load_i64(pair) == UNIQ_KEY_WORD:
                    letter = UNIQUE_KEY
                letters[at] = letter
                at += 1
                if p >= end:
                    letters[at] = NO_END
                    at += 1
            pair = p + 1
        if not is_known:
            letters[begin] = AS_STORED
            at = begin + 1
    offsets[positions.size] = at
    return at
