"""Compiled kernels that come with a wheel: one file, which is proven before a kernel of it is loaded.

    SHA-256 of all that follows, as hex digits, and a line feed
    origin: all that the code depends on, as JSON, and a line feed
    pickle of a dictionary: name of a kernel -> its code, as Numba keeps it

The code is for one target (`target.py`). The file counts as a whole or not at all: if it is as it was built, if its
origin is what this process has, and if this processor has what the target needs. Else kernels are compiled, and a line
says why. So code that is damaged, or of other sources, or for another Numba or Python, is never loaded.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
import json
import pickle
import sys
from collections.abc import Mapping, Set
from typing import NamedTuple

import llvmlite
import numba
from llvmlite import binding

from reput.kernels.machine.cache import cache_folder, sources_digest
from reput.kernels.machine.target import NEEDED, TARGET, TARGET_FEATURES

#: The file's name, in `reput/kernels`.
FILE = "kernels.bin"


class WheelKernels(NamedTuple):
    """Kernels of a wheel.

    Attributes:
        codes: Code of each kernel, by its name; empty if the wheel has none, or if they do not count.
        refusal: Reason why they do not count; empty if they do, if there are none, and if the user has chosen a
            processor to compile for.
    """

    codes: Mapping[str, bytes]
    refusal: str = ""


def encode(codes: Mapping[str, bytes]) -> bytes:
    """The file of kernels that this process has compiled for the target."""
    rest = json.dumps(origin()).encode() + b"\n" + pickle.dumps(dict(codes))
    return hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest


def decode(content: bytes, features: Set[str]) -> WheelKernels:
    """Kernels of a file, if they count in this process.

    Args:
        content: The file.
        features: Features of the processor, by LLVM's names.
    """
    digest, _, rest = content.partition(b"\n")
    if hashlib.sha256(rest).hexdigest().encode() != digest:
        return WheelKernels({}, "they are damaged; install the wheel again")
    line, _, codes = rest.partition(b"\n")
    theirs = json.loads(line)
    for name, ours in origin().items():
        if theirs.get(name) != ours:
            return WheelKernels({}, f"they are for {name} {theirs.get(name)}, here is {ours}")
    if lacking := NEEDED - features:
        return WheelKernels({}, f"they need a processor with {', '.join(sorted(lacking))}")
    return WheelKernels(pickle.loads(codes))


def origin() -> dict[str, str]:
    """All that compiled code depends on beside the processor, each with the name that a refusal tells."""
    return {
        "sources": sources_digest()[:16],
        "Numba": numba.__version__,
        "llvmlite": f"{llvmlite.__version__} with LLVM {'.'.join(map(str, binding.llvm_version_info))}",
        "Python": f"{sys.implementation.cache_tag}{sys.abiflags}",
        "system": binding.get_default_triple(),
        "target": f"{TARGET} {TARGET_FEATURES}",
    }


@functools.cache
def wheel_kernels() -> WheelKernels:
    """Kernels of the wheel that this reput comes from; of a source tree none.

    Whoever sets `NUMBA_CPU_NAME` or `NUMBA_CPU_FEATURES` gets kernels that are compiled for that processor.
    """
    if numba.config.CPU_NAME is not None or numba.config.CPU_FEATURES is not None:
        return WheelKernels({})
    file = importlib.resources.files("reput.kernels") / FILE
    if not file.is_file():
        return WheelKernels({})
    try:
        content = file.read_bytes()
    except Exception as error:  # of a damaged zip, one of many kinds
        return WheelKernels({}, f"they cannot be read: {error}")
    return decode(content, host_features())


def host_features() -> set[str]:
    """Features of this processor, by LLVM's names."""
    return {name for name, is_there in binding.get_host_cpu_features().items() if is_there}


def kernels_path() -> str:
    """The file that the kernels come from if it is the wheel's, else the folder of the cache."""
    return str(importlib.resources.files("reput.kernels") / FILE) if wheel_kernels().codes else cache_folder()
