"""Content of a directory, to be compared."""

from __future__ import annotations

import hashlib
from pathlib import Path


def tree(path: Path) -> dict[str, str]:
    """Relative path -> SHA-256 of each file."""
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


def image(path: Path) -> dict[str, str]:
    """Relative path -> what is there: the SHA-256 of a file, where a link leads, or that it is a folder."""
    found = {}
    for entry in sorted(path.rglob("*")):
        if entry.is_symlink():
            what = f"link to {entry.readlink()}"
        else:
            what = "folder" if entry.is_dir() else hashlib.sha256(entry.read_bytes()).hexdigest()
        found[str(entry.relative_to(path))] = what
    return found
