"""Many positioned writes in one call of a kernel, without the interpreter and its lock between them.

The kernel calls `pwrite` and `__errno_location` by their names, which LLVM finds in the process. So the compiled kernel
can be cached on disk; with a function pointer from ctypes it could not.
"""

from __future__ import annotations

import errno
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from reput.kernels._jit import kernel

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_POINTER = ir.IntType(8).as_pointer()
_EINTR, _EIO = errno.EINTR, errno.EIO


@intrinsic
def _pwrite(typing_context, descriptor, address, size, position):  # type: ignore[no-untyped-def]
    """C's `pwrite`: bytes written, or -1 with errno set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        descriptor, address, size, position = arguments
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_I64, [_I32, _POINTER, _I64, _I64]), "pwrite"
        )
        return builder.call(
            function, [builder.trunc(descriptor, _I32), builder.inttoptr(address, _POINTER), size, position]
        )

    return types.int64(types.int64, types.int64, types.int64, types.int64), generate


@intrinsic
def _errno(typing_context):  # type: ignore[no-untyped-def]
    """C's `errno` of this thread."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        location = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_I32.as_pointer(), []), "__errno_location"
        )
        return builder.sext(builder.load(builder.call(location, [])), _I64)

    return types.int64(), generate


@kernel("UniTuple(int64, 2)(int64[::1], int64[::1], int64[::1], int64[::1])")
def write_runs(descriptors, addresses, sizes, positions):  # type: ignore[no-untyped-def]
    """Write `sizes[i]` bytes from `addresses[i]` to `positions[i]` of `descriptors[i]`, for each i in order.

    Returns (number of runs, 0), or (index of the run that failed, errno); the runs before it are written.
    """
    for i in range(len(sizes)):
        written = 0
        while written < sizes[i]:
            count = _pwrite(descriptors[i], addresses[i] + written, sizes[i] - written, positions[i] + written)
            if count > 0:
                written += count
                continue
            code = _errno() if count < 0 else _EIO
            if code != _EINTR:
                return i, code
    return len(sizes), 0
