"""A Python that has reput as executors have it: from the wheel, beside the packages that it depends on."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).parents[3]


def build_wheel(folder: Path, source: Path = ROOT) -> Path:
    """Build the wheel of a source tree; nothing is fetched."""
    return _build("wheel", folder, source)


def build_sdist(folder: Path) -> Path:
    """Build the source distribution of this source tree."""
    return _build("sdist", folder, ROOT)


def _build(target: str, folder: Path, source: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (built,) = folder.iterdir()
    return built


def make_environment(folder: Path, wheel: Path | None = None) -> Path:
    """The `python` of a new environment: links to the packages here, less this source tree, and the wheel if given.

    pip looks up what the wheel depends on, and refuses it if the links do not suffice.
    """
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    site = site_packages(python)
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "reput" not in entry.name:
            (site / entry.name).symlink_to(entry)
    if wheel is not None:
        install = [str(python), "-m", "pip", "install", "--no-index", f"{wheel}[spark]"]
        subprocess.run(install, env=without_source_tree(), check=True, capture_output=True)
    return python


def site_packages(python: Path) -> Path:
    """Folder of the packages of an environment made here."""
    return Path(sysconfig.get_path("purelib", vars={"base": str(python.parents[1])}))


def without_source_tree() -> dict[str, str]:
    """The environment variables here, less those that would let another Python import this source tree."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
