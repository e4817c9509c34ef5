"""Description of one field of a binary format: its name, struct code, width and meaning."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple


class Field(NamedTuple):
    """One field of a binary format.

    name: RocketMQ's name of the field.
    code: code of module struct; None for bytes whose width another field gives.
    size: width in bytes; None if the width varies.
    meaning: one line for the docs.
    column: name of the public Arrow column that shows the field, or None.
    """

    name: str
    code: str | None
    size: int | None
    meaning: str
    column: str | None = None


def struct_format(fields: Iterable[Field]) -> str:
    """Format text for struct.Struct of fixed fields in a row; every integer is big-endian, as in Java's ByteBuffer."""
    codes = [field.code for field in fields]
    assert None not in codes, "a field of varying width has no struct code"
    return ">" + "".join(code for code in codes if code)


def positions(fields: Sequence[Field]) -> dict[str, int]:
    """Position of each field by its name, from the start of the fields; only the last field may vary in width."""
    widths = [field.size for field in fields[:-1]]
    assert None not in widths, "the position of what comes after a field of varying width is not fixed"
    starts = accumulate((width for width in widths if width), initial=0)
    return dict(zip((field.name for field in fields), starts, strict=True))
