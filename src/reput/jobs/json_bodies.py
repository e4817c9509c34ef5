"""JSON bodies by Arrow's reader: one object each, parsed in ranges, so that a bad body spoils no other.

Bodies are binary arrays, decompressed as `read_log` gives them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from math import isqrt
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from reput.kernels.records.json_objects import (
    CONTROL_BYTE,
    EMPTY,
    MORE_AFTER,
    MOST_LEVELS,
    NO_OBJECT,
    NOT_FINITE,
    TOO_DEEP,
    UNFINISHED,
    find_json_faults,
)

T = TypeVar("T")
#: Treatment of fields that a schema lacks.
OtherFields = Literal["ignore", "infer", "error"]
_Mask = npt.NDArray[np.bool_]

_FAULTS = {
    EMPTY: "an empty body",
    NO_OBJECT: "no JSON object: it begins otherwise than with {",
    UNFINISHED: "a JSON object that is not closed",
    MORE_AFTER: "something after the end of the JSON object",
    CONTROL_BYTE: "no JSON: a control byte outside of an escape",
    NOT_FINITE: "no JSON: NaN or Infinity in place of a number",
    TOO_DEEP: f"more than {MOST_LEVELS} objects and lists within each other",
}
#: Characters of a reason; an error may quote a value of any length.
MOST_REASON = 200
#: Types that hold each integer up to a size, and not each beyond.
_HELD = {pa.float32(): 1 << 24, pa.float64(): 1 << 53}
#: Digits of the largest double: Arrow refuses numbers with more, and Python does not read them in any length.
_MOST_DIGITS = 309
#: Text of an error of Arrow's for an integer that a type does not hold, if a wider one does.
_UNFIT = re.compile(r"Failed to convert JSON to int\d+, couldn't parse:-?(\d{1,38})")
_BIGINT_DIGITS = 19
#: A string, or a number.
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|-?\d[\d.eE+-]*', re.DOTALL)
#: Begin of an error of Arrow's parser, which reads body by body. Others may quote a body at their end.
_PARSER_S = "JSON parse error: "
#: Bytes of a field in a body, as `"u1234567":1.5,`.
_BYTES_OF_A_FIELD = 16
#: Rows that are tried at once behind a bad body.
_RETRIED_ROWS = 512


def json_faults(bodies: pa.Array) -> dict[int, str]:
    """Reasons why bodies are not one JSON object each, by row, as far as brackets and strings tell."""
    if not len(bodies):
        return {}
    faults = np.empty(len(bodies), np.uint8)
    offsets, data = _offsets(bodies), bodies.buffers()[2]
    address = data.address if data is not None else 0
    if not find_json_faults(address, offsets.ctypes.data, faults):
        return {}
    return {row: _FAULTS[int(faults[row])] for row in np.flatnonzero(faults).tolist()}


def parse_in_ranges(
    bodies: pa.Array, parse: Callable[[pa.Array], T], refused: dict[int, str], *, most_cells: int | None = None
) -> Iterator[tuple[int, T]]:
    """Parse ranges of the bodies, in order: (row of the range's first body, what `parse` returns).

    With `most_cells` each body may have fields of its own, as ids for names, and Arrow makes a column of each: ranges
    are so small that all columns have so many cells.

    A range that `parse` refuses is cut at the row that the error names, and small enough that the rest is not looked at
    again for each bad body; without a row it is halved. A single body that is refused goes to `refused`, by its row.
    """
    rows = max(len(bodies), 1)
    if most_cells is not None:
        rows = max(1, isqrt(most_cells * _BYTES_OF_A_FIELD * rows // max(bodies.nbytes, 1)))
    stack = [(begin, min(begin + rows, len(bodies))) for begin in range(0, len(bodies), rows)][::-1]
    while stack:
        begin, end = stack.pop()
        try:
            yield begin, parse(bodies.slice(begin, end - begin))
        except pa.ArrowException as error:
            text, row = _reason_and_row(error)
            if end - begin == 1 or (row == 0 and text.startswith(_PARSER_S)):
                refused[begin] = text[:MOST_REASON]  # no body before it has a part in this
                borders = [begin + 1, *range(begin + 1 + _RETRIED_ROWS, end, _RETRIED_ROWS)]
            elif row is not None and begin + row < end:
                borders = [
                    begin,
                    begin + row,
                    begin + row + 1,
                    *range(begin + row + 1 + _RETRIED_ROWS, end, _RETRIED_ROWS),
                ]
            elif end - begin > _RETRIED_ROWS:
                borders = list(range(begin, end, _RETRIED_ROWS))
            else:
                borders = [begin, (begin + end) // 2]
            stack += [(low, high) for low, high in pairwise([*borders, end]) if low < high][::-1]


def read_json_bodies(bodies: pa.Array, schema: pa.Schema | None, other_fields: OtherFields = "infer") -> pa.Array:
    """Parse bodies of one JSON object each to a struct array; raises ArrowException if any body does not fit.

    Args:
        bodies: without the bodies of `json_faults`.
        schema: types of fields; None: all types are inferred.
        other_fields: fields that the schema lacks are left out, come with inferred types, or are an error.
    """
    bodies.cast(pa.string())  # the parser takes any bytes between quotes
    offsets = _offsets(bodies)
    text = bodies.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    # One block for all: Arrow ends blocks at newlines, and bodies may hold newlines.
    read_options = pj.ReadOptions(use_threads=False, block_size=text.size + 1)
    parse_options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior=other_fields)
    try:
        table = pj.read_json(pa.BufferReader(text), read_options=read_options, parse_options=parse_options)
    except pa.ArrowInvalid as error:
        if (unfit := _UNFIT.fullmatch(str(error))) is None:
            raise
        holds = "bigint" if len(unfit[1]) < _BIGINT_DIGITS else f"decimal({max(20, len(unfit[1]))},0)"
        raise pa.ArrowInvalid(f"{error}; {holds} holds it: --schema 'TOPIC=FIELD {holds}'") from None
    if table.num_rows != len(bodies):
        raise pa.ArrowInvalid(f"{table.num_rows} JSON objects in {len(bodies)} bodies")
    try:
        table.validate()
    except pa.ArrowInvalid:  # Arrow loses the nulls at the begin of a list whose type it does not know yet
        raise pa.ArrowInvalid("a list that begins with null, in a field that the schema lacks") from None
    if not table.num_columns:
        return pa.StructArray.from_buffers(pa.struct([]), len(bodies), [None])
    return table.to_struct_array().combine_chunks()


def with_small_integers(body: bytes, is_small: Callable[[int], bool]) -> bytes:
    """A JSON body with 0 in place of each integer that is not small; numbers with a point or an exponent stay."""

    def small(token: re.Match[bytes]) -> bytes:
        digits = token[0].removeprefix(b"-")
        is_large = digits.isdigit() and (len(digits) > _MOST_DIGITS or not is_small(int(token[0])))
        return b"0" if is_large else token[0]

    return _TOKEN.sub(small, body)


def changed_numbers(bodies: pa.Array, values: pa.Array) -> Iterator[tuple[str, _Mask]]:
    """Fields of doubles and floats, each with bool[rows]: whether a body has a number that the type does not hold.

    That is an integer that the value is not, and any number beyond the type's range; fractions are rounded.

    Args:
        bodies: JSON objects.
        values: what `read_json_bodies` has made of them.
    """
    for kind, most in _HELD.items():
        yield from _values_of(kind, values, values, _is_infinite)
        large = np.zeros(len(bodies), np.bool_)
        for _, rows in _values_of(kind, values, values, partial(_is_from, most)):
            large |= rows
        if large.any():  # a body without so many digits before a point has no such integer
            large &= np.asarray(pc.match_substring_regex(bodies, f"[^.0-9][0-9]{{{len(str(most))}}}"))
        if not large.any():
            continue
        some = values.filter(pa.array(large))
        with np.errstate(over="ignore"):
            is_held = partial(_is_held, kind.to_pandas_dtype())
            small = [with_small_integers(body, is_held) for body in bodies.filter(pa.array(large)).to_pylist()]
        read = read_json_bodies(pa.array(small, pa.binary()), pa.schema(list(values.type)), "ignore")
        for path, changed in _values_of(kind, some, read, pc.not_equal):
            rows = np.zeros(len(bodies), np.bool_)
            rows[large] = changed
            yield path, rows


def _is_held(kind: type[np.floating[Any]], number: int) -> bool:
    return float(kind(number)) == number


def _is_infinite(array: pa.Array, _: pa.Array) -> pa.Array:
    return pc.is_inf(array)


def _is_from(least: int, array: pa.Array, _: pa.Array) -> pa.Array:
    return pc.greater_equal(pc.abs(array), pa.scalar(least, array.type))


def _values_of(
    kind: pa.DataType, array: pa.Array, other: pa.Array, compare: Callable[[pa.Array, pa.Array], pa.Array]
) -> Iterator[tuple[str, _Mask]]:
    """Fields of a type in two arrays, each with bool[rows]: whether `compare` is true of a value there."""
    if pa.types.is_struct(array.type):
        for field, one, two in zip(array.type, array.flatten(), other.flatten(), strict=True):
            for path, rows in _values_of(kind, one, two, compare):
                yield f"{field.name}.{path}" if path else field.name, rows
    elif pa.types.is_list(array.type):
        for path, items in _values_of(kind, array.flatten(), other.flatten(), compare):
            yield path, _rows_of_items(array, items)
    elif array.type == kind:
        yield "", np.asarray(compare(array, other).fill_null(False))


def other_values(array: pa.Array, kind: pa.DataType) -> Iterator[tuple[str, _Mask]]:
    """Fields of parsed bodies that a type lacks, `customer.age`, each with bool[rows]: whether a row has a value there.

    A null, an empty list, and an object without values are no values: they have no type.
    """
    if array.type == kind:
        return
    if pa.types.is_struct(array.type):
        for field, child in zip(array.type, array.flatten(), strict=True):
            number = kind.get_field_index(field.name)
            if number < 0:
                yield field.name, _has_value(child)
            else:
                inner = other_values(child, kind.field(number).type)
                yield from ((f"{field.name}.{path}", rows) for path, rows in inner)
    elif pa.types.is_list(array.type):
        for path, items in other_values(array.flatten(), kind.value_type):
            yield path, _rows_of_items(array, items)


def _reason_and_row(error: pa.ArrowException) -> tuple[str, int | None]:
    """First line of an error of Arrow's, and the row at its end; None if it names none."""
    text, separator, row = str(error).partition("\n")[0].rpartition(" in row ")
    return (text, int(row)) if separator and row.isdigit() else (str(error).partition("\n")[0], None)


def _has_value(array: pa.Array) -> _Mask:
    if pa.types.is_struct(array.type):
        has = np.zeros(len(array), np.bool_)
        for child in array.flatten():
            has |= _has_value(child)
        return has
    if pa.types.is_list(array.type):
        return _rows_of_items(array, _has_value(array.flatten()))
    return np.asarray(array.is_valid())


def _rows_of_items(lists: pa.Array, items: _Mask) -> _Mask:
    """Whether a list has any of the items."""
    rows = np.zeros(len(lists), np.bool_)
    rows[np.asarray(pc.list_parent_indices(lists))[items]] = True
    return rows


def _offsets(bodies: pa.Array) -> npt.NDArray[np.int32]:
    """int32[rows + 1], position of each body in the array's data, and the end of the last body."""
    offsets = np.frombuffer(bodies.buffers()[1], np.int32)
    return offsets[bodies.offset : bodies.offset + len(bodies) + 1]
