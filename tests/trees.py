"""What a directory holds, to be compared."""

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
