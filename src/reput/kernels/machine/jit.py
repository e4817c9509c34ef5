"""Compilation of kernels, and the cache of the compiled code.

Numba's on-disk cache does not notice a change in *another* file, and compiles globals as constants; reput's kernels
take their byte positions from `reput.formats`. The cache folder is therefore named by a hash of every source that a
kernel can see, and of the versions that decide the machine code. So a stale kernel cannot be loaded, and two versions
of the package can share one cache, as can two installations of one version: `spark-submit --py-files` makes a new
installation for each application. A wheel may bring kernels that are compiled already (`wheel_kernels.py`): these come
first, and then nothing is kept.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable
from typing import Any

import numba
from llvmlite import binding
from numba.core.caching import CompileResultCacheImpl, FunctionCache, NullCache, UserProvidedCacheLocator
from numba.core.compiler import CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher
from numba.core.runtime import rtsys

from reput.kernels.machine.cache import cache_folder
from reput.kernels.machine.compilation import Compilation
from reput.kernels.machine.wheel_kernels import wheel_kernels


class KernelCacheLocator(UserProvidedCacheLocator):  # type: ignore[misc]
    """Location of a kernel's compiled code: by the sources alone, not by the path of their installation."""

    def __init__(self, function: Callable[..., Any], source_path: str) -> None:
        self._py_file = source_path
        self._lineno = function.__code__.co_firstlineno
        self._cache_path = os.path.join(cache_folder(), os.path.basename(os.path.dirname(source_path)))

    def get_source_stamp(self) -> str:
        """Stamp of stale entries: constant, since the folder is named by the content of the sources."""
        return ""

    @classmethod
    def from_function(cls, function: Callable[..., Any], source_path: str) -> KernelCacheLocator:
        """Locator of one kernel; its source may lie in a zip file, and the cache where nothing can be written.

        The folder is made when a kernel is kept (`KernelCache.save_overload`).
        """
        return cls(function, source_path)


class KernelCacheImpl(CompileResultCacheImpl):  # type: ignore[misc]
    """Cache of a kernel: its machine code, and the data that Numba needs to call it from Python.

    Numba keeps two things more, for code that inlines the kernel, and looks through both at each load: the kernel in
    LLVM's language, and what the functions that it calls have for Python. No function inlines a kernel; without both,
    a load takes half the time.
    """

    def reduce(self, cres: Any) -> tuple[Any, ...]:
        """Content of the file; `rebuild` is Numba's."""
        library, descriptor, environment, signature, objectmode, lifted, _, reload_init, called = super().reduce(cres)
        name, kind, (code, _) = library
        entry = descriptor.llvm_cpython_wrapper_name  # Numba finds this function only if LLVM's language defines it
        named = binding.parse_assembly(f'define void @"{entry}"() {{ ret void }}').as_bitcode()
        with_constants = tuple(each for each in called if each.consts)  # without constants nothing reads them
        library = name, kind, (code, named)
        return library, descriptor, environment, signature, objectmode, lifted, "", reload_init, with_constants


