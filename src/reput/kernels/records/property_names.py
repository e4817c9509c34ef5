"""Names of properties as numbers, and the bytes around names and values (`formats.properties`).

A kernel compares four or eight bytes at once: the big-endian number of a name's bytes. Of a name with more bytes `REST`
is the number of those after the first eight, of DELAY of that after the first four.
"""

from __future__ import annotations

from reput.formats.properties import (
    DELAY,
    INNER_BASE,
    INNER_NUM,
    KEY_SEPARATOR,
    KEYS,
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    TAGS,
    UNIQ_KEY,
    WAIT,
)


def _number(name: str, begin: int, end: int | None = None) -> int:
    return int.from_bytes(name.encode()[begin:end], "big")


#: The bytes after a name, after a value, and between two keys.
NAME_END, PAIR_END, KEY_END = NAME_VALUE_SEPARATOR[0], PROPERTY_SEPARATOR[0], ord(KEY_SEPARATOR)
#: Bytes that a pair has beside name and value.
PAIR_ENDS = len(NAME_VALUE_SEPARATOR) + len(PROPERTY_SEPARATOR)

TAGS_WORD, KEYS_WORD, WAIT_WORD = _number(TAGS, 0), _number(KEYS, 0), _number(WAIT, 0)
TAGS_SIZE, KEYS_SIZE, WAIT_SIZE = len(TAGS), len(KEYS), len(WAIT)
#: UNIQ_KEY as one number of eight bytes, and as two of four.
UNIQ_KEY_WORD = _number(UNIQ_KEY, 0)
UNIQ_WORD, UNIQ_REST = _number(UNIQ_KEY, 0, 4), _number(UNIQ_KEY, 4)
UNIQ_KEY_SIZE = len(UNIQ_KEY)
DELAY_WORD, DELAY_REST, DELAY_SIZE = _number(DELAY, 0, 4), _number(DELAY, 4), len(DELAY)
INNER_NUM_WORD, INNER_NUM_REST, INNER_NUM_SIZE = _number(INNER_NUM, 0, 8), _number(INNER_NUM, 8), len(INNER_NUM)
INNER_BASE_WORD, INNER_BASE_REST, INNER_BASE_SIZE = _number(INNER_BASE, 0, 8), _number(INNER_BASE, 8), len(INNER_BASE)
