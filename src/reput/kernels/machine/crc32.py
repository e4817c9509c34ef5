"""CRC-32 (IEEE, as in zlib) inside kernels: by carry-less multiplication if the target has it, else by tables.

At the sizes of messages zlib's call takes longer than the sum itself: 256 bytes take 14 ns by carry-less
multiplication, 108 by sixteen tables, 213 through `zlib.crc32`. The folding constants are from Intel's white paper
"Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" for the reflected polynomial 0xEDB88320.

RocketMQ stores the sum with its top bit cleared (`UtilAll.crc32`), and 0 for an empty body, CRC-32's own value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from reput.kernels.machine.jit import kernel
from reput.kernels.machine.memory import load_u8, load_u32_native

_I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_V2 = ir.VectorType(_I64, 2)

#: Fold by 64 bytes (x^544, x^480), by 16 (x^160, x^96), then 96 to 64 bits (x^64), then Barrett: the polynomial and its
#: inverse.
_FOLD_64 = (0x154442BD4, 0x1C6E41596)
_FOLD_16 = (0x1751997D0, 0x0CCAA009E)
_FOLD_8 = 0x163CD6124
_BARRETT = (0x1DB710641, 0x1F7011641)


def _tables() -> npt.NDArray[np.uint32]:
    tables = np.zeros((16, 256), np.uint32)
    value = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        value = np.where(value & 1, (value >> 1) ^ np.uint32(0xEDB88320), value >> 1).astype(np.uint32)
    tables[0] = value
    for i in range(1, 16):
        tables[i] = (tables[i - 1] >> 8) ^ tables[0][tables[i - 1] & 255]
    return tables


_TABLES = _tables()

#: Whether Numba's target has the feature, not whether this processor has it: without it in the target LLVM aborts.
_HAS_CARRYLESS = "+pclmul" in cpu_target.target_context.codegen().magic_tuple()[2].split(",")


class _Folder:
    """Emitter of the vector code of one CRC: 128-bit lanes are folded over the data, then reduced to 32 bits."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder
        signature = ir.FunctionType(_V2, [_V2, _V2, _I8])
        self.multiply_function = cgutils.get_or_insert_function(builder.module, signature, "llvm.x86.pclmulqdq")

    def load(self, address: Any) -> Any:
        value = self.builder.load(self.builder.inttoptr(address, _V2.as_pointer()))
        value.align = 1
        return value

    def multiply(self, a: Any, b: Any, halves: int) -> Any:
        return self.builder.call(self.multiply_function, [a, b, ir.Constant(_I8, halves)])

    def fold(self, lane: Any, constants: tuple[int, int], following: Any) -> Any:
        pair = ir.Constant(_V2, constants)
        low, high = self.multiply(lane, pair, 0x00), self.multiply(lane, pair, 0x11)
        return self.builder.xor(self.builder.xor(low, high), following)

    def vector(self, low: Any) -> Any:
        return self.builder.insert_element(ir.Constant(_V2, (0, 0)), low, ir.Constant(_I32, 0))

    def low(self, vector: Any) -> Any:
        return self.builder.extract_element(vector, ir.Constant(_I32, 0))

    def high(self, vector: Any) -> Any:
        return self.builder.extract_element(vector, ir.Constant(_I32, 1))

    def fold_all(self, address: Any, size: Any, lanes: list[Any], constants: tuple[int, int], position: Any) -> None:
        """Emit a loop that folds data into the lanes (16 bytes each), as long as a whole step is left."""
        builder, step = self.builder, ir.Constant(_I64, 16 * len(lanes))
        test, body, done = (builder.append_basic_block(name) for name in ("test", "body", "done"))
        builder.branch(test)
        builder.position_at_end(test)
        at = builder.load(position)
        builder.cbranch(builder.icmp_signed("<=", builder.add(at, step), size), body, done)
        builder.position_at_end(body)
        for i, lane in enumerate(lanes):
            following = self.load(builder.add(address, builder.add(at, ir.Constant(_I64, 16 * i))))
            builder.store(self.fold(builder.load(lane), constants, following), lane)
        builder.store(builder.add(at, step), position)
        builder.branch(test)
        builder.position_at_end(done)

    def reduce(self, lane: Any) -> Any:
        builder, mask = self.builder, ir.Constant(_I64, 0xFFFFFFFF)
        folded = builder.xor(self.multiply(lane, ir.Constant(_V2, _FOLD_16), 0x10), self.vector(self.high(lane)))
        word = self.vector(builder.and_(self.low(folded), mask))
        eight = self.multiply(word, ir.Constant(_V2, (_FOLD_8, 0)), 0x00)
        shift = ir.Constant(_I64, 32)
        rest = builder.or_(builder.lshr(self.low(folded), shift), builder.shl(self.high(folded), shift))
        remainder = builder.xor(self.low(eight), rest)
        barrett = ir.Constant(_V2, _BARRETT)
        quotient = self.multiply(self.vector(builder.and_(remainder, mask)), barrett, 0x10)
        product = self.multiply(self.vector(builder.and_(self.low(quotient), mask)), barrett, 0x00)
        return builder.trunc(builder.lshr(builder.xor(self.low(product), remainder), shift), _I32)


