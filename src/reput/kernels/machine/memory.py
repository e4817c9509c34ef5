"""Loads, stores and copies at addresses, for use inside kernels only.

A buffer enters a kernel as an int64 address and a size: that costs half of passing an array, and the same kernel works
on a mapped file, an Arrow buffer and a NumPy array. Nothing here checks bounds: a kernel compares a position with its
buffer's end before it loads from there, and the public wrappers keep the buffers alive.

Java's ByteBuffer is big-endian, so `load_*` and `store_*` swap bytes; the `*_native` twins do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

_I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)


def _pointer(builder: Any, address: Any, pointee: Any) -> Any:
    return builder.inttoptr(address, pointee.as_pointer())


def _load(bits: int, result: Any, *, swap: bool) -> Callable[..., Any]:
    def typed(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = builder.load(_pointer(builder, arguments[0], ir.IntType(bits)))
            value.align = 1
            return builder.bswap(value) if swap else value

        return result(types.int64), generate

    return intrinsic(typed)  # type: ignore[no-any-return]


def _store(bits: int, stored: Any, *, swap: bool) -> Callable[..., Any]:
    def typed(typing_context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = context.cast(builder, arguments[1], signature.args[1], stored)
            value = builder.bswap(value) if swap else value
            builder.store(value, _pointer(builder, arguments[0], ir.IntType(bits))).align = 1
            return context.get_dummy_value()

        return types.none(types.int64, value), generate

    return intrinsic(typed)  # type: ignore[no-any-return]


load_u8 = _load(8, types.uint8, swap=False)
load_i16 = _load(16, types.int16, swap=True)
load_i32 = _load(32, types.int32, swap=True)
load_i64 = _load(64, types.int64, swap=True)
load_i32_native = _load(32, types.int32, swap=False)
load_u32_native = _load(32, types.uint32, swap=False)
load_i64_native = _load(64, types.int64, swap=False)
load_u64_native = _load(64, types.uint64, swap=False)
store_u8 = _store(8, types.uint8, swap=False)
store_i16 = _store(16, types.int16, swap=True)
store_i32 = _store(32, types.int32, swap=True)
store_i64 = _store(64, types.int64, swap=True)
store_i32_native = _store(32, types.int32, swap=False)
store_i64_native = _store(64, types.int64, swap=False)


@intrinsic
def copy(typing_context, target, source, size):  # type: ignore[no-untyped-def]
    """LLVM's memcpy: 13 ns for 256 bytes; NumPy's slice assignment takes 100 ns."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        cgutils.raw_memcpy(
            builder, _pointer(builder, arguments[0], _I8), _pointer(builder, arguments[1], _I8), arguments[2], 1
        )
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64), generate


@intrinsic
def prefetch(typing_context, address):  # type: ignore[no-untyped-def]
    """Prefetch the cache line at an address; never faults, whatever the address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [_I8.as_pointer(), _I32, _I32, _I32]), "llvm.prefetch.p0"
        )
        read, keep, data = ir.Constant(_I32, 0), ir.Constant(_I32, 3), ir.Constant(_I32, 1)
        builder.call(function, [_pointer(builder, arguments[0], _I8), read, keep, data])
        return context.get_dummy_value()

    return types.none(types.int64), generate


@intrinsic
def equal_mask_64(typing_context, address, byte):  # type: ignore[no-untyped-def]
    """Bit i is set if byte i of the 64 at `address` equals `byte` (uint8). Plain LLVM vectors: for any processor."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = ir.VectorType(_I8, 64)
        data = builder.load(_pointer(builder, arguments[0], vector))
        data.align = 1
        one = builder.insert_element(ir.Constant(vector, ir.Undefined), arguments[1], ir.Constant(_I32, 0))
        lanes = ir.Constant(ir.VectorType(_I32, 64), [0] * 64)
        every = builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), lanes)
        return builder.bitcast(builder.icmp_unsigned("==", data, every), _I64)

    return types.uint64(types.int64, types.uint8), generate


@intrinsic
def bit_count(typing_context, value):  # type: ignore[no-untyped-def]
    """Number of the bits that are set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


@intrinsic
def trailing_zeros(typing_context, value):  # type: ignore[no-untyped-def]
    """Number of the lowest set bit; 64 for 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


@njit
def copy_short(target: int, source: int, size: int) -> None:
    """Copy up to 32 bytes without a call: two overlapping loads and stores, never past either end."""
    if size > 32:
        copy(target, source, size)
    elif size >= 16:
        a, b = load_i64_native(source), load_i64_native(source + 8)
        c, d = load_i64_native(source + size - 16), load_i64_native(source + size - 8)
        store_i64_native(target, a)
        store_i64_native(target + 8, b)
        store_i64_native(target + size - 16, c)
        store_i64_native(target + size - 8, d)
    elif size >= 8:
        a, b = load_i64_native(source), load_i64_native(source + size - 8)
        store_i64_native(target, a)
        store_i64_native(target + size - 8, b)
    elif size >= 4:
        e, f = load_i32_native(source), load_i32_native(source + size - 4)
        store_i32_native(target, e)
        store_i32_native(target + size - 4, f)
    else:
        for i in range(size):
            store_u8(target + i, load_u8(source + i))


@njit
def equal_bytes(a: int, b: int, size: int) -> bool:
    """Whether the `size` bytes at two addresses are equal."""
    if size >= 8:
        i = 0
        while i + 8 < size:
            if load_u64_native(a + i) != load_u64_native(b + i):
                return False
            i += 8
        # The last eight bytes overlap the earlier ones, which is faster than a loop over the rest.
        return bool(load_u64_native(a + size - 8) == load_u64_native(b + size - 8))
    for i in range(size):  # noqa: SIM110 (a kernel has no generators)
        if load_u8(a + i) != load_u8(b + i):
            return False
    return True


@njit
def find_byte_mask(position, text_end, buffer_end, byte):  # type: ignore[no-untyped-def]
    """Bits of the bytes equal to `byte` among the next 64 (or up to `text_end`); never loads past `buffer_end`."""
    if position + 64 <= buffer_end:
        return equal_mask_64(position, byte)
    mask = np.uint64(0)
    for i in range(min(64, text_end - position)):
        if load_u8(position + i) == byte:
            mask |= np.uint64(1) << np.uint64(i)
    return mask
