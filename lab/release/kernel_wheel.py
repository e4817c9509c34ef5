"""Wheel with compiled kernels, for the Python that runs this: `make wheel`.

    python lab/release/kernel_wheel.py dist/reput-VERSION-py3-none-any.whl dist

The wheel is the given one, with one file more and the tag of this Python. The kernels are compiled from the given wheel
itself, so they cannot be of other sources. This Python needs what reput[store] needs. Kernels that are in
`REPUT_CACHE_DIR` already are taken: a wheel for others is built with an empty folder.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import sys
import zipfile
from pathlib import Path

#: Of the oldest Linux for which PyArrow, of reput[tables], has wheels.
PLATFORM = "manylinux_2_28_x86_64"


def compiled_kernels(wheel: Path) -> bytes:
    """The file of all kernels of a wheel, compiled for the target of wheels. Nothing of Numba was imported before."""
    sys.path.insert(0, str(wheel))
    from reput.kernels.machine.target import TARGET, TARGET_FEATURES

    os.environ |= {"NUMBA_CPU_NAME": TARGET, "NUMBA_CPU_FEATURES": TARGET_FEATURES}
    from reput.kernel_loader import load_kernels
    from reput.kernels.machine.jit import code_paths
    from reput.kernels.machine.wheel_kernels import encode

    load_kernels()
    return encode({name: Path(path).read_bytes() for name, path in code_paths().items()})


def with_kernels(wheel: Path, kernels: bytes, folder: Path) -> Path:
    """Make the wheel of a wheel and its kernels."""
    from reput.kernels.machine.wheel_kernels import FILE

    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    tag = f"{python}-{python}-{PLATFORM}"
    made = folder / wheel.name.replace("py3-none-any", tag)
    with zipfile.ZipFile(wheel) as pure, zipfile.ZipFile(made, "w") as target:
        content = {name: pure.read(name) for name in pure.namelist()}
        (record,) = (name for name in content if name.endswith(".dist-info/RECORD"))
        about = record.replace("RECORD", "WHEEL")
        content[about] = content[about].replace(b"py3-none-any", tag.encode()).replace(b"true", b"false")
        content[f"reput/kernels/{FILE}"] = kernels
        content[record] = _record(content, record)
        like = pure.getinfo(record)
        for name, data in content.items():
            entry = zipfile.ZipInfo(name, like.date_time)
            entry.external_attr = like.external_attr
            target.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return made


def _record(content: dict[str, bytes], record: str) -> bytes:
    """List of a wheel's files, with their hashes."""
    lines = io.StringIO()
    rows = csv.writer(lines, lineterminator="\n")
    for name, data in content.items():
        if name == record:
            continue
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.writerow([name, f"sha256={digest}", len(data)])
    rows.writerow([record, "", ""])
    return lines.getvalue().encode()


def main(wheel: str, folder: str) -> None:
    pure = Path(wheel).resolve()
    made = with_kernels(pure, compiled_kernels(pure), Path(folder))
    print(f"{made.name}: {made.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main(*sys.argv[1:])
