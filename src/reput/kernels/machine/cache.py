"""The folder of compiled kernels, and of all else that can be deleted and made again.

The folder is the only one that code below the file layer makes: Numba writes there by itself.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
import logging
import os
import stat
import tempfile
from collections.abc import Iterator
from importlib.resources.abc import Traversable

import llvmlite
import numba
from llvmlite import binding

from reput.errors import ConfigError

#: Packages whose sources become part of compiled kernels.
_SOURCE_PACKAGES = ("reput.formats", "reput.kernels", "reput.files")
#: In a folder with every kernel.
COMPLETE = "complete"


def chosen_root() -> str:
    """`REPUT_CACHE_DIR`, else `reput` below `XDG_CACHE_HOME`, else `~/.cache/reput`; perhaps missing or read-only."""
    chosen = os.environ.get("REPUT_CACHE_DIR")
    if chosen:
        return os.path.abspath(chosen)
    parent = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(parent, "reput")


@functools.cache
def cache_root() -> str:
    """Folder for everything that can be deleted and made again: compiled kernels, archives of the JVM.

    `chosen_root`, or if it cannot be written a temporary folder of this user, with a line of warning. Raises
    ConfigError if there is no folder for temporary files either.
    """
    chosen = chosen_root()
    if can_be_written(chosen):
        return chosen
    try:
        root = _temporary_root()
    except OSError:
        raise ConfigError(
            f"{chosen} cannot be written, nor is there a folder for temporary files: reput keeps its compiled kernels "
            "in a folder. Set REPUT_CACHE_DIR to one that can be written"
        ) from None
    logging.getLogger("reput.cache").warning(
        "reput: %s cannot be written: compiled kernels are kept in %s, and compiled again at each start without that "
        "folder. Set REPUT_CACHE_DIR to a folder that can be written and stays",
        chosen,
        root,
    )
    return root


def cache_path(name: str, *proof: str) -> str:
    """Path of a file or folder of the cache: in the chosen folder if it is there, which may be read-only, else where
    it is to be made.

    Args:
        name: Of the file or folder.
        proof: Name of a file in the folder without which the folder does not count.
    """
    chosen = os.path.join(chosen_root(), name)
    return chosen if os.path.exists(os.path.join(chosen, *proof)) else os.path.join(cache_root(), name)


@functools.cache
def cache_folder() -> str:
    """Folder of the kernels that were compiled from these sources, by this Numba, for this processor.

    `NUMBA_CPU_NAME` and `NUMBA_CPU_FEATURES` choose another processor, as they do for Numba.
    """
    digest = hashlib.sha256()
    name, features = numba.config.CPU_NAME, numba.config.CPU_FEATURES
    name = binding.get_host_cpu_name() if name is None else name
    features = binding.get_host_cpu_features().flatten() if features is None else features
    digest.update(f"{numba.__version__} {llvmlite.__version__} {name}".encode())
    digest.update(features.encode() + sources_digest().encode())
    return cache_path(f"kernels-{digest.hexdigest()[:16]}", COMPLETE)


@functools.cache
def sources_digest() -> str:
    """Hash of every source that a kernel can see."""
    digest = hashlib.sha256()
    for package in _SOURCE_PACKAGES:
        for name, source in sorted(_sources(importlib.resources.files(package))):
            digest.update(f"{package}/{name} {len(source)}\0".encode() + source)
    return digest.hexdigest()


def _sources(folder: Traversable, path: str = "") -> Iterator[tuple[str, bytes]]:
    """(path below the folder, content) of each module of a package, its rooms' modules, too."""
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _sources(entry, f"{path}{entry.name}/")
        elif entry.name.endswith(".py"):
            yield path + entry.name, entry.read_bytes()


def can_be_written(folder: str) -> bool:
    """Whether files can be made in a folder, or in the nearest one above it that exists."""
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


def _temporary_root() -> str:
    """Folder of this user alone, since compiled code is loaded from it; by a fixed name, for later processes."""
    root = os.path.join(tempfile.gettempdir(), f"reput-{os.geteuid()}")
    try:
        os.mkdir(root, 0o700)
    except FileExistsError:
        there = os.lstat(root)
        if not stat.S_ISDIR(there.st_mode) or there.st_uid != os.geteuid() or there.st_mode & 0o022:
            return tempfile.mkdtemp(prefix="reput-")
    return root
