"""Java's `String.hashCode` over UTF-8 bytes, inside kernels.

Java hashes UTF-16 code units: h = 31 * h + unit, modulo 2**32. In ASCII a unit is a byte, and one vector step hashes
sixteen (7 ns for 32 bytes). A byte with the high bit set sends the text to a loop that decodes UTF-8. A character above
U+FFFF counts as two surrogates. Bytes that are no UTF-8 count as U+FFFD, one for each maximal broken sequence, as
Java's and Python's decoders replace them.

A hash can be continued: `java_hash(java_hash(0, "topic#"), key)` is the hash of `topic#key`, which the index uses.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from reput.kernels.machine.jit import kernel
from reput.kernels.machine.memory import load_u8, load_u64_native

_I8, _I32 = ir.IntType(8), ir.IntType(32)
_POWERS_16 = [pow(31, 15 - i, 1 << 32) for i in range(16)]
_31_16 = np.uint32(pow(31, 16, 1 << 32))
_HIGH_BITS = np.uint64(0x8080808080808080)
_REPLACEMENT = np.uint32(0xFFFD)


@intrinsic
def _weighted_sum_16(typing_context, address):  # type: ignore[no-untyped-def]
    """The sum of byte[i] * 31**(15 - i) of 16 bytes, modulo 2**32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        narrow, wide = ir.VectorType(_I8, 16), ir.VectorType(_I32, 16)
        data = builder.load(builder.inttoptr(arguments[0], narrow.as_pointer()))
        data.align = 1
        products = builder.mul(builder.zext(data, wide), ir.Constant(wide, _POWERS_16))
        add = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_I32, [wide]), "llvm.vector.reduce.add.v16i32"
        )
        return builder.call(add, [products])

    return types.uint32(types.int64), generate


@njit
def _step(state: np.uint32, unit: np.uint32) -> np.uint32:
    return np.uint32(state * np.uint32(31) + unit)


@njit
def decode_utf8(address: int, size: int) -> tuple[np.uint32, int]:
    """The first character of a non-empty text and its length in bytes; a broken sequence gives U+FFFD."""
    lead = np.uint32(load_u8(address))
    if lead < 0x80:
        return lead, 1
    # Bounds of the second byte, which exclude overlong forms and surrogates.
    low, high = np.uint32(0x80), np.uint32(0xBF)
    if 0xC2 <= lead <= 0xDF:
        need, point = 1, lead & np.uint32(0x1F)
    elif 0xE0 <= lead <= 0xEF:
        need, point = 2, lead & np.uint32(0x0F)
        if lead == 0xE0:
            low = np.uint32(0xA0)
        elif lead == 0xED:
            high = np.uint32(0x9F)
    elif 0xF0 <= lead <= 0xF4:
        need, point = 3, lead & np.uint32(0x07)
        if lead == 0xF0:
            low = np.uint32(0x90)
        elif lead == 0xF4:
            high = np.uint32(0x8F)
    else:
        return _REPLACEMENT, 1
    for i in range(1, need + 1):
        if i >= size:
            return _REPLACEMENT, i
        byte = np.uint32(load_u8(address + i))
        if byte < low or byte > high:
            return _REPLACEMENT, i
        low, high = np.uint32(0x80), np.uint32(0xBF)
        point = np.uint32((point << np.uint32(6)) | (byte & np.uint32(0x3F)))
    return point, need + 1


@njit
def _java_hash_utf8(state: np.uint32, address: int, size: int) -> np.uint32:
    state = np.uint32(state)
    i = 0
    while i < size:
        point, length = decode_utf8(address + i, size - i)
        if point >= 0x10000:
            state = _step(state, np.uint32(0xD800) + ((point - np.uint32(0x10000)) >> np.uint32(10)))
            point = np.uint32(0xDC00) + (point & np.uint32(0x3FF))
        state = _step(state, point)
        i += length
    return state


@njit
def java_hash(state, address, size):  # type: ignore[no-untyped-def]
    """Continue the hash `state` (0 to begin) over `size` bytes of UTF-8."""
    hashed = np.uint32(state)
    seen = np.uint64(0)
    i = 0
    while i + 16 <= size:
        seen |= load_u64_native(address + i) | load_u64_native(address + i + 8)
        hashed = np.uint32(hashed * _31_16 + _weighted_sum_16(address + i))
        i += 16
    while i < size:
        byte = load_u8(address + i)
        seen |= np.uint64(byte)
        hashed = _step(hashed, np.uint32(byte))
        i += 1
    if seen & _HIGH_BITS:
        return _java_hash_utf8(state, address, size)
    return hashed


@njit
def index_hash(state: np.uint32, address: int, size: int) -> np.int32:
    """The index's key hash: Math.abs of the continued hash, 0 if that stays negative (`indexKeyHashMethod`)."""
    hashed = np.int32(java_hash(state, address, size))
    if hashed < 0:
        hashed = np.int32(-hashed)
    return hashed if hashed >= 0 else np.int32(0)


@kernel("void(uint32, int64, int64[::1], int64[::1], int32[::1])")
def java_hash_slices(state, buffer, positions, sizes, out):  # type: ignore[no-untyped-def]
    """The hashes (int32) of many slices of one buffer, each continued from `state`."""
    for i in range(positions.size):
        out[i] = np.int32(java_hash(state, buffer + positions[i], sizes[i]))
