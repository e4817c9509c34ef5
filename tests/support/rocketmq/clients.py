"""RocketMQ's clients for Go and Node in programs of ours: interop/go and interop/node, built once and kept."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_SOURCES = Path(__file__).parents[3] / "interop"
#: The versions are those of go.sum and package-lock.json.
_BUILD = {
    "go": ["go", "build", "-mod=readonly", "-o", "client", "."],
    "node": ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
}
_RUN = {"go": ["./client"], "node": ["node", "main.js"]}
_MOST_S = 300


def run_client(language: str, *arguments: str) -> Any:
    """What a program prints, one JSON object."""
    folder = _built(language)
    told = _output([*_RUN[language], *arguments], folder)
    return json.loads(told)


def _built(language: str) -> Path:
    """The folder where a program can run: made the first time, under ~/.cache/reput/interop (REPUT_INTEROP_DIR)."""
    tool = _BUILD[language][0]
    assert shutil.which(tool), f"{tool} not found on PATH: tests of clients in other languages need Go, Node and npm"
    sources = sorted((_SOURCES / language).iterdir())
    digest = hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in sources)).hexdigest()[:16]
    cache = Path(os.environ.get("REPUT_INTEROP_DIR", Path.home() / ".cache/reput/interop"))
    built = cache / f"{language}-{digest}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"lock-{language}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            with tempfile.TemporaryDirectory(dir=cache) as folder:
                project = shutil.copytree(_SOURCES / language, Path(folder) / "project")
                _output(_BUILD[language], project)
                project.rename(built)
    return built


def _output(command: Sequence[str], folder: Path) -> str:
    """The standard output of a command that must end well."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_MOST_S, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout
