"""Numbers as Java reads and compares them (`Integer.valueOf`, `Long.valueOf`, `Double.valueOf`), one and in columns."""

from __future__ import annotations

import re
import struct
import unicodedata
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reput.formats.java import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN

_INTEGER = re.compile(r"[+-]?\d+")
_DOUBLE = re.compile(
    r"[+-]?(?:NaN|Infinity|"
    r"(?:(?P<hex>0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)"
    r"|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?)"
)
#: Characters that `Double.valueOf` takes off both ends.
_BLANKS = "".join(map(chr, range(0x21)))
#: What most numbers look like: Arrow converts them, all at once.
_PLAIN = {False: r"^-?[0-9]{1,18}$", True: r"^-?[0-9]{1,15}(\.[0-9]{1,15})?$"}


class NumberKind(IntEnum):
    """Java's type of a number; of two kinds in one comparison, the greater one is what both become."""

    INTEGER = 0
    LONG = 1
    DOUBLE = 2


def sort_key(value: float) -> int:
    """An int64 by which doubles compare as in `Double.compareTo`: -0.0 before 0.0, NaN after all others."""
    if value != value:
        return INT64_MAX
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return int(bits if bits >= 0 else bits ^ INT64_MAX)


def parse_number(text: str, kind: NumberKind) -> int | None:
    """A number as `numbers_of` gives it; None for a text that Java refuses (NumberFormatException)."""
    if kind is NumberKind.DOUBLE:
        text = text.strip(_BLANKS)
        found = _DOUBLE.fullmatch(text)
        if found is None:
            return None
        if found["hex"]:
            return sort_key(_hexadecimal(text.rstrip("fFdD") if text[-1] in "fFdD" else text))
        return sort_key(float(text if text.endswith(("NaN", "Infinity")) else text.rstrip("fFdD")))
    if _INTEGER.fullmatch(text) is None or any(ord(character) > 0xFFFF for character in text):
        return None
    digits = "".join(character if character in "+-" else str(unicodedata.decimal(character)) for character in text)
    significant = digits.lstrip("+-").lstrip("0")
    if len(significant) > 19:
        return None
    value = int(significant or "0") * (-1 if digits[0] == "-" else 1)
    low, high = (INT32_MIN, INT32_MAX) if kind is NumberKind.INTEGER else (INT64_MIN, INT64_MAX)
    return value if low <= value <= high else None


def _hexadecimal(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return -float("inf") if text[0] == "-" else float("inf")


def numbers_of(texts: pa.StringArray, kind: NumberKind) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Texts as numbers of one kind.

    Args:
        texts: n texts; null if there is none.
        kind: INTEGER and LONG give the number, DOUBLE its `sort_key`.

    Returns:
        int64[n] numbers, and bool[n]: whether the text is such a number; False also for null.
    """
    is_double = kind is NumberKind.DOUBLE
    plain = pc.fill_null(pc.match_substring_regex(texts, _PLAIN[is_double]), False)
    usual = pc.if_else(plain, texts, pa.scalar("0"))
    values = pc.cast(usual, pa.float64() if is_double else pa.int64()).to_numpy(zero_copy_only=False)
    good = plain.to_numpy(zero_copy_only=False)
    if is_double:
        bits = values.view(np.int64)
        values = np.where(bits >= 0, bits, bits ^ np.int64(INT64_MAX))
    else:
        values = values.copy()
        if kind is NumberKind.INTEGER:
            good = good & (values >= INT32_MIN) & (values <= INT32_MAX)
    odd = np.flatnonzero(~plain.to_numpy(zero_copy_only=False) & texts.is_valid().to_numpy(zero_copy_only=False))
    if odd.size:
        good = good.copy()
        for row, data in zip(odd.tolist(), texts.cast(pa.binary()).take(pa.array(odd)).to_pylist(), strict=True):
            value = parse_number(data.decode(errors="replace"), kind)
            if value is not None:
                values[row], good[row] = value, True
    return values, good
