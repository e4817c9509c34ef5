"""Environments in which a user has installed the wheel, with an extra or without.

Nothing is fetched: they have links to those packages here that the wheel asks for. pip checks that no other is needed.
"""

from __future__ import annotations

import subprocess
import sysconfig
import venv
import zipfile
from collections.abc import Iterable
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

from tests.support.cluster.wheel import site_packages, without_source_tree


def run(environment: Path, name: str, *arguments: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program of an environment."""
    return subprocess.run(
        [str(environment / "bin" / name), *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        env=without_source_tree(),
    )


def make_environment(folder: Path, wheel: Path, extra: str = "") -> Path:
    """Install the wheel into a new environment, which is returned."""
    venv.create(folder, symlinks=True)
    site, here = site_packages(folder / "bin" / "python"), Path(sysconfig.get_path("purelib"))
    info = next(name for name in zipfile.ZipFile(wheel).namelist() if name.endswith("/METADATA"))
    installed: dict[str, Distribution] = {"pip": distribution("pip")}
    _add_needed(installed, PathDistribution(zipfile.Path(wheel, info.removesuffix("METADATA"))), [extra])
    for entry in {file.parts[0] for one in installed.values() for file in one.files or ()} - {"..", "__pycache__"}:
        (site / entry).symlink_to(here / entry)
    install = run(folder, "python", "-m", "pip", "install", "--no-index", f"{wheel}[{extra}]" if extra else wheel)
    assert install.returncode == 0, install.stderr
    return folder


def _add_needed(found: dict[str, Distribution], package: Distribution, extras: Iterable[str]) -> None:
    """Add what a package needs with these extras, and what that needs."""
    for requirement in map(Requirement, package.requires or ()):
        marker = requirement.marker
        is_needed = marker is None or any(marker.evaluate({"extra": extra}) for extra in extras)
        if is_needed and requirement.name not in found:
            found[requirement.name] = distribution(requirement.name)
            _add_needed(found, found[requirement.name], requirement.extras or [""])
