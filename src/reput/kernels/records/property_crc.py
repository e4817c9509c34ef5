"""CRC of a whole record in the last 20 bytes of its properties: written and checked (`formats/property_crc.py`)."""

from __future__ import annotations

import numpy as np
from numba import njit

from reput.formats.property_crc import PROPERTY_CRC32, PROPERTY_CRC_DIGITS, PROPERTY_CRC_SIZE
from reput.kernels.machine.crc32 import body_crc
from reput.kernels.machine.jit import inlined
from reput.kernels.machine.memory import load_i64, load_u8, store_i64, store_u8
from reput.kernels.records.property_names import NAME_END, PAIR_END

_NAME = int.from_bytes(PROPERTY_CRC32.encode(), "big")
_SIZE = PROPERTY_CRC_SIZE
_NAME_SIZE, _DIGITS = len(PROPERTY_CRC32), PROPERTY_CRC_DIGITS
_FIRST_DIGIT = _NAME_SIZE + 1


@inlined
def is_property_crc(name, size):  # type: ignore[no-untyped-def]
    """Whether a property has the name of the CRC."""
    return size == _NAME_SIZE and load_i64(name) == _NAME


@njit
def put_property_crc(record, size):  # type: ignore[no-untyped-def]
    """Write the CRC into the last 20 bytes of a record."""
    target = record + size - _SIZE
    crc = body_crc(record, size - _SIZE)
    store_i64(target, _NAME)
    store_u8(target + _NAME_SIZE, NAME_END)
    for i in range(_DIGITS):
        store_u8(target + _FIRST_DIGIT + i, 0x30 + crc % 10)
        crc //= 10
    store_u8(target + _SIZE - 1, PAIR_END)


@njit
def _is_property_crc_pair(target):  # type: ignore[no-untyped-def]
    whole = load_u8(target + _NAME_SIZE) == NAME_END and load_u8(target + _SIZE - 1) == PAIR_END
    for i in range(_DIGITS):
        digit = load_u8(target + _FIRST_DIGIT + i)
        whole &= 0x30 <= digit <= 0x39
    return whole


@inlined
def carries_property_crc(record, size, properties_size):  # type: ignore[no-untyped-def]
    """Whether the last pair of a record's properties is a CRC."""
    target = record + size - _SIZE
    return (
        properties_size >= _SIZE
        and load_i64(target) == _NAME
        and (properties_size == _SIZE or load_u8(target - 1) == PAIR_END)
        and _is_property_crc_pair(target)
    )


@njit
def property_crc_fits(record, size):  # type: ignore[no-untyped-def]
    """Whether the digits of a record's property CRC fit its bytes."""
    digits = record + size - _SIZE + _FIRST_DIGIT
    crc = body_crc(record, size - _SIZE)
    fits = True
    for i in range(_DIGITS):
        fits &= np.int64(load_u8(digits + i)) == 0x30 + crc % 10
        crc //= 10
    return fits
