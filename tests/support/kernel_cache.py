"""Caches of compiled kernels that lack some, as compiling all takes half a minute."""

from __future__ import annotations

import shutil
from pathlib import Path

from reput.kernel_loader import load_kernels
from reput.kernels.machine.cache import COMPLETE, cache_folder


def whole_cache() -> Path:
    """The folder of these sources' kernels, with all of them."""
    load_kernels()
    return Path(cache_folder())


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
