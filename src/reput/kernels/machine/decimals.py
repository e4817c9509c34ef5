"""Decimal numbers in text, read and written by kernels."""

from __future__ import annotations

import numpy as np
from numba import njit

from reput.kernels.machine.memory import load_u8, store_u8

#: The most digits that `read_decimal` reads.
MOST_DIGITS = 18
_ZERO, _MINUS = 0x30, 0x2D


@njit
def read_decimal(p, end):  # type: ignore[no-untyped-def]
    """(Value, digits) of the number at an address; (0, 0) without one, for a superfluous zero, for too many digits."""
    value, at = np.int64(0), p
    while at < end:
        digit = np.int64(load_u8(at)) - _ZERO
        if digit < 0 or digit > 9:
            break
        if at - p == MOST_DIGITS:
            return np.int64(0), np.int64(0)
        value = value * 10 + digit
        at += 1
    if at - p > 1 and load_u8(p) == _ZERO:
        return np.int64(0), np.int64(0)
    return value, at - p


@njit
def decimal_digits(value):  # type: ignore[no-untyped-def]
    """The number of digits of a number that is not negative."""
    digits = 1
    bound = np.int64(10)
    while digits < 19 and value >= bound:
        digits += 1
        bound *= 10
    return digits


@njit
def put_decimal(t, value):  # type: ignore[no-untyped-def]
    """Write a number; returns the address after it."""
    if value < 0:
        store_u8(t, _MINUS)
        t += 1
        value = -value
    digits = decimal_digits(value)
    for i in range(digits):
        store_u8(t + digits - 1 - i, _ZERO + value % 10)
        value //= 10
    return t + digits
