"""Caches of compiled kernels that lack some, as compiling all takes half a minute."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

from llvmlite import binding

import reput
from reput.kernel_loader import load_kernels
from reput.kernels.machine.cache import COMPLETE, cache_folder
from reput.kernels.machine.jit import code_paths
from reput.kernels.machine.wheel_kernels import FILE, wheel_kernels

#: Environment of a process that takes kernels from the cache, also where the tests run from a wheel that brings some.
WITHOUT_WHEEL = {"NUMBA_CPU_NAME": binding.get_host_cpu_name()}


@functools.cache
def whole_cache() -> Path:
    """The folder of these sources' kernels, with all of them."""
    if wheel_kernels().codes:
        subprocess.run([sys.executable, "-m", "reput", "warm"], env=os.environ | WITHOUT_WHEEL, check=True)
    load_kernels()
    return Path(cache_folder())


def all_codes() -> dict[str, bytes]:
    """Code of each kernel, as a wheel may bring it."""
    load_kernels()
    return dict(wheel_kernels().codes) or {name: Path(path).read_bytes() for name, path in code_paths().items()}


def installed_with(folder: Path, file: bytes | None) -> Path:
    """Make a folder in which reput is, with this file of a wheel's kernels, for `PYTHONPATH`."""
    package, ignored = Path(reput.__file__).parent, shutil.ignore_patterns("__pycache__", FILE)
    shutil.copytree(package, folder / "reput", ignore=ignored)
    if file is not None:
        (folder / "reput/kernels" / FILE).write_bytes(file)
    return folder


def cache_without(folder: Path, *kernels: str) -> Path:
    """Make a cache folder, for `REPUT_CACHE_DIR`, that lacks kernels, each named as `batched_io.read_runs`."""
    kept = shutil.copytree(whole_cache(), folder / whole_cache().name)
    (kept / COMPLETE).unlink()
    for kernel in kernels:
        files = list(kept.glob(f"*/{kernel}-*"))
        assert files, kernel
        for file in files:
            file.unlink()
    return folder


def kernels_in(folder: Path) -> list[str]:
    """Names of the kernels in a cache folder."""
    return sorted(file.name.partition("-")[0] for file in folder.glob("*/*/*.nbi"))
