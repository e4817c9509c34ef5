"""Description of one field of a binary format: its name, struct code, width and meaning."""

from __future__ import annotations

from collections.abc import Iterable
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
