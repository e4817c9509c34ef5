"""Check of what is published, `make release-check`: each package of dist as a user installs it.

Each goes into an empty environment, with the extras `broker` and `tables`; what it needs comes from the package index.
The examples of the quick start run there, in an empty folder and without a cache of kernels: a wheel with kernels must
compile none. All packages have the same metadata, and the version of the sources.

    python -m lab.release.check python3.11 python3.12       # a Python for each wheel with kernels
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import reput
from tests.support.cluster.wheel import without_source_tree
from tests.support.pages import ROOT, Block, blocks, is_what_the_page_shows

DIST = ROOT / "dist"
EXTRA = "broker,tables"
_TAG = "import sys; print(f'cp{sys.version_info.major}{sys.version_info.minor}')"
_METADATA = "from importlib.metadata import metadata; print(metadata('reput'))"


def examples() -> Iterator[Block]:
    """Programs of the quick start."""
    return (one for one in blocks((ROOT / "docs/index.md").read_text()) if one.language == "python")


def output(*command: object, at: Path = ROOT, **variables: str) -> str:
    """Standard output of a command, which must succeed."""
    words, environment = [*map(str, command)], without_source_tree() | variables
    return subprocess.run(words, cwd=at, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


def check(package: Path, python: str, folder: Path) -> str:
    """Install a package, and run the examples with it; returns its metadata."""
    output(python, "-m", "venv", folder / "venv")
    installed = folder / "venv/bin/python"
    output(installed, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{package}[{EXTRA}]")
    output(installed, "-m", "pip", "check")
    cache = folder / "cache"
    for example in examples():
        printed = output(installed, "-c", example.text, at=folder, REPUT_CACHE_DIR=str(cache))
        if example.output is None or not is_what_the_page_shows(example.output, printed):
            raise SystemExit(
                f"{package.name}: an example of docs/index.md printed\n{printed}\nin place of\n{example.output}"
            )
    if kernels_tag(package) and cache.exists():
        raise SystemExit(f"{package.name}: kernels were compiled, though the wheel brings them")
    return output(installed, "-c", _METADATA)


def kernels_tag(package: Path) -> str | None:
    """Tag of the Python that a wheel has kernels for; None of another package."""
    found = re.search(r"-(cp\d+)-", package.name)
    return found and found[1]


def main(*pythons: str) -> None:
    by_tag = {output(python, "-c", _TAG).strip(): python for python in pythons}
    packages = sorted(DIST.glob("reput-*"))
    metadata: dict[str, list[str]] = {}
    for package in packages:
        tag = kernels_tag(package)
        python = by_tag.get(tag) if tag else sys.executable
        if python is None:
            raise SystemExit(f"{package.name} needs a Python of its own: name one in PYTHONS=")
        with tempfile.TemporaryDirectory() as folder:
            metadata.setdefault(check(package, python, Path(folder)), []).append(package.name)
        print(f"{package.name}: installed, and the quick start runs", flush=True)
    if len(metadata) != 1 or len(packages) != 2 + len(by_tag):
        raise SystemExit(
            f"packages of one version have one metadata, and each Python has a wheel: {[*metadata.values()]}"
        )
    if f"\nVersion: {reput.__version__}\n" not in next(iter(metadata)):
        raise SystemExit(f"{packages[0].name}: its version is not that of the sources, {reput.__version__}: make wheel")


if __name__ == "__main__":
    main(*sys.argv[1:])
