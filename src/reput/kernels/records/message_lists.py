"""Columns of records -> lists of Python objects: the bodies, tags or keys of many messages in one call.

Bytecode takes a microsecond to cut one field out of a record; a kernel that makes the objects itself takes a twentieth
of that. It makes them by CPython's C API, and keeps the interpreter lock.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numba import njit

from reput.kernels.machine.c_functions import INT32, INT64, POINTER, VOID, c_function
from reput.kernels.machine.jit import kernel
from reput.kernels.machine.memory import load_u8
from reput.kernels.records.columns import (
    N_BODY_POSITION,
    N_BODY_SIZE,
    N_KEYS_POSITION,
    N_KEYS_SIZE,
    N_TAGS_POSITION,
    N_TAGS_SIZE,
    RecordColumns,
)

#: How bytes that are no UTF-8 are decoded: to U+FFFD.
_REPLACE = np.frombuffer(b"replace\0", np.uint8)
_REPLACE_AT: int = _REPLACE.ctypes.data
_BLANK = ord(" ")
_T = TypeVar("_T")

_new_bytes = c_function("PyBytes_FromStringAndSize", POINTER, [POINTER, INT64])
_decode = c_function("PyUnicode_DecodeUTF8", POINTER, [POINTER, INT64, POINTER])
_new_tuple = c_function("PyTuple_New", POINTER, [INT64])
_set_in_tuple = c_function("PyTuple_SetItem", INT32, [POINTER, INT64, POINTER])  # takes the reference
_set_in_list = c_function("PyList_SetItem", INT32, [POINTER, INT64, POINTER])  # takes the reference
_forget = c_function("Py_DecRef", VOID, [POINTER])
_clear_error = c_function("PyErr_Clear", VOID, [])


def body_list(records: RecordColumns, address: int) -> list[bytes]:
    """The body of each record, as stored.

    Args:
        records: The records.
        address: Of their buffer.

    Raises:
        MemoryError: It is out.
    """
    bodies: list[bytes] = [b""] * records.rows
    narrow = records.narrow
    return _complete(bodies, _fill_bodies(id(bodies), address, narrow[N_BODY_POSITION], narrow[N_BODY_SIZE]))


def tags_list(records: RecordColumns, address: int) -> list[str | None]:
    """The TAGS of each record; None if it has none. As `body_list`."""
    tags: list[str | None] = [None] * records.rows
    narrow = records.narrow
    return _complete(tags, _fill_tags(id(tags), address, narrow[N_TAGS_POSITION], narrow[N_TAGS_SIZE], _REPLACE_AT))


def keys_list(records: RecordColumns, address: int) -> list[tuple[str, ...]]:
    """The KEYS of each record, as of `split_keys`. As `body_list`."""
    keys: list[tuple[str, ...]] = [()] * records.rows
    narrow = records.narrow
    return _complete(keys, _fill_keys(id(keys), address, narrow[N_KEYS_POSITION], narrow[N_KEYS_SIZE], _REPLACE_AT))


def _complete(found: list[_T], made: int) -> list[_T]:
    if made < len(found):
        raise MemoryError
    return found


@kernel("int64(int64, int64, int32[::1], int32[::1])", reads_objects=True)
def _fill_bodies(target, buffer, positions, sizes):  # type: ignore[no-untyped-def]
    """Put bytes of a buffer into a list.

    Args:
        target: `id` of a list with an item for each.
        buffer: Address.
        positions, sizes: int32[items], in the buffer.

    Returns:
        int64, items that were made; fewer than asked for if memory is out.
    """
    for i in range(positions.size):
        made = _new_bytes(buffer + positions[i], sizes[i])
        if made == 0:
            _clear_error()
            return i
        _set_in_list(target, i, made)
    return positions.size


@kernel("int64(int64, int64, int32[::1], int32[::1], int64)", reads_objects=True)
def _fill_tags(target, buffer, positions, sizes, replace):  # type: ignore[no-untyped-def]
    """Put texts of a buffer into a list; items of empty ones stay. Arguments and result as of `_fill_bodies`.

    replace: Address of the name of what decodes errors.
    """
    for i in range(positions.size):
        if sizes[i] > 0:
            made = _decode(buffer + positions[i], sizes[i], replace)
            if made == 0:
                _clear_error()
                return i
            _set_in_list(target, i, made)
    return positions.size


@kernel("int64(int64, int64, int32[::1], int32[::1], int64)", reads_objects=True)
def _fill_keys(target, buffer, positions, sizes, replace):  # type: ignore[no-untyped-def]
    """Put tuples of the texts between blanks into a list; items without a text stay. As `_fill_tags`."""
    for i in range(positions.size):
        begin = buffer + positions[i]
        end = begin + sizes[i]
        count = _count(begin, end)
        if count > 0:
            made = _new_tuple(count)
            if made == 0 or not _fill(made, begin, end, replace):
                _clear_error()
                if made != 0:
                    _forget(made)
                return i
            _set_in_list(target, i, made)
    return positions.size


@njit
def _count(begin, end):  # type: ignore[no-untyped-def]
    """Texts between blanks."""
    count, was_blank = 0, True
    for place in range(begin, end):
        is_blank = load_u8(place) == _BLANK
        count += was_blank and not is_blank
        was_blank = is_blank
    return count


@njit
def _fill(target, begin, end, replace):  # type: ignore[no-untyped-def]
    """Put the texts between blanks into a tuple; whether memory was enough."""
    number, place = 0, begin
    while place < end:
        first = place
        while place < end and load_u8(place) != _BLANK:
            place += 1
        if place > first:
            made = _decode(first, place - first, replace)
            if made == 0:
                return False
            _set_in_tuple(target, number, made)
            number += 1
        place += 1
    return True