class KernelCache(FunctionCache):  # type: ignore[misc]
    """Cache of one kernel, which tells of a kernel that it lacks, before that is compiled and after it."""

    _impl_class = KernelCacheImpl

    def __init__(self, kernel: Kernel) -> None:
        before = numba.config.CACHE_LOCATOR_CLASSES  # read only once, here
        numba.config.CACHE_LOCATOR_CLASSES = f"{__name__}.{KernelCacheLocator.__name__}"
        try:
            super().__init__(kernel.py_func)
        finally:
            numba.config.CACHE_LOCATOR_CLASSES = before
        self._kernel = kernel

    @property
    def is_empty(self) -> bool:
        """Whether the kernel was never compiled."""
        return not os.path.exists(os.path.join(self.cache_path, f"{self._impl.filename_base}.nbi"))

    @property
    def code_path(self) -> str:
        """File of the code once the kernel was compiled: the first of its files, as a kernel has one signature."""
        return os.path.join(self.cache_path, f"{self._impl.filename_base}.1.nbc")

    def _index_key(self, sig: str, codegen: Any) -> tuple[Any, ...]:
        """Key of an entry: no hash of the function's bytecode, as the folder is named by the content of the sources.

        A Python without docstrings (`-OO`) has another bytecode, and the same kernels.
        """
        return sig, codegen.magic_tuple()

    def load_overload(self, sig: str, target_context: Any) -> Any:
        """Compiled code, None if there is none; Numba then compiles it.

        Numba's own method also imports all that Numba can compile, which takes longer than the load of all kernels.
        """
        rtsys.initialize(target_context)
        loaded = self._load_overload(sig, target_context)
        if loaded is None:
            compilation.begin(self._kernel)
        return loaded

    def save_overload(self, sig: str, data: Any) -> None:
        """Keep code that was just compiled; a full disk is a line of warning, as the code is there."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            compilation.cannot_keep(error)
        compilation.end(self._kernel)


class WheelCache(NullCache):  # type: ignore[misc]
    """Code of one kernel out of the wheel: all that Numba asks of a cache."""

    is_empty = False

    def __init__(self, code: bytes) -> None:
        self._code = code

    def load_overload(self, sig: str, target_context: Any) -> Any:
        """The compiled code; for the only signature that a kernel has."""
        rtsys.initialize(target_context)
        return CompileResult._rebuild(target_context, *pickle.loads(self._code))


class Kernel(CPUDispatcher):  # type: ignore[misc]
    """Compiled function of one signature, loaded from the cache, or compiled, when it is first called.

    Numba asks `_compile_for_args` for code as long as there is none, so later calls cost no more than of any
    other compiled function.
    """

    def __init__(self, function: Callable[..., Any], signature: str, *, short: bool, **options: Any) -> None:
        super().__init__(function, targetoptions={"nopython": True, "boundscheck": False, **options})
        self.name = f"{function.__module__}.{function.__name__}"
        code = wheel_kernels().codes.get(self.name)
        self.cache: KernelCache | WheelCache = KernelCache(self) if code is None else WheelCache(code)
        self._cache = self.cache
        self._signature = signature
        self._is_short = short
        _declared.append(self)

    @property
    def is_loaded(self) -> bool:
        """Whether calls run compiled code."""
        return bool(self.overloads)

    def load(self) -> None:
        """Load the code, or compile it; does nothing if that was done."""
        with global_compiler_lock:
            if not self.is_loaded:
                code = self.compile(self._signature)
                self.disable_compile()
                if self._is_short:
                    self.py_func.__globals__[self.py_func.__name__] = code

    def _compile_for_args(self, *args: Any, **kws: Any) -> Kernel:
        """Load the code; returns what Numba calls in its place with the same arguments."""
        self.load()
        return self


_declared: list[Kernel] = []
compilation = Compilation()


def are_declared_kernels_loaded() -> bool:
    """Whether the kernels of all imported modules are loaded."""
    return all(kernel.is_loaded for kernel in _declared)


def missing_kernels() -> list[Kernel]:
    """Kernels of imported modules that are not loaded, and that the cache lacks."""
    return [kernel for kernel in _declared if not kernel.is_loaded and kernel.cache.is_empty]


def load_declared_kernels() -> None:
    """Load the kernels of imported modules, or compile them if the cache lacks them."""
    with global_compiler_lock:
        begin = time.perf_counter()
        compilation.planned = missing_kernels()
        for kernel in _declared:
            kernel.load()
        if compilation.planned:
            compilation.log_end(time.perf_counter() - begin)
        compilation.planned = ()


def code_paths() -> dict[str, str]:
    """Files in the cache with the code of each kernel of imported modules, by the kernel's name."""
    return {each.name: each.cache.code_path for each in _declared if isinstance(each.cache, KernelCache)}


def kernel(
    signature: str, *, allocates: bool = False, reads_objects: bool = False, short: bool = False
) -> Callable[[Callable[..., Any]], Any]:
    """Function that is compiled for exactly one signature, without the interpreter lock, and cached on disk.

    It is loaded or compiled at its first call, or by `load_kernels`. Kernels raise no errors: they return counts, stop
    reasons and status columns. Functions that only kernels call are plain `numba.njit` without a cache of their own.

    Numba counts the references to an array at each call of an inlined function, by an atomic operation: this took 85 of
    the 145 ns that a scan with keys took for a record. The caller keeps arrays alive, so kernels count none (`_nrt`).

    Args:
        signature: Numba's text, such as `"int64(int64, int64[::1])"`.
        allocates: The kernel allocates arrays, and so needs the reference counts.
        reads_objects: The kernel reads Python objects, and so keeps the interpreter lock.
        short: The kernel runs for a microsecond, takes plain numbers only, and is called from Python only, as an
            attribute of its module: when it is loaded, its code takes this place, and is called directly, without
            Numba's check of the argument types (100 ns). It keeps the interpreter lock: a busy thread that took the
            lock meanwhile would give it back after 5 ms.
    """

    def declared(function: Callable[..., Any]) -> Any:
        return Kernel(function, signature, short=short, nogil=not (reads_objects or short), _nrt=allocates)

    return declared


def inlined(function: Callable[..., Any]) -> Any:
    """Function for kernels only, copied to each of its callers; for functions that take arrays, whose references Numba
    would count at a call (see `kernel`).
    """
    return numba.njit(inline="always")(function)
