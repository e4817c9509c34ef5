"""C functions inside kernels, by their names, which LLVM resolves in the process.

So the compiled kernels can be cached on disk; with function pointers from ctypes they could not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

VOID, INT32, INT64 = ir.VoidType(), ir.IntType(32), ir.IntType(64)
POINTER = ir.IntType(8).as_pointer()


def c_function(name: str, result: Any, arguments: list[Any], *, variadic: bool = False) -> Callable[..., Any]:
    """The C function of this name as an intrinsic over int64: addresses become pointers, results become int64."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(result, arguments, var_arg=variadic), name
        )
        passed = []
        for value, kind in zip(values, arguments, strict=True):
            if kind is POINTER:
                value = builder.inttoptr(value, POINTER)
            elif kind is INT32:
                value = builder.trunc(value, INT32)
            passed.append(value)
        answer = builder.call(function, passed)
        if result is VOID:
            return ir.Constant(INT64, 0)
        if result is POINTER:
            return builder.ptrtoint(answer, INT64)
        return builder.sext(answer, INT64) if result is INT32 else answer

    int64 = types.int64

    def none(typing_context):  # type: ignore[no-untyped-def]
        return int64(), generate

    def one(typing_context, a):  # type: ignore[no-untyped-def]
        return int64(int64), generate

    def two(typing_context, a, b):  # type: ignore[no-untyped-def]
        return int64(int64, int64), generate

    def three(typing_context, a, b, c):  # type: ignore[no-untyped-def]
        return int64(int64, int64, int64), generate

    def four(typing_context, a, b, c, d):  # type: ignore[no-untyped-def]
        return int64(int64, int64, int64, int64), generate

    by_count = {0: none, 1: one, 2: two, 3: three, 4: four}
    return intrinsic(by_count[len(arguments)])  # type: ignore[no-any-return]