@intrinsic
def _carryless_state(typing_context, address, size, state):  # type: ignore[no-untyped-def]
    """The raw CRC state (before the final inversion) after `size` bytes: a multiple of 16, at least 16."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address, size, state = arguments
        folder = _Folder(builder)
        lanes = [cgutils.alloca_once(builder, _V2) for _ in range(4)]
        position = cgutils.alloca_once(builder, _I64)
        start = folder.vector(builder.zext(state, _I64))
        builder.store(builder.xor(folder.load(address), start), lanes[0])
        builder.store(ir.Constant(_I64, 16), position)
        with builder.if_then(builder.icmp_signed(">=", size, ir.Constant(_I64, 64))):
            for i in range(1, 4):
                builder.store(folder.load(builder.add(address, ir.Constant(_I64, 16 * i))), lanes[i])
            builder.store(ir.Constant(_I64, 64), position)
            folder.fold_all(address, size, lanes, _FOLD_64, position)
            lane = builder.load(lanes[0])
            for i in range(1, 4):
                lane = folder.fold(lane, _FOLD_16, builder.load(lanes[i]))
            builder.store(lane, lanes[0])
        folder.fold_all(address, size, lanes[:1], _FOLD_16, position)
        return folder.reduce(builder.load(lanes[0]))

    return types.uint32(types.int64, types.int64, types.uint32), generate


@njit
def table_state(address: int, size: int, state: np.uint32) -> np.uint32:
    """The raw CRC state after `size` bytes, sixteen in a step, without carry-less multiplication."""
    state, mask = np.uint32(state), np.uint32(255)
    while size >= 16:
        a, b = load_u32_native(address) ^ state, load_u32_native(address + 4)
        c, d = load_u32_native(address + 8), load_u32_native(address + 12)
        state = np.uint32(0)
        for i in range(4):
            shift = np.uint32(8 * i)
            state ^= _TABLES[15 - i, (a >> shift) & mask] ^ _TABLES[11 - i, (b >> shift) & mask]
            state ^= _TABLES[7 - i, (c >> shift) & mask] ^ _TABLES[3 - i, (d >> shift) & mask]
        address += 16
        size -= 16
    for i in range(size):
        state = np.uint32(_TABLES[0, (state ^ load_u8(address + i)) & mask] ^ (state >> np.uint32(8)))
    return state


if _HAS_CARRYLESS:

    @njit
    def crc32(address: int, size: int) -> np.uint32:
        """CRC-32 of the bytes at an address."""
        state = np.uint32(0xFFFFFFFF)
        whole = size & ~15
        if whole:
            state = _carryless_state(address, whole, state)
        return np.uint32(table_state(address + whole, size - whole, state) ^ np.uint32(0xFFFFFFFF))

else:

    @njit
    def crc32(address: int, size: int) -> np.uint32:
        """CRC-32 of the bytes at an address."""
        return np.uint32(table_state(address, size, np.uint32(0xFFFFFFFF)) ^ np.uint32(0xFFFFFFFF))


@njit
def body_crc(address: int, size: int) -> np.int32:
    """Value of a record's BODYCRC field: CRC-32 with the top bit cleared (`UtilAll.crc32`)."""
    return np.int32(crc32(address, size) & np.uint32(0x7FFFFFFF))


@kernel("void(int64, int64[::1], int64[::1], uint32[::1], boolean)")
def crc32_slices(buffer, positions, sizes, out, by_tables):  # type: ignore[no-untyped-def]
    """CRC-32 of many slices of one buffer; `by_tables` forces the fallback, so that tests cover it everywhere."""
    for i in range(positions.size):
        if by_tables:
            start = np.uint32(0xFFFFFFFF)
            out[i] = table_state(buffer + positions[i], sizes[i], start) ^ np.uint32(0xFFFFFFFF)
        else:
            out[i] = crc32(buffer + positions[i], sizes[i])
